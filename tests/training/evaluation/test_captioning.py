"""From pictures, frames and clips to scored captions with the demo checkpoint, through the path of users."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from app.cli.captioners import try_captioner
from app.cli.main import cli as app
from extractors.catalog.tuned_pair import TunedPair
from extractors.extractor import ExtractorOptions
from extractors.features import Frames
from extractors.media.decode import decode_here
from models.checkpoint import WEIGHTS, load_captioner, load_checkpoint, save_checkpoint
from models.combining.caption_writers import SingleWriter
from models.combining.members import WrongMembers
from models.decoding.decode import DecodingOptions
from models.feature_sources.feature_source import FeatureSource
from models.feature_sources.stream_checks import StreamMismatch
from models.pretrained.installed import InstalledCaptioners
from models.pretrained.load import AnyPretrainedCaptioner, load_pretrained_captioner
from tests.media import write_video
from tests.models.pretrained.tiny_folders import write_git
from training.batches.archives import CorpusError
from training.evaluation.caption_files import read_results
from training.evaluation.captioning import CaptioningRun, stack_frames
from training.evaluation.evaluated_captioner import (
    WrongSearch,
    load_evaluated_captioner,
    with_branches,
)
from training.evaluation.report import Evaluation, EvaluationSource, evaluate_captioner, record_scores
from training.recipes.demo_recipes import DEMO

PICTURES = {
    "cat": "a cat is looking at the camera",
    "espresso": "a cup of coffee on a plate",
    "tripod": "a man with a camera on a tripod",
}
OPTIONS = DecodingOptions(beam_size=3, max_length=12, attention=False)


@pytest.fixture(scope="module")
def folder(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for name in PICTURES:
        shutil.copy(root / f"tests/extractors/pictures/{name}.jpg", folder)
    images = [{"id": name, "file_name": f"{name}.jpg", "split": "val"} for name in PICTURES]
    annotations = [{"image_id": name, "caption": text} for name, text in PICTURES.items()]
    write_json(folder / "photos_captions.json", {"images": images, "annotations": annotations})
    return folder


@pytest.fixture(scope="module")
def evaluator() -> CaptioningRun:
    return CaptioningRun(SingleWriter(load_captioner("stats")), TunedPair(ExtractorOptions()), OPTIONS)


@pytest.fixture(scope="module")
def evaluation(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    """What ``reelword evaluate stats --shuffled`` computes; METEOR's Java starts once for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REELWORD_DATA", str(tmp_path_factory.mktemp("data")))
        source = EvaluationSource(images=folder, captions=folder / "photos_captions.json", split="val")
        return evaluate_captioner(load_evaluated_captioner("stats"), source, OPTIONS, shuffled=True)


def write_json(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document))
    return path


def test_pictures_get_the_captions_that_users_would_get(folder: Path, evaluator: CaptioningRun) -> None:
    found = evaluator.caption_pictures(folder, folder / "photos_captions.json", "val")
    assert found.references == {f"photos/{name}": [text] for name, text in PICTURES.items()}
    assert found.hypotheses.keys() == found.references.keys()
    for name in PICTURES:
        with Image.open(folder / f"{name}.jpg") as image:
            pixels = np.asarray(image.convert("RGB"))
        frames = Frames(pixels[None], np.zeros(1), 1.0)
        assert isinstance(evaluator.writer, SingleWriter)
        [[best]] = evaluator.writer.caption(evaluator.extractor.extract([frames]), OPTIONS)
        assert found.hypotheses[f"photos/{name}"] == best.text
    assert "cat" in found.hypotheses["photos/cat"].split()


def test_a_limit_takes_the_first(folder: Path, evaluator: CaptioningRun) -> None:
    found = evaluator.caption_pictures(folder, folder / "photos_captions.json", "val", limit=2)
    assert list(found.hypotheses) == ["photos/cat", "photos/espresso"]


def test_frames_of_a_video_are_read_in_order(folder: Path, evaluator: CaptioningRun) -> None:
    frames = [{"file_name": f"{name}.jpg"} for name in ("cat", "tripod")]
    document = {
        "videos": [{"id": 1, "split": "val", "frames": frames}],
        "annotations": [{"video_id": 1, "caption": "a cat and a man"}],
    }
    path = write_json(folder / "videos_captions.json", document)
    assert evaluator.caption_pictures(folder, path, "val").hypotheses["videos/1"]


def test_stills_of_differing_sizes_take_the_first_ones() -> None:
    pictures = [np.full((30, 40, 3), 10, np.uint8), np.full((60, 20, 3), 200, np.uint8)]
    frames = stack_frames(pictures)
    assert frames.pixels.shape == (2, 30, 40, 3)
    assert frames.pixels[1].min() == 200
    assert (frames.pts.tolist(), frames.duration) == ([0, 1], 2)


def test_clips_lie_beside_their_list(tmp_path: Path, evaluator: CaptioningRun) -> None:
    write_video(tmp_path / "a.mp4")
    entries = [{"file": "a.mp4", "captions": ["four coloured squares", "squares"]}]
    found = evaluator.caption_clips(write_json(tmp_path / "captions.json", entries), frames=3)
    assert found.references == {"a.mp4": ["four coloured squares", "squares"]}
    assert found.hypotheses["a.mp4"]


def test_another_list_of_clips_is_refused(tmp_path: Path, evaluator: CaptioningRun) -> None:
    with pytest.raises(CorpusError, match=r"no list of"):
        evaluator.caption_clips(write_json(tmp_path / "captions.json", [{"video": "a.mp4"}]))


def test_the_whole_command_scores_and_compares(evaluation: Evaluation) -> None:
    document = evaluation.to_json()
    assert document["n"] == 3
    assert document["metrics"]["cider"] >= 0
    assert document["different"] >= 2
    assert {"cider_gain", "interval"} == document["shuffled"].keys()


def test_a_source_is_pictures_or_clips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REELWORD_DATA", str(tmp_path))
    with pytest.raises(ValueError, match="give images with captions, or clips"):
        evaluate_captioner(load_evaluated_captioner("stats"), EvaluationSource(), OPTIONS)


def test_a_search_is_the_usual_one_but_for_what_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The demo's checkpoints are of before recipes named a search: theirs is the service's."""
    monkeypatch.setenv("REELWORD_DATA", str(tmp_path))
    entry = load_evaluated_captioner("stats")
    usual = DecodingOptions(attention=False)
    assert entry.choose_search({"beam_size": None}) == usual == DEMO.search
    said = {"name_once": False, "length_penalty": "wu_0.9", "group_size": 1, "top_k": None}
    assert entry.choose_search(said) == usual.changed(name_once=False, length_penalty="wu_0.9")
    assert entry.choose_search({"length_penalty": 0.5}).length_penalty == 0.5
    for wrong, sentence in (
        ({"fusion_rule": "relevance"}, "fusion alone ranks"),
        ({"top_k": 5}, "top_k is for drawn words"),
        ({"length_penalty": "long"}, "length_penalty must be a number"),
    ):
        with pytest.raises(WrongSearch, match=sentence):
            entry.choose_search(wrong)


def test_each_branch_can_be_read_alone(folder: Path, evaluator: CaptioningRun) -> None:
    captions = {}
    for branches in ("stats", "st", "ts"):
        one = replace(evaluator, writer=SingleWriter(with_branches(load_captioner("stats"), branches)))
        found = one.caption_pictures(folder, folder / "photos_captions.json", "val")
        captions[branches] = tuple(found.hypotheses.values())
    whole = evaluator.caption_pictures(folder, folder / "photos_captions.json", "val")
    assert captions["stats"] == tuple(whole.hypotheses.values())
    assert len(set(captions.values())) > 1


def test_combined_captioners_are_scored_as_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REELWORD_DATA", str(tmp_path))
    entry = load_evaluated_captioner("ensemble", ["stats", str(WEIGHTS / "stats.safetensors")])
    alike = CaptioningRun(entry.writer, entry.feature_source, OPTIONS, entry.feature_source.request)
    alone = load_evaluated_captioner("stats")
    one = CaptioningRun(alone.writer, alone.feature_source, OPTIONS, alone.feature_source.request)
    captions = folder / "photos_captions.json"
    assert alike.caption_pictures(folder, captions, "val") == one.caption_pictures(folder, captions, "val")


@pytest.mark.parametrize(("name", "members"), [("temporal", None), ("fusion", ["stats", "temporal"])])
def test_i3d_looks_at_single_pictures_whoever_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, members: list[str] | None
) -> None:
    monkeypatch.setenv("REELWORD_DATA", str(tmp_path))
    entry = load_evaluated_captioner(name, members, stills=True)
    assert isinstance(entry.feature_source, FeatureSource)
    (motion,) = (each for each in entry.feature_source.frame_extractors if each.name == "i3d_brief")
    assert (motion.windows.stack_size, motion.windows.most) == (1, 2)


def test_members_without_anything_to_combine_them_are_refused() -> None:
    with pytest.raises(WrongMembers, match="stats is one captioner"):
        load_evaluated_captioner("stats", ["stats"])


@pytest.mark.parametrize(
    ("members", "sentence"),
    [("stats,stats", "stats more than once"), ("stats,,g2l", "none is empty"), ("stats,nobody", "'nobody'")],
)
def test_members_that_cannot_be_meant_are_refused_by_name(members: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        load_evaluated_captioner("ensemble", members.split(","))


@pytest.fixture
def tiny_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AnyPretrainedCaptioner:
    """An installed pretrained captioner called tiny-git, loaded by itself."""
    monkeypatch.setenv("REELWORD_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("training.scores.java._list_installed", list)
    source = tmp_path / "tiny-git"
    source.mkdir()
    write_git(source)
    InstalledCaptioners(tmp_path / "data" / "captioners").add(str(source), try_captioner)
    return load_pretrained_captioner(source)


def test_a_pretrained_captioner_is_scored_as_ours_are(
    tmp_path: Path, tiny_git: AnyPretrainedCaptioner
) -> None:
    """On clips of a list and on a set of videos: captions are those that it writes of a video alone."""
    for name in ("a.mp4", "b.mp4"):
        write_video(tmp_path / name, frames=20 if name == "a.mp4" else 9)
    (tmp_path / "bad.mp4").write_bytes(b"no video")
    texts = ["coloured squares", "squares"]
    clips = write_json(tmp_path / "clips.json", [{"file": f"{n}.mp4", "captions": texts} for n in "ab"])
    write_json(tmp_path / "captions.json", {"a.mp4": texts, "b.mp4": texts, "bad.mp4": texts})
    options = DecodingOptions(attention=False)
    wanted = {}
    for name in ("a.mp4", "b.mp4"):
        frames = decode_here(tmp_path / name, tiny_git.request).footage
        wanted[name] = tiny_git.caption([frames], options)[0][0].text
    out = tmp_path / "out.json"
    for source in (["--clips", str(clips)], ["--data", str(tmp_path)]):
        words = ["evaluate", "tiny-git", *source, "--captions", str(out), "--record", "squares", "--json"]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        assert read_results(out) == wanted
    card = InstalledCaptioners(tmp_path / "data" / "captioners").card("tiny-git")
    assert card.scores["squares"]["n"] == 2


def test_a_fusion_has_pretrained_members_and_an_ensemble_none(
    tmp_path: Path, tiny_git: AnyPretrainedCaptioner
) -> None:
    write_video(tmp_path / "a.mp4", frames=20)
    clips = write_json(tmp_path / "clips.json", [{"file": "a.mp4", "captions": ["squares"]}])
    entry = load_evaluated_captioner("fusion", ["stats", "tiny-git"])
    assert [each.name for each in entry.pretrained] == ["tiny-git"]
    result = evaluate_captioner(entry, EvaluationSource(clips=clips), OPTIONS)
    assert result.captioned.hypotheses["a.mp4"]
    with pytest.raises(WrongMembers, match="tiny-git looks at frames"):
        load_evaluated_captioner("ensemble", ["stats", "tiny-git"])
    with pytest.raises(StreamMismatch, match="tiny-git looks at frames itself"):
        load_evaluated_captioner("tiny-git", streams="demo")


def test_scores_are_kept_in_the_checkpoint_and_nothing_else_changes(
    tmp_path: Path, evaluation: Evaluation
) -> None:
    copy = tmp_path / "stats.safetensors"
    shutil.copy(WEIGHTS / "stats.safetensors", copy)
    before = load_checkpoint(copy)
    record_scores(str(copy), "photos", evaluation.report)
    after = load_checkpoint(copy)
    assert after.card.scores["photos"]["n"] == 3
    assert {**after.card.scores, "photos": None} == {**before.card.scores, "photos": None}
    assert after.card.training == before.card.training
    ours, theirs = before.captioner.state_dict(), after.captioner.state_dict()
    assert all(bool((value == theirs[name]).all()) for name, value in ours.items())


def test_a_checkpoint_of_another_network_is_not_scored(
    folder: Path, tmp_path: Path, evaluator: CaptioningRun
) -> None:
    stats = load_captioner("stats")
    streams = {name: replace(spec, network="resnet") for name, spec in stats.card.streams.items()}
    other = replace(stats.card, streams=streams)
    path = tmp_path / "other.safetensors"
    save_checkpoint(path, stats.captioner, other)
    wrong = replace(evaluator, writer=SingleWriter(load_checkpoint(path)))
    with pytest.raises(StreamMismatch, match="resnet"):
        wrong.caption_pictures(folder, folder / "photos_captions.json", "val")
