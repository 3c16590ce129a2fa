"""A captioner that knows labels, against the slow reference, and what its equations promise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from extractors.label import Label
from models.caption import MomentsExplanation
from models.decoding.decode import DecodingOptions, decode
from models.decoding.length_penalty import LengthPenalty
from models.decoding.written_captions import DecodedBatch
from models.labels.expected_meaning import CLASS_NAMES, LABELS, find_class_rows
from models.labels.explanation import find_origins, share_stem
from models.labels.labelled_captioner import LabelledCaptioner
from models.likelihood import teacher_force
from models.vocabulary import EOS, pad_captions
from tests.models.labels.tiny_labels import ROWS, SENTENCES, label_stream, labelled_videos, tiny_labelled
from tests.models.parts import find_any
from tests.models.tiny import SPEC, videos
from tests.reference.labels import Array, LabelReference, MeaningReference

OPTIONS = DecodingOptions(beam_size=3, num_captions=2, max_length=6)
DIVISOR = LengthPenalty.parse(OPTIONS.length_penalty).divisor
CAPTIONS = [[4, 9, 4], [7, 8, 9, 10], [5]]


def references(captioner: LabelledCaptioner, video: int) -> list[LabelReference]:
    texts = captioner.meaning.texts.double().numpy()
    rows = [(int(find_class_rows(torch.tensor(k), torch.tensor(c))), k, p) for k, c, p in ROWS[video]]
    return [LabelReference(kind, texts[row], p) for row, kind, p in rows]


def slow(captioner: LabelledCaptioner) -> MeaningReference:
    weights = {name: value.double().numpy() for name, value in captioner.state_dict().items()}
    return MeaningReference(weights, captioner.config.meaning)


def seen_by(video: int) -> Array:
    grid = videos()[video]["grid"]
    mask = np.ones(tuple(grid.values.shape[:2]), bool) if grid.mask is None else grid.mask.numpy()
    pairs = zip(grid.values.double().numpy(), mask, strict=True)
    return np.asarray(np.mean([row[kept].mean(0) for row, kept in pairs if kept.any()], axis=0))


@pytest.mark.parametrize("video", [0, 1, 2])
def test_what_is_expected_agrees_with_the_reference(video: int) -> None:
    captioner = tiny_labelled()
    with torch.no_grad():
        expected = captioner.encode(labelled_videos()).expected
    wanted = slow(captioner).expect(references(captioner, video), seen_by(video))
    np.testing.assert_allclose(expected[video].numpy(), wanted, atol=2e-5)


def test_merit_agrees_with_the_reference() -> None:
    captioner = tiny_labelled(seed=5, likelihood=0.2, prior=0.6, common=0.4)
    tokens, scores = pad_captions(CAPTIONS).clamp(min=EOS), torch.tensor([-1.0, -2.0, -3.0])
    with torch.no_grad():
        memory = captioner.encode(labelled_videos())
        merit = captioner.judge(memory, tokens, scores, DIVISOR).merit
        typical = captioner._typical_memory()
        forced = teacher_force(captioner.writer, typical, pad_captions(CAPTIONS))
        priors = forced.log_p.sum(1) / DIVISOR(forced.valid.sum(1).float())
    for video, words in enumerate(CAPTIONS):
        expected = slow(captioner).expect(references(captioner, video), seen_by(video))
        wanted = slow(captioner).merit(expected, words, float(scores[video]), float(priors[video]))
        assert merit[video] == pytest.approx(wanted, abs=5e-5)


def test_the_sentences_that_fit_best_are_recalled() -> None:
    captioner = tiny_labelled(seed=3, common=0.4)
    with torch.no_grad():
        memory = captioner.encode(labelled_videos())
        recalled = captioner.recall(memory, longest=20)
    assert recalled is not None
    common = slow(captioner).weights["meaning.common"]
    for video, rows in enumerate(recalled.view(3, 2, -1)):
        expected = slow(captioner).expect(references(captioner, video), seen_by(video)) - 0.4 * common
        best = sorted(SENTENCES, key=lambda words: -float(expected @ slow(captioner).embed(words)))[:2]
        assert [[i for i in row.tolist() if i > EOS] for row in rows] == best


def test_sentences_that_are_too_long_are_not_recalled() -> None:
    captioner = tiny_labelled(seed=3)
    with torch.no_grad():
        memory = captioner.encode(labelled_videos())
        recalled = captioner.recall(memory, longest=4)
        assert captioner.recall(memory, longest=3) is None
    assert recalled is not None
    assert ((recalled > EOS).sum(1) == 3).all()


def test_a_recalled_caption_is_read_with_its_likelihood_and_attention() -> None:
    captioner = tiny_labelled(seed=4, likelihood=0.0, common=0.0)
    for row in captioner.meaning.words.weight.data[[3, 18, 19]]:
        row.zero_()
    with torch.no_grad():
        memory = captioner.encode(labelled_videos())
        every = decode(captioner, memory, OPTIONS.model_copy(update={"num_captions": 3}))
    found = [(video, each) for video, best in enumerate(every) for each in best if each.recalled]
    assert found
    for video, each in found:
        assert list(each.tokens) in SENTENCES
        assert each.attention is not None
        assert each.attention.temporal.shape[0] == len(each.tokens)
        with torch.no_grad():
            alone = captioner.encode([labelled_videos()[video]])
            read = teacher_force(captioner, alone, pad_captions([list(each.tokens)]))
        assert read.log_p[0, :-1].tolist() == pytest.approx(each.logprobs, abs=1e-4)


def test_captions_are_ranked_by_merit_and_each_stands_once() -> None:
    captioner = tiny_labelled(seed=6)
    with torch.no_grad():
        every = decode(
            captioner, captioner.encode(labelled_videos()), OPTIONS.model_copy(update={"num_captions": 3})
        )
    for best in every:
        assert [h.merit for h in best] == sorted((h.merit for h in best), reverse=True)
        assert len({h.tokens for h in best}) == len(best)


def test_videos_are_alike_alone_and_together() -> None:
    captioner = tiny_labelled(seed=1)
    with torch.no_grad():
        together = decode(captioner, captioner.encode(labelled_videos()), OPTIONS)
        for video, features in enumerate(labelled_videos()):
            alone = decode(captioner, captioner.encode([features]), OPTIONS)[0]
            assert [h.tokens for h in alone] == [h.tokens for h in together[video]]
            assert alone[0].merit == pytest.approx(together[video][0].merit, abs=1e-5)


def test_without_sentences_the_captioners_own_are_ranked() -> None:
    captioner = tiny_labelled(seed=2, sentences=0)
    with torch.no_grad():
        every = decode(captioner, captioner.encode(labelled_videos()), OPTIONS)
    assert all(not h.recalled for best in every for h in best)


def test_a_label_is_known_by_its_name_and_not_by_its_number() -> None:
    captioner = tiny_labelled(seed=7)
    captioner.meaning.texts[11] = captioner.meaning.texts[3]
    video = labelled_videos()[0]
    renumbered = {**video, LABELS: label_stream([(0, 11, 0.9), *ROWS[0][1:]])}
    with torch.no_grad():
        one, other = (captioner.encode([each]).expected for each in (video, renumbered))
    assert torch.equal(one, other)


def test_an_unsure_label_counts_for_less_than_its_probability() -> None:
    captioner = tiny_labelled(seed=7)
    pairs = []
    for probability in (0.0, 0.5, 1.0):
        video = {**videos()[0], LABELS: label_stream([(0, 3, probability)])}
        with torch.no_grad():
            pairs.append(captioner.encode([video]).expected)
    nothing, half, sure = pairs
    assert (half - nothing).norm() < 0.4 * (sure - nothing).norm()


def test_confidence_rises_with_what_is_expected_of_this_video_alone() -> None:
    captioner = tiny_labelled(seed=8, confidence=(-1.0, 5.0, 0.5))
    tokens, scores = pad_captions(CAPTIONS).clamp(min=EOS), torch.tensor([-1.0, -2.0, -1.5])
    with torch.no_grad():
        memory = captioner.encode(labelled_videos())
        judged = captioner.judge(memory, tokens, scores, DIVISOR)
        unsure = tiny_labelled(seed=8, confidence=(-1.0, 0.0, 0.5)).judge(memory, tokens, scores, DIVISOR)
        captions = captioner.meaning.embed_captions(tokens)
    assert judged.confidence is not None
    assert unsure.confidence is not None
    gain = (judged.confidence.logit() - unsure.confidence.logit()) / 5
    distinct = memory.expected - captioner.meaning.common
    assert torch.allclose(gain, torch.cosine_similarity(distinct, captions), atol=1e-5)


def test_an_answer_names_what_was_recognised() -> None:
    captioner = tiny_labelled(seed=9, confidence=(0.0, 1.0, 0.0))
    batch = DecodedBatch.by(captioner, labelled_videos(), "grid", DecodingOptions(beam_size=2, max_length=5))
    best = batch.captions(0)[0]
    assert best.confidence is not None
    assert best.attention is not None
    part = find_any(best.attention, LABELS)
    assert isinstance(part, MomentsExplanation)
    assert part.caption is not None
    assert part.words is not None
    # the unlikely one between them is not said to have been recognised
    assert [each.text for each in part.caption] == [CLASS_NAMES[3], CLASS_NAMES[420]]
    assert [each.title for each in part.caption] == ["by motion", "in the picture"]
    assert (part.caption[1].time, part.caption[1].end) == (2.0, 3.0)
    assert len(part.words) == len(best.words)
    boxed = batch.captions(1)[0].attention
    assert boxed is not None
    shown = find_any(boxed, LABELS)
    assert isinstance(shown, MomentsExplanation)
    assert shown.caption is not None
    assert shown.caption[0].box == [0.0, 0.0, 0.5, 0.5]
    without = batch.captions(2)[0].attention
    assert without is not None
    assert find_any(without, LABELS) is None


def test_the_shares_of_a_word_add_up_to_what_is_expected_of_it() -> None:
    captioner = tiny_labelled(seed=9, common=0.0)
    tokens = torch.tensor([4, 9, 12])
    with torch.no_grad():
        memory = captioner.encode(labelled_videos())
        labels = memory.labels.select(torch.tensor([0]))
        shares = captioner.meaning.share_words(memory.seen[0], labels, tokens)
        wanted = captioner.meaning.words(tokens) @ memory.expected[0]
    assert torch.allclose(shares.sum(1), wanted, atol=1e-4)


def label(name: str, probability: float = 0.9) -> Label:
    return Label(name, "motion", probability, 0.0, 1.0, None, SPEC)


@pytest.mark.parametrize(
    ("word", "weights", "written", "origins"),
    [
        ("flips", [0.1, 0.3, 0.6], [False, True], [0]),
        ("guitar", [0.0, 0.4, 0.6], [False, False], [1]),
        ("chef", [0.6, 0.1, 0.3], [False, False], [0]),  # of other words, which it gives most of
        ("chef", [0.3, 0.1, 0.6], [False, False], []),
        ("chef", [0.3, 0.1, 0.6], [True, True], [0]),  # it was written of
        ("chef", [0.3, 0.4, 0.3], [True, True], [1, 0]),
        ("chef", [0.3, 0.4, 0.3], [True, False], [0]),
        ("chef", [0.1, 0.0, 0.9], [True, False], []),
        ("a", [0.6, 0.1, 0.3], [True, False], []),
    ],
)
def test_a_word_is_of_labels_that_have_it_or_give_most_of_it(
    word: str, weights: list[float], written: list[bool], origins: list[int]
) -> None:
    labels = [label("flipping pancake"), label("playing guitar")]
    assert find_origins(word, np.array(weights), np.array(written), labels) == origins


def test_sentences_of_which_the_prior_was_measured_are_judged_as_those_that_are_read() -> None:
    """Also cut ones, longer ones, and one that the captioner wrote itself."""
    measured, reading = tiny_labelled(seed=3), tiny_labelled(seed=3)
    with torch.no_grad():
        measured.priors.copy_(measured.measure_remembered())
    cut, longer = SENTENCES[1], [*SENTENCES[2], 4, 5, 6, 7]
    rows = [[*SENTENCES[0], EOS], [*SENTENCES[3], EOS], cut, [5, 6, EOS], [*longer, EOS]]
    tokens = pad_sequence([torch.tensor(row) for row in rows], True, EOS)
    tokens[2, len(cut) :] = 8  # has no end
    with torch.no_grad():
        memory = measured.encode(labelled_videos()[:1])
        scores = torch.linspace(-3.0, -1.0, len(rows))
        merit, read = (each.judge(memory, tokens, scores, DIVISOR).merit for each in (measured, reading))
        assert torch.allclose(merit, read, atol=1e-5)
        measured.priors.add_(1.0)
        changed = (measured.judge(memory, tokens, scores, DIVISOR).merit - merit).abs() > 1e-6
    assert changed.tolist() == [True, True, False, False, False]


def test_words_of_a_recalled_caption_are_of_the_classes_that_they_were_written_of() -> None:
    captioner = tiny_labelled()  # the first word of the first sentence ends the third
    captioner.written_of = torch.tensor([[0, 3], [1, 420], [1, 3], [2, 7]], dtype=torch.int16)
    classes = torch.tensor([3, 7, 420, 5])
    recalled = captioner.find_written(torch.tensor(SENTENCES[0]), classes)
    assert recalled.int().tolist() == [[1, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]
    for other in (SENTENCES[1][:-1], [*SENTENCES[1], 4], [*SENTENCES[3], 4, 5]):
        assert not captioner.find_written(torch.tensor(other), classes).any()
    assert captioner.find_written(torch.tensor(SENTENCES[0]), classes[:0]).shape == (3, 0)


def test_a_word_is_not_of_a_label_that_nobody_believes() -> None:
    chess = [label("playing chess", 0.05)]
    assert find_origins("playing", np.array([0.01, 0.99]), np.array([False]), chess) == []


@pytest.mark.parametrize(
    ("word", "name", "same"),
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
def test_a_word_is_a_labels_in_any_form(word: str, name: str, same: bool) -> None:
    assert share_stem(word, name) is same


def test_numbers_beyond_the_classes_are_clipped() -> None:
    rows = find_class_rows(torch.tensor([0, 0, 1, 2, 2]), torch.tensor([-4, 9999, 9999, 9999, 0]))
    assert rows.tolist() == [0, 399, 1399, 1479, 1400]
