"""One file holds all of a captioner; a file that does not is refused with what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from extractors.features import StreamSpec
from extractors.files import atomic_write
from models.caption import BoxAttention, GridAttention, join_words
from models.captioners.registry import UnknownCaptioner
from models.captioners.stats.network import STaTS
from models.checkpoint import (
    Card,
    CheckpointError,
    load_captioner,
    load_checkpoint,
    read_card,
    save_checkpoint,
)
from models.combining.caption_writers import SingleWriter
from models.decoding.decode import DecodingOptions
from models.feature_sources.stream_checks import StreamMismatch
from tests.models.tiny import BOXES, GRID, SPEC, stats_config, tiny_stats, videos

CARD = Card(
    captioner="stats",
    streams={"grid": SPEC},
    scores={"test": {"cider": 50.5, "n": 1000}},
    training={"recipe": {"name": "demo", "seed": 1}, "ids": ["coco/1", "flickr8k/2"]},
)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "stats.safetensors"
    save_checkpoint(path, tiny_stats(stats_config(tie_words=True)), CARD)
    return path


def rewrite(path: Path, drop: str | None = None, **metadata: str) -> None:
    """The same file with other metadata, or without one tensor."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        kept = file.metadata()
    tensors = {name: value for name, value in load_file(path).items() if name != drop}
    save_file(tensors, path, kept | metadata)


def test_all_comes_back(saved: Path) -> None:
    original = tiny_stats(stats_config(tie_words=True))
    found = load_checkpoint(saved)
    assert found.card == CARD
    assert found.captioner.config == original.config
    assert found.captioner.vocabulary.words == original.vocabulary.words
    assert not found.captioner.training
    state = found.captioner.state_dict()
    assert state.keys() == original.state_dict().keys()
    for name, value in original.state_dict().items():
        assert state[name].dtype == torch.float32
        assert torch.equal(state[name], value.half().float())
    assert read_card(saved) == CARD


def test_tied_words_are_stored_once_and_tied_again(saved: Path) -> None:
    stored = load_file(saved)
    assert all(value.dtype == torch.float16 for value in stored.values())
    assert "output.weight" not in stored or "word_embedding.weight" not in stored
    captioner = load_checkpoint(saved).captioner
    assert isinstance(captioner, STaTS)
    assert captioner.output.weight is captioner.word_embedding.weight
    assert captioner.word_embedding.weight.abs().sum() > 0


def test_the_digest_is_the_files_own(saved: Path) -> None:
    import hashlib

    assert load_checkpoint(saved).sha256 == hashlib.sha256(saved.read_bytes()).hexdigest()


def test_captions_are_those_of_the_captioner_that_was_saved(saved: Path) -> None:
    options = DecodingOptions(beam_size=3, max_length=6)
    features = [{"grid": video["grid"]} for video in videos()]
    halved = tiny_stats(stats_config(tie_words=True)).half().float()
    ours = SingleWriter(replace(load_checkpoint(saved), captioner=halved.eval())).caption(features, options)
    loaded = SingleWriter(load_captioner(str(saved))).caption(features, options)
    assert [c[0].text for c in ours] == [c[0].text for c in loaded]


def test_a_failed_write_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    @contextmanager
    def full_disk(path: Path) -> Iterator[Path]:
        with atomic_write(path) as unfinished:
            yield unfinished
            unfinished.write_bytes(b"half")
            raise OSError("no space left on device")

    monkeypatch.setattr("models.checkpoint.atomic_write", full_disk)
    with pytest.raises(OSError, match="no space"):
        save_checkpoint(saved, tiny_stats(), CARD)
    assert saved.read_bytes() == before


def test_a_write_replaces_the_file_and_never_rewrites_it(saved: Path) -> None:
    """Whoever has the old file open goes on reading the old one."""
    before, held = saved.read_bytes(), saved.with_name("held")
    held.hardlink_to(saved)
    save_checkpoint(saved, tiny_stats(seed=5), CARD)
    assert held.read_bytes() == before
    assert saved.read_bytes() != before
    assert sorted(path.name for path in saved.parent.iterdir()) == ["held", "stats.safetensors"]


@pytest.mark.parametrize("share", [0, 0.001, 0.5, 0.99])
def test_a_cut_file_is_refused_with_a_remedy(saved: Path, share: float) -> None:
    data = saved.read_bytes()
    saved.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(CheckpointError, match=r"stats\.safetensors.*fetch it again"):
        load_checkpoint(saved)


def test_a_missing_file_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"none\.safetensors.*fetch it again"):
        load_checkpoint(tmp_path / "none.safetensors")


def test_a_file_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    save_file({"weight": torch.ones(2)}, path)
    with pytest.raises(CheckpointError, match=r"no Reelword checkpoint; train one"):
        load_checkpoint(path)


@pytest.mark.parametrize("key", ["captioner", "config", "vocabulary", "streams", "training"])
def test_damaged_metadata_is_refused(saved: Path, key: str) -> None:
    rewrite(saved, **{key: "a\na" if key == "vocabulary" else "{nonsense"})
    with pytest.raises(CheckpointError, match=r"stats\.safetensors"):
        load_checkpoint(saved)


def test_a_missing_tensor_is_named(saved: Path) -> None:
    rewrite(saved, drop="query.weight")
    with pytest.raises(CheckpointError, match=r"query\.weight"):
        load_checkpoint(saved)


def test_weights_of_other_widths_are_refused(saved: Path) -> None:
    rewrite(saved, config=stats_config(tie_words=True, hidden=11).model_dump_json())
    with pytest.raises(CheckpointError, match="does not fit"):
        load_checkpoint(saved)


def test_a_mismatched_stream_prints_both(saved: Path) -> None:
    checkpoint = load_checkpoint(saved)
    other = StreamSpec("resnet", "1" * 64, "crop")
    features = {"grid": replace(videos()[0]["grid"], spec=other)}
    with pytest.raises(StreamMismatch) as failure:
        SingleWriter(checkpoint).caption([features], DecodingOptions())
    for part in ("'grid'", "resnet", "111111111111", "crop", "random", "000000000000", "none"):
        assert part in str(failure.value)


def test_engine_and_precision_may_differ(saved: Path) -> None:
    other = replace(SPEC, engine="torch", precision="fp32", sampling="8 frames")
    features = {"grid": replace(videos()[0]["grid"], spec=other)}
    assert SingleWriter(load_checkpoint(saved)).caption([features], DecodingOptions(max_length=3))[0]


def test_a_missing_stream_names_what_there_is(saved: Path) -> None:
    with pytest.raises(StreamMismatch, match=r"needs the stream 'grid'; given: boxes"):
        SingleWriter(load_checkpoint(saved)).caption([{"boxes": videos()[0]["boxes"]}], DecodingOptions())


def test_an_unknown_captioner_lists_the_known(saved: Path) -> None:
    with pytest.raises(UnknownCaptioner, match=r"'fusion'.*there are: stats"):
        load_captioner("fusion", weights=saved.parent)
    with pytest.raises(UnknownCaptioner, match="train one"):
        load_captioner("stats", weights=saved.parent / "empty")
    with pytest.raises(UnknownCaptioner, match=r"no file runs/best.safetensors;"):
        load_captioner("runs/best.safetensors", weights=saved.parent)


def test_captions_carry_attention_without_the_batchs_padding(saved: Path) -> None:
    features = [{"grid": video["grid"]} for video in videos((3, 1, 5))]
    for frames, [best] in zip(
        (3, 1, 5),
        SingleWriter(load_checkpoint(saved)).caption(features, DecodingOptions(explanation="both")),
        strict=True,
    ):
        assert best.attention is not None
        assert best.attention.words == [word.word for word in best.words]
        assert [len(row or ()) for row in best.attention.temporal] == [frames] * len(best.words)
        spatial = best.attention.spatial
        assert isinstance(spatial, GridAttention)
        assert np.array(spatial.weights).shape == (len(best.words), frames, 4)
        assert (spatial.rows, spatial.columns) == (2, 2)
        assert best.attention.times == [[t, t + 1] for t in range(frames)]
        assert all(word.logprob <= 0 for word in best.words)


def test_boxes_lead_where_they_are_the_first_stream(tmp_path: Path) -> None:
    path = tmp_path / "boxes.safetensors"
    card = replace(CARD, streams={"boxes": SPEC, "grid": SPEC})
    save_checkpoint(path, tiny_stats(stats_config(BOXES, GRID)), card)
    [[best]] = SingleWriter(load_checkpoint(path)).caption(
        videos((3,)), DecodingOptions(max_length=4, explanation="both")
    )
    assert best.attention is not None
    assert isinstance(best.attention.spatial, BoxAttention)
    assert np.array(best.attention.spatial.boxes).shape == (3, 3, 4)


def test_words_join_as_they_are_written() -> None:
    assert join_words(["a", "man", "'s", "dog"]) == "a man's dog"
    assert join_words(["一个", "男人", "穿", "3d", "眼镜", "和", "t恤"]) == "一个男人穿 3d 眼镜和 t恤"
    assert join_words([]) == ""
