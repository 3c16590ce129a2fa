"""A pretrained captioner beside the papers': listed, loaded, asked for by name, and its answer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from app.cli.captioners import try_captioner
from app.cli.videos.local_captions import caption_whole
from app.cli.videos.video_options import CaptionOutput, FilmCut
from app.errors import EngineStartFailed, InvalidMembers, JobFailure, PromptNotTaken, UsageError
from app.extract.inputs import InputVideo
from app.jobs.captioner_choice import CaptionerChoices
from app.jobs.captioner_info import CaptionerInfo
from app.jobs.options import CaptionerChoice, CaptionOptions
from app.pipeline.caption_files import caption_videos
from app.pipeline.engine import Engine
from app.pipeline.engine_protocol import ignore_progress
from app.pipeline.installed_captioners import captioner_choices, pretrained_captioners
from app.pipeline.loaded_captioners import CaptionInputs, FramePlan
from app.settings import Settings
from extractors.features import Frames
from extractors.media.decode import decode_here
from models.caption import AttentionDocument
from models.pretrained.installed import InstalledCaptioners, PretrainedCard
from models.pretrained.load import load_pretrained_captioner
from tests.media import write_video
from tests.models.parts import list_candidates
from tests.models.pretrained.tiny_folders import random_video, write_blip, write_git
from tests.models.pretrained.tiny_vlm import write_smolvlm

SIDE = 48
#: There is none of ours where one captioner alone is loaded.
ENSEMBLE = CaptionerInfo(name="ensemble", weights_sha256="", features={}, kind="ensemble")


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    data = tmp_path_factory.mktemp("data")
    source = tmp_path_factory.mktemp("models") / "tiny-git"
    source.mkdir()
    write_git(source)
    settings = Settings(data=data, captioners="stats,tiny-git")
    pretrained_captioners(settings).add(str(source), try_captioner)
    return settings


@pytest.fixture(scope="module")
def engine(settings: Settings) -> Engine:
    return Engine(settings)


def video(seed: int) -> Frames:
    return random_video(8, 256, 256, seed=seed)


def test_it_is_listed_with_what_it_needs(settings: Settings, engine: Engine) -> None:
    infos = {info.name: info for info in engine.info.captioners}
    assert set(infos) == {"stats", "tiny-git"} | ({"fusion", "ensemble"} & set(infos))
    git = infos["tiny-git"]
    assert (git.kind, git.features) == ("git", {})
    assert git.memory is not None
    assert git.memory > 1000
    assert engine.info.default == "stats"
    assert "tiny-git" in captioner_choices(settings).alone


def test_both_kinds_write_in_one_batch_as_they_do_alone(engine: Engine) -> None:
    """Who shared the batch changes nothing: a pretrained one reads frames, the other streams of the same."""
    options = [CaptionOptions(captioner=name, beam_size=3) for name in ("tiny-git", "stats", "tiny-git")]
    videos = [video(seed) for seed in range(3)]
    together = engine.describe_and_caption(videos, options, ignore_progress)
    for place, answer in enumerate(together):
        (alone,) = engine.describe_and_caption([videos[place]], [options[place]], ignore_progress)
        assert not isinstance(answer, JobFailure)
        assert not isinstance(alone, JobFailure)
        assert answer.answer.caption == alone.answer.caption
        model = answer.answer.model
        assert model is not None
        assert model.captioner == options[place].captioner


def test_its_answer_has_words_attention_and_provenance(engine: Engine) -> None:
    options = CaptionOptions(captioner="tiny-git", num_captions=2)
    (found,) = engine.describe_and_caption([video(1)], [options], ignore_progress)
    assert not isinstance(found, JobFailure)
    captions, model = found.answer.captions, found.answer.model
    assert captions is not None
    assert model is not None
    assert len(captions) == 2
    assert captions[0].score >= captions[1].score
    assert all(word.logprob <= 0 for word in captions[0].words)
    assert found.attention is not None
    attention = json.loads(found.attention)
    assert len(attention["words"]) == len(captions[0].words)
    assert np.allclose([sum(row) for row in attention["temporal"] if row], 1, atol=1e-3)
    assert model.features == {
        "frames": {
            "network": "GitForCausalLM",
            "sampling": "6 frames, each from the middle of an equal part",
        }
    }
    assert len(str(model.weights_sha256)) == 64


def test_frames_at_a_rate_are_told_as_such(tmp_path: Path) -> None:
    captioner = load_pretrained_captioner(write_smolvlm(tmp_path / "tiny-smolvlm"))
    shown = FramePlan(CaptionerChoice("tiny-smolvlm"), captioner).provenance(CaptionInputs(video(0), {}))
    assert shown["frames"]["sampling"] == "1 frames a second, at most 8"


def test_warming_up_measures_it(engine: Engine) -> None:
    assert engine.warm_up().captioners
    assert engine.measure("tiny-git") > 0


def test_a_damaged_one_is_left_out_and_the_others_serve(settings: Settings) -> None:
    folder = pretrained_captioners(settings).path("tiny-git")
    weights = (folder / "model.safetensors").read_bytes()
    try:
        (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])
        names = [info.name for info in Engine(settings).info.captioners]
        assert "stats" in names
        assert "tiny-git" not in names
    finally:
        (folder / "model.safetensors").write_bytes(weights)


def test_a_name_that_is_not_installed_stops_the_start(settings: Settings) -> None:
    with pytest.raises(EngineStartFailed, match=r"names nobody, and installed are only: .*tiny-git"):
        Engine(settings.model_copy(update={"captioners": ("nobody",)}))


def test_cards_are_read_once_at_the_start(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    of_name = InstalledCaptioners.card

    def card(installed: InstalledCaptioners, name: str) -> PretrainedCard:
        read.append(name)
        return of_name(installed, name)

    monkeypatch.setattr(InstalledCaptioners, "card", card)
    Engine(settings.model_copy(update={"captioners": ("tiny-git",)}))
    assert read == ["tiny-git"]


# ---- members of a fusion ----


def fusion(members: str | None = None, captioner: str = "fusion") -> CaptionOptions:
    return CaptionOptions.model_validate({"captioner": captioner, "members": members, "beam_size": 3})


def test_fusion_has_it_where_it_is_named(engine: Engine, tmp_path: Path) -> None:
    """By default the papers' alone; named, both write from one decode, as each would from its own."""
    assert engine.info.resolve(fusion()).members == ("stats",)
    options = engine.info.resolve(fusion("stats,tiny-git"))
    clip = write_video(tmp_path / "clip.mp4", frames=40)
    joint = decode_here(clip, engine.info.request_for(options.choice))
    (found,) = engine.describe_and_caption([joint.footage], [options], ignore_progress)
    assert not isinstance(found, JobFailure)
    assert found.attention is not None
    candidates = list_candidates(AttentionDocument.model_validate_json(found.attention))
    assert {each.captioner for each in candidates} == {"stats", "tiny-git"}
    assert found.answer.caption == candidates[0].text
    for name in ("stats", "tiny-git"):
        alone = CaptionOptions(captioner=name, beam_size=3, num_captions=3)
        own = decode_here(clip, engine.info.request_for(alone.choice)).footage
        (answer,) = engine.describe_and_caption([own], [alone], ignore_progress)
        assert not isinstance(answer, JobFailure)
        written = {each.text: each.score for each in answer.answer.captions or []}
        competing = {each.text: each.score for each in candidates if each.captioner == name}
        assert competing.keys() <= written.keys()
        assert competing == pytest.approx({text: written[text] for text in competing}, abs=1e-3)


def test_a_fusion_s_answer_names_its_members_and_what_each_saw(engine: Engine) -> None:
    options = fusion("tiny-git,stats")
    (found,) = engine.describe_and_caption([video(3)], [options], ignore_progress)
    assert not isinstance(found, JobFailure)
    model = found.answer.model
    assert model is not None
    assert model.members is not None
    known = {info.name: info.weights_sha256 for info in engine.info.captioners}
    assert model.members == {name: known[name] for name in ("tiny-git", "stats")}
    assert model.features is not None
    assert model.features["frames/tiny-git"]["network"] == "GitForCausalLM"
    assert len(model.features) > 1


def test_a_pretrained_member_alone_is_fed_with_what_the_embedding_reads(engine: Engine) -> None:
    (found,) = engine.describe_and_caption([video(4)], [fusion("tiny-git")], ignore_progress)
    assert not isinstance(found, JobFailure)
    assert found.attention is not None
    candidates = list_candidates(AttentionDocument.model_validate_json(found.attention))
    assert {each.captioner for each in candidates} == {"tiny-git"}


@pytest.mark.parametrize("members", ["stats,tiny-git", "tiny-git,stats", "tiny-git"])
def test_an_ensemble_refuses_it_by_name(engine: Engine, members: str) -> None:
    choices = CaptionerChoices([*engine.info.captioners, ENSEMBLE])
    with pytest.raises(InvalidMembers, match="tiny-git is a pretrained captioner"):
        choices.resolve(fusion(members, "ensemble"))


def test_the_command_line_names_it_too(settings: Settings, engine: Engine, tmp_path: Path) -> None:
    clip = write_video(tmp_path / "clip.mp4", frames=20)
    outcomes = list(caption_videos([clip], fusion("stats,tiny-git"), settings, engine))
    assert [outcome.error for outcome in outcomes] == [None]
    settings = settings.model_copy(update={"captioners": ("stats", "g2l", "tiny-git")})
    with pytest.raises(UsageError, match=r"tiny-git is a pretrained captioner .* Choose members"):
        caption_whole(
            [InputVideo(clip, "clip")],
            fusion("stats,tiny-git", "ensemble"),
            FilmCut("none"),
            CaptionOutput(),
            settings,
        )


def test_a_prompt_reaches_the_captioner_that_takes_one(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path / "data", captioners="tiny-blip,tiny-git")
    for name, write in (("tiny-blip", write_blip), ("tiny-git", write_git)):
        pretrained_captioners(settings).add(str(write(tmp_path / name)), try_captioner)
    engine = Engine(settings)
    assert engine.info.resolve(CaptionOptions(captioner="tiny-blip", prompt="a dog")).prompt == "a dog"
    assert {info.name: info.takes_prompt for info in engine.info.captioners}["tiny-blip"]
    options = [
        CaptionOptions(captioner="tiny-blip"),
        CaptionOptions(captioner="tiny-blip", prompt="a dog"),
        CaptionOptions(captioner="tiny-blip", prompt="a [SEP]"),
        CaptionOptions(captioner="tiny-git", prompt="a dog"),
    ]
    plain, asked, marked, git = engine.describe_and_caption([video(1)] * 4, options, ignore_progress)
    assert not isinstance(plain, JobFailure)
    assert not isinstance(asked, JobFailure)
    assert plain.answer.captions != asked.answer.captions
    assert asked.answer.model is not None
    assert (asked.answer.model.options or {})["prompt"] == "a dog"
    assert isinstance(marked, PromptNotTaken)
    assert "[SEP]" in str(marked)
    assert isinstance(git, PromptNotTaken)
    assert "tiny-blip" in str(git)


def test_the_command_line_refuses_a_prompt_before_any_model_is_loaded(
    settings: Settings, tmp_path: Path
) -> None:
    options = CaptionOptions(captioner="tiny-git", prompt="What is seen?")
    clip = tmp_path / "clip.mp4"
    clip.touch()
    with pytest.raises(UsageError, match="tiny-git takes no prompt"):
        caption_whole([InputVideo(clip, "clip")], options, FilmCut("none"), CaptionOutput(), settings)
