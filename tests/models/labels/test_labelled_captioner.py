"""A captioner that reads labels, against the slow reference, and what its equations promise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from models.captioner import StepAttention
from models.captioners.stats.network import STaTS
from models.decoding.decode import DecodingOptions, decode
from models.decoding.written_captions import DecodedBatch
from models.labels.classes import CLASS_NAMES, LABELS, find_class_rows, share_stem
from models.labels.labelled_captioner import LabelledCaptioner, LabelledMemory
from models.vocabulary import BOS
from tests.models.labels.tiny_labels import ROWS, label_stream, labelled_videos, tiny_labelled
from tests.models.tiny import videos
from tests.reference.labels import LabelReference, LabelsReference

WORDS = [BOS, 4, 9, 12]


def references(captioner: LabelledCaptioner, video: int) -> list[LabelReference]:
    texts = captioner.reader.texts.double().numpy()
    rows = [(int(find_class_rows(torch.tensor(k), torch.tensor(c))), k, p) for k, c, p in ROWS[video]]
    return [LabelReference(kind, texts[row], p) for row, kind, p in rows]


def slow(captioner: LabelledCaptioner) -> LabelsReference:
    return LabelsReference({name: value.double().numpy() for name, value in captioner.state_dict().items()})


def seen_by(video: int) -> np.ndarray:
    grid = videos()[video]["grid"]
    mask = np.ones(tuple(grid.values.shape[:2]), bool) if grid.mask is None else grid.mask.numpy()
    frames = [row[kept].mean(0) for row, kept in zip(grid.values.double().numpy(), mask, strict=True) if kept.any()]
    return np.asarray(np.mean(frames, axis=0))


def steps_of(captioner: LabelledCaptioner, memory: LabelledMemory) -> list[tuple[torch.Tensor, StepAttention]]:
    state, steps = captioner.start(memory, 1), []
    for word in WORDS:
        output, state, attention = captioner.advance(
            state, captioner.embed_words(torch.full((memory.size,), word)), memory
        )
        assert attention is not None
        steps.append((output, attention))
    return steps


@pytest.mark.parametrize("video", [0, 1, 2])
def test_what_is_added_agrees_with_the_reference(video: int) -> None:
    captioner = tiny_labelled()
    with torch.no_grad():
        memory = captioner.encode(labelled_videos())
    hint = slow(captioner).hint(references(captioner, video), seen_by(video))
    np.testing.assert_allclose(memory.hint[video].numpy(), hint, atol=2e-5)


@pytest.mark.parametrize("video", [0, 1, 2])
def test_what_is_read_agrees_with_the_reference(video: int) -> None:
    captioner = tiny_labelled(seed=3)
    output = torch.randn(3, captioner.reader.W_q.in_features)
    with torch.no_grad():
        memory = captioner.encode(labelled_videos())
        read, weights = captioner.reader(output, memory.labels)
    labels = references(captioner, video)
    wanted, shares = slow(captioner).read(output[video].double().numpy(), labels, seen_by(video))
    np.testing.assert_allclose(read[video].numpy(), wanted, atol=2e-5)
    np.testing.assert_allclose(weights[video, : len(labels)].numpy(), shares, atol=2e-5)
    assert not weights[video, len(labels) :].any()


def test_the_expected_similarity_agrees_with_the_reference() -> None:
    captioner = tiny_labelled(seed=5, likelihood=0.0)
    tokens = torch.tensor([[4, 9, 4, 0], [7, 8, 9, 10], [5, 0, 0, 0]])
    with torch.no_grad():
        memory = captioner.encode(labelled_videos())
        merit = captioner.judge(memory, tokens, torch.zeros(3)).merit
    for video, words in enumerate(([4, 9], [7, 8, 9, 10], [5])):
        expected = slow(captioner).expect(references(captioner, video), seen_by(video))
        assert merit[video] == pytest.approx(slow(captioner).relevance(expected, words), abs=2e-5)


def test_videos_are_alike_alone_and_together() -> None:
    captioner = tiny_labelled(seed=1)
    options = DecodingOptions(beam_size=3, num_captions=2, max_length=6)
    with torch.no_grad():
        together = decode(captioner, captioner.encode(labelled_videos()), options)
        for video, features in enumerate(labelled_videos()):
            alone = decode(captioner, captioner.encode([features]), options)[0]
            assert [h.tokens for h in alone] == [h.tokens for h in together[video]]
            assert alone[0].score == pytest.approx(together[video][0].score, abs=1e-5)


def test_a_reader_that_has_learned_nothing_changes_nothing() -> None:
    captioner = tiny_labelled(seed=2)
    for weight in (captioner.reader.W_s.weight, captioner.reader.W_c.weight, captioner.meaning.plan.weight):
        torch.nn.init.zeros_(weight)
    writer = captioner.writer
    assert isinstance(writer, STaTS)
    with torch.no_grad():
        output, _ = steps_of(captioner, captioner.encode(labelled_videos()))[0]
        memory = writer.encode(videos())
        alone, _, _ = writer.advance(writer.start(memory, 1), writer.embed_words(torch.full((3,), BOS)), memory)
    assert torch.equal(output, alone)


def test_training_drops_labels_and_their_weight_with_them() -> None:
    captioner = tiny_labelled(seed=4).train()
    torch.manual_seed(0)
    kept = [captioner.encode(labelled_videos()).labels.support.isfinite().sum().item() for _ in range(40)]
    assert 0 < np.mean(kept) < 4
    assert set(kept) > {1, 2, 3}  # of four, each dropped half of the time


def test_the_order_of_labels_does_not_matter() -> None:
    captioner = tiny_labelled(seed=6)
    video = labelled_videos()[0]
    turned = {**video, LABELS: label_stream(ROWS[0][::-1])}
    with torch.no_grad():
        outputs = [steps_of(captioner, captioner.encode([each])) for each in (video, turned)]
    for (one, first), (other, second) in zip(*outputs, strict=True):
        assert torch.allclose(one, other, atol=1e-5)
        assert torch.allclose(first.extras["labels"], second.extras["labels"].flip(1), atol=1e-5)


def test_a_label_is_known_by_its_name_and_not_by_its_number() -> None:
    captioner = tiny_labelled(seed=7)
    other = find_class_rows(torch.tensor(0), torch.tensor(11))
    captioner.reader.texts[other] = captioner.reader.texts[3]
    video = labelled_videos()[0]
    renumbered = {**video, LABELS: label_stream([(0, 11, 0.9), *ROWS[0][1:]])}
    with torch.no_grad():
        hints = [captioner.encode([each]).hint for each in (video, renumbered)]
    assert torch.equal(*hints)


def test_confidence_rises_with_what_is_expected() -> None:
    captioner = tiny_labelled(seed=8, confidence=(-1.0, 5.0, 0.0))
    tokens = torch.tensor([[4, 9], [7, 8], [5, 6]])
    with torch.no_grad():
        memory = captioner.encode(labelled_videos())
        judged = captioner.judge(memory, tokens, torch.zeros(3))
    assert judged.confidence is not None
    assert torch.equal(judged.confidence.argsort(), judged.merit.argsort())
    assert ((judged.confidence > 0) & (judged.confidence < 1)).all()


def test_each_word_tells_its_label() -> None:
    captioner = tiny_labelled(seed=9)
    features = labelled_videos()
    batch = DecodedBatch.by(captioner, features, "grid", DecodingOptions(beam_size=2, max_length=5))
    document = batch.captions(0)[0].attention
    assert document is not None
    reading = document.extras.labels
    assert reading is not None
    assert [label.name for label in reading.labels] == [CLASS_NAMES[3], CLASS_NAMES[7], CLASS_NAMES[420]]
    assert [label.source for label in reading.labels] == ["motion", "motion", "picture"]
    assert (reading.labels[1].start, reading.labels[1].end) == (1.0, 2.0)
    assert len(reading.weights) == len(document.words)
    assert all(0 <= sum(row) <= 1 + 1e-4 for row in reading.weights)
    assert batch.captions(2)[0].attention is not None  # of a video without labels


@pytest.mark.parametrize(
    ("word", "label", "same"),
    [
        ("flips", "flipping pancake", True),
        ("pancakes", "flipping pancake", True),
        ("archery", "archery", True),
        ("dancing", "flipping pancake", False),
        ("driving", "driving car", True),
        ("drives", "driving car", True),
        ("a", "riding a bike", False),
    ],
)
def test_a_word_is_a_labels_in_any_form(word: str, label: str, same: bool) -> None:
    assert share_stem(word, label) is same


def test_numbers_beyond_the_classes_are_clipped() -> None:
    rows = find_class_rows(torch.tensor([0, 0, 1, 2, 9]), torch.tensor([-4, 9999, 9999, 9999, 0]))
    assert rows.tolist() == [0, 399, 1399, 1479, 1400]
