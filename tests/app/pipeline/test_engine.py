"""Files to captions in one process, with a captioner that knows nothing but is real."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest

from app.documents.job import Answer
from app.errors import CaptionerUnknown, EngineStartFailed
from app.jobs.job import Stage
from app.jobs.options import CaptionerChoice, CaptionOptions
from app.pipeline import engine as engine_module
from app.pipeline.caption_files import caption_videos
from app.pipeline.engine import Engine
from app.pipeline.engine_protocol import EngineAnswer, ignore_progress, media_answer
from app.settings import Settings
from extractors.catalog.efficientnet_lite2 import EfficientNetLite2
from extractors.decoder.decoder import Decoder
from extractors.features import Frames, Stream
from extractors.media.decode import Sampling, decode_here
from extractors.media.errors import WarningCode
from extractors.pretrained import load
from extractors.pretrained.errors import WeightsMissing
from extractors.windowing.window_extractor import WindowExtractor
from models.caption import AttentionDocument, Caption, GridAttention
from models.feature_sources.stream_checks import StreamMismatch
from tests.app.captioners import demo, motion, write_captioner
from tests.extractors.moving import moving, put_in_bars
from tests.media import Picture, quarters, write_video

#: Numbers are told with five digits behind the point, and the last one may be rounded the other way.
TOLD = 1.001e-5


@pytest.fixture(scope="module")
def settings(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The checkout's data folder keeps the converted network from run to run."""
    weights = tmp_path_factory.mktemp("weights")
    write_captioner(weights, "stats", seed=1)
    write_captioner(weights, "other", seed=2)
    return Settings(weights=weights, data=root / "data", device="cpu", batch_jobs=2)


@pytest.fixture(scope="module")
def engine(settings: Settings) -> Engine:
    return Engine(settings)


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("clips")
    return [write_video(folder / f"{count}.mp4", frames=count) for count in (1, 20, 35)]


def of(captioner: str) -> CaptionOptions:
    return CaptionOptions(captioner=captioner)


def scores(found: EngineAnswer) -> list[float]:
    return [caption.score for caption in found.answer.captions or []]


def features_of(found: EngineAnswer) -> dict[str, Any]:
    assert found.answer.model is not None
    assert found.answer.model.features is not None
    return found.answer.model.features


def test_each_file_has_its_outcome_in_its_place(
    settings: Settings, engine: Engine, clips: list[Path], tmp_path: Path
) -> None:
    text = tmp_path / "text.mp4"
    text.write_text("this is no video")
    files = [clips[0], text, clips[1], clips[2]]
    outcomes = list(caption_videos(files, CaptionOptions(num_captions=3), settings, engine))
    assert [outcome.error is None for outcome in outcomes] == [True, False, True, True]
    assert outcomes[1].error is not None
    assert outcomes[1].error.code == "not_a_video"
    for outcome in (outcomes[0], outcomes[2], outcomes[3]):
        assert outcome.frames is not None
        assert len(outcome.frames) == len(outcome.answer.sampled or [])
        captions = outcome.answer.captions or []
        assert len(captions) == 3
        assert outcome.answer.caption == captions[0].text
        record = outcome.answer.as_record()
        assert Answer.model_validate(json.loads(json.dumps(record))).as_record() == record
        # segments of films, estimates of those that are not captioned: workers make them
        assert record.keys() == Answer.model_fields.keys() - {"segments", "estimate"}


def test_attention_tells_of_the_sampled_frames(settings: Settings, engine: Engine, clips: list[Path]) -> None:
    (outcome,) = caption_videos([clips[1]], CaptionOptions(), settings, engine)
    assert outcome.attention is not None
    document = AttentionDocument.model_validate_json(outcome.attention)
    assert document.words == [word.word for word in (outcome.answer.captions or [])[0].words]
    starts = [start for start, _ in document.times]
    assert starts == pytest.approx(outcome.answer.sampled, abs=1e-3)
    for row in document.temporal:
        assert row is not None
        assert sum(row) == pytest.approx(1, abs=1e-3)


def test_attention_is_left_out_where_nobody_wants_it(
    settings: Settings, engine: Engine, clips: list[Path]
) -> None:
    (outcome,) = caption_videos([clips[1]], CaptionOptions(attention=False), settings, engine)
    assert outcome.error is None
    assert outcome.attention is None


def test_a_caption_without_a_word_is_warned_of_beside_what_the_file_lacks(
    settings: Settings, engine: Engine, clips: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "_write", lambda *_: [[Caption(text="", score=0.0, words=[])]])
    (outcome,) = caption_videos([clips[0]], CaptionOptions(), settings, engine)
    assert outcome.answer.caption == ""
    assert [each.code for each in outcome.answer.warnings] == ["empty_caption"]
    decoded = decode_here(clips[0], engine.info.request)
    warned = replace(decoded.video, warnings=(WarningCode.STILL_IMAGE.warn(),))
    facts = media_answer(replace(decoded, video=warned), 0.0, CaptionOptions())
    codes = [each.code for each in facts.joined_with(outcome.answer).warnings]
    assert codes == ["still_image", "empty_caption"]


def test_without_an_embedding_nothing_is_embedded(engine: Engine, clips: list[Path]) -> None:
    still = decode_here(clips[0], engine.info.request).frames
    assert engine.embed([still], ["a dog runs"]) is None


def test_a_batch_answers_as_each_alone_does(engine: Engine, clips: list[Path]) -> None:
    """Different captioners and options in one batch, each answered by its own."""
    videos = [decode_here(clip, engine.info.request).footage for clip in clips]
    options = [
        CaptionOptions(captioner="stats"),
        CaptionOptions(captioner="other", beam_size=2, max_length=5),
        CaptionOptions(captioner="stats"),
    ]
    heard: list[str] = []

    def hear(stage: Stage, share: float, text: str = "") -> None:
        heard.extend([text] if text else [])

    together = engine.describe_and_caption(videos, options, hear)
    assert heard == []
    for video, wanted, answer in zip(videos, options, together, strict=True):
        (alone,) = engine.describe_and_caption([video], [wanted], hear)
        assert isinstance(answer, EngineAnswer)
        assert isinstance(alone, EngineAnswer)
        assert answer.answer.caption == alone.answer.caption
        assert scores(answer) == pytest.approx(scores(alone), abs=1e-2)
        assert answer.answer.model is not None
        assert answer.answer.model.captioner == wanted.captioner
        assert features_of(answer)["grid"]["network"] == "efficientnet-lite2"
    assert heard  # of videos alone


@pytest.fixture(scope="module")
def shipped(root: Path) -> Engine:
    """The captioners of the checkout."""
    return Engine(Settings(weights=root / "weights", data=root / "data", device="cpu"))


def numbers(document: str | None) -> list[float]:
    """Every number of an attention document, in order."""
    found: list[float] = []

    def walk(part: Any) -> None:
        if isinstance(part, dict | list):
            for each in part.values() if isinstance(part, dict) else part:
                walk(each)
        elif isinstance(part, float):
            found.append(part)

    walk(json.loads(document or "[]"))
    return found


def test_an_answer_does_not_depend_on_who_shared_the_batch(shipped: Engine, clips: list[Path]) -> None:
    """Captioners, lengths and options of all kinds, each of them twice."""
    wishes = [
        CaptionOptions(captioner="stats"),
        CaptionOptions(captioner="stats", num_captions=3, segments="none"),
        CaptionOptions(captioner="g2l", beam_size=2, max_length=6),
        CaptionOptions(captioner="dual_afr"),
        CaptionOptions(captioner="refocus", attention=False),
        CaptionOptions(captioner="temporal", beam_size=1, length_penalty=0.0),
        CaptionOptions(captioner="fusion", members=("stats", "spatial")),
        CaptionOptions(captioner="ensemble", members=("stats", "g2l")),
        CaptionOptions(captioner="stats", method="sample", seed=7, num_captions=3),
    ]
    jobs = [(clips[place % 3], wish) for place, wish in enumerate([*wishes, *reversed(wishes)])]
    videos = [decode_here(clip, shipped.info.request_for(wish.choice)).footage for clip, wish in jobs]
    options = [wish for _, wish in jobs]
    together = shipped.describe_and_caption(videos, options, ignore_progress)
    for video, wish, shared in zip(videos, options, together, strict=True):
        (alone,) = shipped.describe_and_caption([video], [wish], ignore_progress)
        assert isinstance(shared, EngineAnswer)
        assert isinstance(alone, EngineAnswer)
        said = [[each.text for each in found.answer.captions or []] for found in (shared, alone)]
        assert said[0] == said[1]
        logprobs = [
            [word.logprob for each in found.answer.captions or [] for word in each.words]
            for found in (shared, alone)
        ]
        assert logprobs[0] == pytest.approx(logprobs[1], abs=TOLD)
        assert numbers(shared.attention) == pytest.approx(numbers(alone.attention), abs=TOLD)
        assert shared.answer.model is not None
        assert shared.answer.model.options == wish.model_dump()
        assert (shared.attention is None) == (not wish.attention)


def test_what_is_drawn_for_a_video_follows_from_its_seed_alone(engine: Engine, clips: list[Path]) -> None:
    videos = [decode_here(clip, engine.info.request).footage for clip in clips]
    options = CaptionOptions(captioner="stats", method="sample", seed=7, num_captions=3)

    def drawn(*places: int) -> list[list[str]]:
        found = engine.describe_and_caption(
            [videos[i] for i in places], [options] * len(places), ignore_progress
        )
        answers = [each.answer for each in found if isinstance(each, EngineAnswer)]
        return [[caption.text for caption in answer.captions or []] for answer in answers]

    together = drawn(0, 1, 2)
    assert [drawn(place)[0] for place in range(3)] == together
    assert drawn(2, 0) == [together[2], together[0]]
    other = options.model_copy(update={"seed": 8})
    (answer,) = engine.describe_and_caption([videos[1]], [other], ignore_progress)
    assert isinstance(answer, EngineAnswer)
    assert [caption.text for caption in answer.answer.captions or []] != together[1]


def test_an_unknown_captioner_is_told_by_name(engine: Engine, clips: list[Path]) -> None:
    video = decode_here(clips[0], engine.info.request).footage
    options = [of("nobody"), of("stats")]
    first, second = engine.describe_and_caption([video, video], options, ignore_progress)
    assert isinstance(first, CaptionerUnknown)
    assert "other, stats" in str(first)
    assert isinstance(second, EngineAnswer)


def test_an_engine_chooses_nobody(engine: Engine, clips: list[Path]) -> None:
    """Who writes has been chosen before: by the API, or by ``resolve`` where the record has no choice."""
    video = decode_here(clips[0], engine.info.request).footage
    (answer,) = engine.describe_and_caption([video], [CaptionOptions()], ignore_progress)
    assert isinstance(answer, CaptionerUnknown)
    assert engine.info.resolve(CaptionOptions()) == of("stats")
    assert engine.info.resolve(of("nobody")) == of("nobody")
    ensemble = engine.info.resolve(of("ensemble"))
    assert ensemble.members == ("stats", "other")
    assert engine.info.resolve(ensemble) is ensemble


def test_compiling_is_no_part_of_the_seconds_that_are_told(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, spent = [0.0], iter([60.0, 2.0])
    monkeypatch.setattr("app.pipeline.engine.time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(engine, "describe_and_caption", lambda *_: now.__setitem__(0, now[0] + next(spent)))
    assert engine.measure("other") == 2.0


def test_warming_up_tells_what_there_is(engine: Engine) -> None:
    info = engine.warm_up()
    assert [captioner.name for captioner in info.captioners] == ["other", "stats", "ensemble"]
    assert sorted(info.unmeasured) == ["ensemble", "other", "stats"], "the start waits for no measuring"
    for name in info.unmeasured:
        info = info.measured(name, engine.measure(name))
    assert all(captioner.seconds for captioner in info.captioners)
    assert info.unmeasured == ()
    assert info.captioners[0].weights_sha256 != info.captioners[1].weights_sha256


def test_no_captioner_no_engine(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(EngineStartFailed, match="no captioner"):
        Engine(settings.model_copy(update={"weights": tmp_path}))


# ---- what each captioner is fed ----


@pytest.fixture(scope="module")
def mixed(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """A captioner that looks at pictures, and one that looks at motion."""
    weights = tmp_path_factory.mktemp("mixed")
    write_captioner(weights, "pictures")
    write_captioner(weights, "motion", diet=motion())
    return Engine(Settings(weights=weights, data=root / "data", device="cpu"))


def test_a_request_runs_the_extractors_of_its_own_captioner(
    mixed: Engine, clips: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, int]] = []

    for kind in (WindowExtractor, EfficientNetLite2):
        whole = kind.extract

        def extract(
            extractor: Any, videos: Sequence[Frames], whole: Callable[..., Any] = whole
        ) -> list[dict[str, Stream]]:
            ran.append((extractor.name, len(videos)))
            found: list[dict[str, Stream]] = whole(extractor, videos)
            return found

        monkeypatch.setattr(kind, "extract", extract)
    names = ["pictures", "motion", "pictures", "nobody"]
    videos = [decode_here(clips[1], mixed.info.request_for(of(name).choice)).footage for name in names]
    options = [CaptionOptions(captioner=name) for name in names]
    answers = mixed.describe_and_caption(videos, options, ignore_progress)
    assert ran == [("efficientnet-lite2", 2), ("i3d_rgb", 1)]
    assert isinstance(answers[3], CaptionerUnknown)
    features = [features_of(answer) for answer in answers[:3] if isinstance(answer, EngineAnswer)]
    assert [list(each) for each in features] == [["grid"], ["i3d_rgb_grid"], ["grid"]]
    assert features[0]["grid"]["sampling"] == "8 frames, each from the middle of an equal part"
    assert "16" in features[1]["i3d_rgb_grid"]["sampling"]


def test_a_captioner_is_decoded_the_frames_that_it_needs(mixed: Engine, clips: list[Path]) -> None:
    """Two seconds at ten frames a second, of which I3D wants 25: every frame, in windows of 16 instants."""
    assert len(decode_here(clips[1], mixed.info.request_for(of("pictures").choice)).frames) == 8
    with Decoder() as decoder:
        frames = decoder.decode(clips[1], mixed.info.request_for(of("motion").choice)).frames
    assert len(frames) == 20
    assert frames.rate == pytest.approx(10.0)
    assert mixed.info.request_for(of("nobody").choice) == mixed.info.request


def test_an_engine_tells_what_each_captioner_is_decoded(mixed: Engine) -> None:
    info = mixed.warm_up()
    assert info.request_for(of("motion").choice).windows[0].stack_size == 16
    assert info.request_for(of("pictures").choice).sampling == Sampling(count=8)
    assert info.request_for(of("nobody").choice) == info.request


def test_a_stream_set_asked_for_by_name_leaves_out_who_eats_something_else(
    mixed: Engine, settings: Settings
) -> None:
    folder = settings.weights.parent
    write_captioner(folder / "both", "pictures")
    write_captioner(folder / "both", "motion", diet=motion())
    chosen = settings.model_copy(update={"weights": folder / "both", "streams": "stats"})
    assert [info.name for info in Engine(chosen).warm_up().captioners] == ["motion"]
    none = settings.model_copy(update={"streams": "stats"})
    with pytest.raises(EngineStartFailed) as refused:
        Engine(none)
    assert "No captioner takes the stream set stats" in str(refused.value)
    assert "stats was trained on grid (efficientnet-lite2 / 9656183eaeaf / " in str(refused.value)
    assert "makes i3d_rgb_grid, and not grid" in str(refused.value)


def test_a_captioner_whose_networks_lack_their_weights_is_left_out(
    mixed: Engine, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an installed package, which cannot ask for those of I3D."""

    def find(name: str, **named: Any) -> Any:
        if name == "i3d_rgb":
            raise WeightsMissing("i3d_rgb is not here.")
        return find_weights(name, **named)

    find_weights = load.find_weights
    monkeypatch.setattr(load, "find_weights", find)
    folder = settings.weights.parent / "lacking"
    write_captioner(folder, "pictures")
    write_captioner(folder, "motion", diet=motion())
    lacking = settings.model_copy(update={"weights": folder})
    assert [info.name for info in Engine(lacking).info.captioners] == ["pictures"]
    with pytest.raises(EngineStartFailed, match="motion are missing"):
        Engine(lacking.model_copy(update={"captioners": ("motion",)}))


def test_other_weights_than_it_was_trained_on_keep_a_captioner_from_being_served(
    settings: Settings, tmp_path: Path
) -> None:
    older = replace(demo(), spec=replace(demo().spec, weights_sha256="0" * 64))
    write_captioner(tmp_path, diet=older)
    with pytest.raises(StreamMismatch, match=r"9656183eaeaf .* trained on efficientnet-lite2 / 000000000000"):
        Engine(settings.model_copy(update={"weights": tmp_path}))


@pytest.mark.parametrize("captioner", ["stats", "other"])
def test_kept_streams_answer_bit_by_bit_as_frames_do(
    engine: Engine, clips: list[Path], captioner: str
) -> None:
    """Also those of another captioner that shares its streams."""
    video = decode_here(clips[1], engine.info.request).footage
    video = replace(video, pixels=put_in_bars(video.pixels, 64, 128))
    (first,) = engine.describe_and_caption([video], [of("stats")], ignore_progress)
    assert isinstance(first, EngineAnswer)
    assert first.pack_streams is not None
    packed = first.pack_streams()
    assert packed is not None
    options = CaptionOptions(captioner=captioner, num_captions=3)
    (from_frames,) = engine.describe_and_caption([video], [options], ignore_progress)
    (from_streams,) = engine.describe_and_caption([packed], [options], ignore_progress)
    assert isinstance(from_frames, EngineAnswer)
    assert isinstance(from_streams, EngineAnswer)
    without_times = {"timings": None}
    assert from_streams.answer.model_copy(update=without_times) == from_frames.answer.model_copy(
        update=without_times
    )
    assert from_streams.attention == from_frames.attention
    assert from_streams.pack_streams is not None
    assert from_streams.pack_streams() == packed


def test_captioners_with_the_same_streams_have_one_basis(engine: Engine) -> None:
    info = engine.info
    stats, other = (info.feature_basis(of(name)) for name in ("stats", "other"))
    assert stats is not None
    assert stats == other == info.feature_basis(CaptionOptions(captioner="ensemble", members="stats,other"))
    assert stats != info.feature_basis(CaptionOptions(captioner="stats", bars="keep"))
    assert info.feature_basis(of("nobody")) is None
    assert info.feature_basis(CaptionOptions()) is None


@pytest.mark.parametrize("changed", ["device", "request", "feature_identities"])
def test_whatever_decides_the_streams_changes_the_basis(engine: Engine, changed: str) -> None:
    info, choice = engine.info, CaptionerChoice("stats")
    others: dict[str, Any] = {
        "device": {"device": "cuda"},
        "request": {"requests": {"stats": replace(info.request_for(choice), short_side=128)}},
        "feature_identities": {"feature_identities": {"stats": "0" * 32}},
    }
    assert replace(info, **others[changed]).feature_basis(of("stats")) != info.feature_basis(of("stats"))


@pytest.mark.parametrize("bars", ["leave_out", "keep"])
def test_bars_are_left_out_for_the_captioner_and_maps_are_of_the_whole_frame(
    settings: Settings, engine: Engine, tmp_path: Path, bars: Literal["leave_out", "keep"]
) -> None:
    def in_wide_frame(index: int, width: int, height: int) -> Picture:
        return np.asarray(put_in_bars(quarters(index, 90, height)[None], height, width)[0])

    wide = write_video(tmp_path / "wide.mp4", frames=20, width=284, height=160, painter=in_wide_frame)
    (outcome,) = caption_videos([wide], CaptionOptions(bars=bars, explanation="both"), settings, engine)
    assert outcome.answer.media is not None
    picture = (0.0, 0.0, 1.0, 1.0) if bars == "keep" else (97 / 284, 0.0, 187 / 284, 1.0)
    assert (outcome.answer.media.picture or (0, 0, 1, 1)) == pytest.approx(picture, abs=0.01)
    assert ("bars_left_out" in [each.code for each in outcome.answer.warnings]) == (bars == "leave_out")
    assert outcome.attention is not None
    document = AttentionDocument.model_validate_json(outcome.attention)
    for spatial in (document.spatial, document.shown.spatial):
        assert isinstance(spatial, GridAttention)
        rows, columns = spatial.edges()
        view = (columns[0], rows[0], columns[-1], rows[-1])
        assert view == pytest.approx(picture, abs=0.01)
        assert view == pytest.approx(spatial.view, abs=1e-4)


def test_what_lies_in_bars_is_captioned_as_it_is_alone(engine: Engine) -> None:
    alone = moving(20, 160, 90)
    wide = replace(alone, pixels=put_in_bars(alone.pixels, 160, 284))
    (of_alone, of_wide) = engine.describe_and_caption([alone, wide], [of("stats")] * 2, ignore_progress)
    assert isinstance(of_alone, EngineAnswer)
    assert isinstance(of_wide, EngineAnswer)
    assert of_wide.answer.caption == of_alone.answer.caption
    assert scores(of_wide) == pytest.approx(scores(of_alone), abs=1e-3)
