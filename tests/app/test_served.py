"""Every captioner through the engine: its caption, its own attention, its picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from app.attention_picture.render import draw_attention_picture
from app.errors import CaptionerUnknown, EmbeddingMissing, EngineStartFailed, InvalidMembers, JobFailure
from app.jobs.options import CaptionOptions
from app.pipeline.engine import Engine
from app.pipeline.engine_protocol import EngineAnswer, ignore_progress
from app.settings import Settings
from extractors.catalog.efficientnet_lite2 import EfficientNetLite2
from extractors.features import Footage, Frames, Stream
from extractors.media.decode import decode_here
from models.caption import AttentionDocument
from tests.app.captioners import write_all, write_captioner
from tests.app.pipeline.test_installed_captioners import ALL
from tests.media import write_video
from tests.models.parts import list_candidates, list_names

pytestmark = pytest.mark.slow

OWN: dict[str, set[str]] = {
    "stats": {"branch", "st_spatial"},
    "g2l": {"selected"},
    "refocus": {"key_frames", "refocus"},
    "dual_afr": {"layers"},
    "vanilla": set(),
    "temporal": set(),
    "spatial": set(),
    "ensemble": {"members", "branch", "st_spatial"},
}


@pytest.fixture(scope="module")
def settings(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    weights = write_all(tmp_path_factory.mktemp("served"))
    write_captioner(weights, "other_words", words=("something", "else"))
    return Settings(weights=weights, data=root / "data", device="cpu")


@pytest.fixture(scope="module")
def engine(settings: Settings) -> Engine:
    return Engine(settings)


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory, engine: Engine) -> Footage:
    clip = write_video(tmp_path_factory.mktemp("clip") / "clip.mp4", frames=20)
    return decode_here(clip, engine.info.request).footage


def ask(engine: Engine, video: Frames, **options: Any) -> EngineAnswer | JobFailure:
    try:
        chosen = engine.info.resolve(CaptionOptions.model_validate(options))
    except JobFailure as failure:
        return failure
    (answer,) = engine.describe_and_caption([video], [chosen], ignore_progress)
    return answer


@pytest.mark.parametrize("name", OWN)
def test_each_answers_with_its_own_attention_and_a_picture(engine: Engine, video: Footage, name: str) -> None:
    answer = ask(engine, video, captioner=name)
    assert isinstance(answer, EngineAnswer)
    assert answer.attention is not None
    document = AttentionDocument.model_validate_json(answer.attention)
    assert json.loads(answer.attention).keys() == {*AttentionDocument.model_fields, "located"}
    assert list_names(document) == OWN[name]
    assert len(document.times) in (4, 8)  # dualAFR's slots are of one frame each here, or of two
    frames = [Image.fromarray(pixels) for pixels in video.pixels]
    assert draw_attention_picture(document, frames, video.pts.tolist()).width >= 900


def test_fusion_tells_all_that_competed(engine: Engine, video: Footage) -> None:
    answer = ask(engine, video, captioner="fusion", members="g2l,stats,refocus", num_captions=2)
    assert isinstance(answer, EngineAnswer)
    assert answer.attention is not None
    document = AttentionDocument.model_validate_json(answer.attention)
    candidates = list_candidates(document)
    assert {each.captioner for each in candidates} <= {"g2l", "stats", "refocus"}
    assert [each.text for each in answer.answer.captions or []] == [each.text for each in candidates[:2]]
    model = answer.answer.model
    assert model is not None
    assert list(model.members or {}) == ["g2l", "stats", "refocus"]
    assert (model.options or {})["members"] == ("g2l", "stats", "refocus")
    frames = [Image.fromarray(pixels) for pixels in video.pixels]
    draw_attention_picture(document, frames, video.pts.tolist())


def test_members_share_what_they_look_at(
    engine: Engine, video: Footage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven captioners and an embedding, and the image network runs once."""
    ran: list[int] = []

    def extract(self: EfficientNetLite2, videos: Sequence[Frames]) -> list[dict[str, Stream]]:
        ran.append(len(videos))
        return whole(self, videos)

    whole = EfficientNetLite2.extract
    monkeypatch.setattr(EfficientNetLite2, "extract", extract)
    asked = [CaptionOptions(captioner="fusion"), CaptionOptions(captioner="ensemble"), CaptionOptions()]
    options = [engine.info.resolve(each) for each in asked]
    answers = engine.describe_and_caption([video] * 3, options, ignore_progress)
    assert all(isinstance(answer, EngineAnswer) for answer in answers)
    assert ran == [3]


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"captioner": "blip"}, CaptionerUnknown, "no captioner called blip"),
        ({"captioner": "fusion", "members": "blip"}, CaptionerUnknown, "no captioner called blip"),
        ({"captioner": "ensemble", "members": "stats,other_words"}, InvalidMembers, "different vocabularies"),
    ],
)
def test_who_cannot_write_is_told_by_name(
    engine: Engine, video: Footage, options: dict[str, Any], error: type[JobFailure], sentence: str
) -> None:
    answer = ask(engine, video, **options)
    assert isinstance(answer, error)
    assert sentence in str(answer)


def test_the_digest_is_of_all_files_that_wrote(engine: Engine, video: Footage) -> None:
    known = {each.name: each.weights_sha256 for each in engine.info.captioners}
    digests = []
    for options in (
        {"captioner": "fusion"},
        {"captioner": "fusion", "members": "stats"},
        {"captioner": "stats"},
    ):
        answer = ask(engine, video, attention=False, **options)
        assert isinstance(answer, EngineAnswer)
        assert answer.answer.model is not None
        digests.append(answer.answer.model.weights_sha256)
    assert len(set(digests)) == 3
    assert (digests[0], digests[2]) == (known["fusion"], known["stats"])


def test_it_says_what_there_is_and_who_writes_by_default(engine: Engine) -> None:
    info = engine.info
    names = [each.name for each in info.captioners]
    assert sorted(names) == sorted([*ALL, "other_words", "fusion", "ensemble"])
    assert info.default == "stats"
    ensemble = next(each for each in info.captioners if each.name == "ensemble")
    assert "other_words" not in ensemble.members
    assert info.request_for(info.resolve(CaptionOptions(captioner="fusion")).choice) == info.request


def test_without_an_embedding_there_is_no_fusion(root: Path, tmp_path: Path, video: Footage) -> None:
    write_captioner(tmp_path, "one")
    write_captioner(tmp_path, "two", seed=2)
    chosen = Settings(weights=tmp_path, data=root / "data", device="cpu", captioner="two")
    engine = Engine(chosen)
    assert isinstance(ask(engine, video, captioner="fusion"), EmbeddingMissing)
    answer = ask(engine, video)
    assert isinstance(answer, EngineAnswer)
    assert answer.answer.model is not None
    assert answer.answer.model.captioner == "two"
    with pytest.raises(
        EngineStartFailed, match="REELWORD_CAPTIONER is blip, and there are only: ensemble, one"
    ):
        Engine(chosen.model_copy(update={"captioner": "blip"}))
