"""A fusion of ours and of pretrained captioners: who competes, who judges, and how each reads the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

from extractors.features import Features, Frames
from models.caption import Caption, GridAttention, ScoredWord
from models.captioners.semantic_embedding import SemanticEmbedding
from models.checkpoint import Card, Checkpoint
from models.combining.caption_writers import FusedWriter
from models.combining.pretrained_members import PretrainedOutput
from models.combining.reranking import LIKELIHOOD_WEIGHT, TWICE, Candidate, names_twice
from models.decoding.decode import Hypothesis
from models.decoding.options import DecodingOptions
from models.likelihood import teacher_force
from models.pretrained.captioner import WrittenCaption
from models.pretrained.load import load_pretrained_captioner
from models.vocabulary import EOS, UNK, pad_captions, split_words
from tests.models.captioners.test_explain import checkpoint
from tests.models.combining.test_caption_writers import competed, embedding
from tests.models.parts import find_any
from tests.models.pretrained.tiny_folders import random_video, write_blip, write_git
from tests.models.tiny import SPEC, tiny_g2l, tiny_stats, videos

OPTIONS = DecodingOptions(beam_size=3, max_length=5, explanation="both")
FRAMES = [random_video(6, seed=seed) for seed in range(3)]
CARD = Card(SemanticEmbedding.name, {"grid": SPEC}, {}, {})


@pytest.fixture(scope="module")
def git(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load_pretrained_captioner(write_git(tmp_path_factory.mktemp("models") / "tiny-git"))


@pytest.fixture(scope="module")
def blip(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load_pretrained_captioner(write_blip(tmp_path_factory.mktemp("models") / "tiny-blip", seed=3))


@pytest.fixture
def features() -> Sequence[Features]:
    return videos((3, 1, 5))


def fused(**members: Any) -> FusedWriter:
    return FusedWriter(members, embedding(), CARD)


def likelihood_by_ours(member: Checkpoint, features: Features, words: Sequence[str]) -> float:
    captioner = member.captioner
    ids = [*captioner.vocabulary.encode(words), EOS]
    with torch.no_grad():
        forced = teacher_force(captioner, captioner.encode([features]), torch.tensor([ids]))
    return float(forced.log_p.sum()) / len(ids)


def test_all_compete_and_each_is_judged_by_all(git: Any, blip: Any, features: Sequence[Features]) -> None:
    """Each score is what a member, or the embedding, says of that caption of that video alone."""
    ours = checkpoint(tiny_stats())
    writer = fused(stats=ours, git=git, blip=blip)
    found = writer.caption_frames(FRAMES, features, OPTIONS)
    for frames, streams, (best,) in zip(FRAMES, features, found, strict=True):
        candidates = competed(best)
        assert {each.captioner for each in candidates} == {"stats", "git", "blip"}
        assert [each.merit for each in candidates] == sorted((c.merit for c in candidates), reverse=True)
        assert best.text == candidates[0].text
        own = {
            name: each.caption([frames], OPTIONS.changed(num_captions=3))
            for name, each in writer.pretrained.items()
        }
        for each in candidates:
            words = each.text.split() if each.captioner == "stats" else split_words(each.text)
            likely = [likelihood_by_ours(ours, streams, words)]
            likely += [pretrained.score_texts([frames], [[each.text]])[0][0] for pretrained in (git, blip)]
            assert each.likelihood == pytest.approx(sum(likely) / 3, abs=1e-4)
            with torch.no_grad():
                sentence = writer.embedding.encode_sentences(
                    pad_captions([writer.embedding.vocabulary.encode(words)])
                )
                relevance = float((writer.embedding.encode([streams]) * sentence).sum())
            assert each.relevance == pytest.approx(relevance, abs=1e-4)
            told = each.likelihood - TWICE * names_twice(words)
            assert each.merit == pytest.approx(each.relevance + LIKELIHOOD_WEIGHT * told, abs=2e-5)
            if each.captioner != "stats":
                written = own[each.captioner][0][each.beam]
                assert each.text == written.text
                assert each.score == pytest.approx(written.score, abs=1e-4)


def test_the_winner_tells_its_own_attention(git: Any, features: Sequence[Features]) -> None:
    """GIT's grid has four cells a side and six moments of its own frames; ours has its own extras."""
    writer = fused(stats=checkpoint(tiny_stats()), git=git)
    alone = git.caption(FRAMES, OPTIONS.changed(num_captions=3))
    winners = set()
    for weight in (0.0, LIKELIHOOD_WEIGHT, 5.0, -5.0):
        weighed = replace(writer, likelihood_weight=weight)
        for video, (best,) in enumerate(weighed.caption_frames(FRAMES, features, OPTIONS)):
            assert best.attention is not None
            first = competed(best)[0]
            winners.add(first.captioner)
            assert best.attention.words == [word.word for word in best.words]
            is_git = isinstance(best.attention.spatial, GridAttention) and best.attention.spatial.rows == 4
            assert is_git == (first.captioner == "git")
            assert (find_any(best.attention, "branch") is None) == is_git
            if is_git:
                own = alone[video][first.beam].attention
                assert own is not None
                assert best.attention.temporal == own.temporal
    assert winners == {"stats", "git"}


def test_several_captions_are_the_best_ones_and_the_first_alone_has_attention(
    git: Any, features: Sequence[Features]
) -> None:
    writer = fused(git=git, stats=checkpoint(tiny_stats()))
    several = OPTIONS.changed(num_captions=3)
    for captions in writer.caption_frames(FRAMES, features, several):
        assert [each.text for each in captions] == [each.text for each in competed(captions[0])[:3]]
        assert [each.attention is None for each in captions] == [False, True, True]
    plain = writer.caption_frames(FRAMES, features, several.changed(attention=False))
    assert all(each.attention is None for captions in plain for each in captions)


def test_pretrained_members_alone_are_chosen_among_too(
    git: Any, blip: Any, features: Sequence[Features]
) -> None:
    for (best,) in fused(git=git, blip=blip).caption_frames(FRAMES, features, OPTIONS):
        assert {each.captioner for each in competed(best)} == {"git", "blip"}


def test_a_batch_is_fused_as_each_video_alone(git: Any, features: Sequence[Features]) -> None:
    writer = fused(g2l=checkpoint(tiny_g2l()), git=git)
    together = writer.caption_frames(FRAMES, features, OPTIONS)
    for frames, streams, (best,) in zip(FRAMES, features, together, strict=True):
        ((alone,),) = writer.caption_frames([frames], [streams], OPTIONS)
        assert [each.text for each in competed(alone)] == [each.text for each in competed(best)]


def test_streams_alone_are_not_enough_for_it(git: Any, features: Sequence[Features]) -> None:
    writer = fused(stats=checkpoint(tiny_stats()), git=git)
    assert writer.streams == {"grid": SPEC}
    with pytest.raises(ValueError, match="git reads frames"):
        writer.caption(features, OPTIONS)


# ---- how each reads the other ----


@dataclass
class Listener:
    """Stands in a pretrained captioner's place: writes what it is told, and keeps what it is asked."""

    texts: Sequence[str]
    asked: list[Sequence[Sequence[str]]] = field(default_factory=list)

    def encode(self, videos: Sequence[Frames]) -> Sequence[Frames]:
        return videos

    def write(self, videos: Sequence[Frames], _: DecodingOptions) -> list[list[WrittenCaption]]:
        written = [
            Caption(
                text=text, score=-1.0, words=[ScoredWord(word=word, logprob=-0.5) for word in text.split()]
            )
            for text in self.texts
        ]
        return [[WrittenCaption(each, ()) for each in written] for _ in videos]

    def explain(self, _: object, __: int, written: WrittenCaption, ___: DecodingOptions) -> Caption:
        return written.caption

    def score_texts(self, _: object, texts: Sequence[Sequence[str]]) -> list[list[float]]:
        self.asked.append(texts)
        return [[-1.0] * len(of_video) for of_video in texts]


def ours(words: str) -> Candidate:
    return Candidate("stats", 0, tuple(words.split()), Hypothesis((), (), 0.0, 0.0, True, None))


@pytest.mark.parametrize(
    ("own", "spelt"),
    [
        ("a man runs", ["a man 's dog".replace(" '", "'"), "", "A Théâtre, lit."]),
        ("A man runs.", ["A man's dog.", ".", "A Théâtre, lit."]),
        ("A man runs", ["A man's dog", "", "A Théâtre, lit."]),
    ],
)
def test_ours_are_spelt_as_a_member_s_own_and_pretrained_ones_are_left(own: str, spelt: list[str]) -> None:
    member: Any = Listener([own])
    output = PretrainedOutput.by(member, FRAMES[:1], OPTIONS)
    other = replace(ours("a theatre lit"), text="A Théâtre, lit.")
    found = output.score([[ours("a man 's dog"), ours(""), other]])
    assert member.asked == [[spelt]]
    assert found.tolist() == [[-1.0, -1.0, -1.0]]


def test_a_pretrained_caption_is_read_by_its_words(features: Sequence[Features]) -> None:
    """Without capitals, marks and accents; what ours do not know is their <unk>."""
    member: Any = Listener(["A Man's café.", "a man 's cafe"])
    output = PretrainedOutput.by(member, FRAMES[:1], OPTIONS)
    first, second = output.candidates("git", 0)
    assert first.words == second.words == ("a", "man", "'s", "cafe")
    assert (first.text, first.hypothesis.score, first.beam, second.beam) == ("A Man's café.", -1.0, 0, 1)
    vocabulary = tiny_stats().vocabulary
    assert vocabulary.encode(["cafe"]) == [UNK]
    ((best,),) = fused(stats=checkpoint(tiny_stats()), git=member).caption_frames(
        FRAMES[:1], features[:1], OPTIONS.changed(attention=False)
    )
    assert best.attention is None


def test_captions_that_read_alike_count_once(features: Sequence[Features]) -> None:
    """Of those of two members the one of whoever was named first."""
    stats = checkpoint(tiny_stats())
    (texts,) = fused(stats=stats).caption(features[:1], OPTIONS.changed(num_captions=3))
    echo: Any = Listener([f"{text.text.capitalize()}." for text in texts])
    for members, winner in (
        ({"stats": stats, "echo": echo}, "stats"),
        ({"echo": echo, "stats": stats}, "echo"),
    ):
        ((best, *_),) = fused(**members).caption_frames(FRAMES[:1], features[:1], OPTIONS)
        if winner == "stats":
            assert {each.captioner for each in competed(best)} == {winner}
            assert len(competed(best)) == 3
        else:
            assert best.text in [text.text.capitalize() + "." for text in texts]
