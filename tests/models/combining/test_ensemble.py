"""An ensemble is a captioner whose probabilities are the average of its members'."""

from __future__ import annotations

import pytest
import torch

from models.combining.ensemble import Ensemble
from models.decoding.decode import DecodingOptions, decode
from tests.models.brute_force import every_sequence, ranked
from tests.models.toy_captioners import RandomToy, videos

WORDS = ("dog", "a", "runs")
OPTIONS = DecodingOptions(
    beam_size=500, num_captions=4, max_length=3, length_penalty=0.5, suppress_unk=False, name_once=False
)


def test_averages_probabilities() -> None:
    members = [RandomToy(WORDS, seed=1), RandomToy(WORDS, seed=2)]
    ensemble = Ensemble(members)
    mean = RandomToy(WORDS, seed=3)
    mean.table.copy_(((members[0].table.exp() + members[1].table.exp()) / 2).log())
    memory = videos(0, 1)
    found = decode(ensemble, ensemble.join_memories([memory, memory]), OPTIONS)
    for video, hypotheses in enumerate(found):
        best = ranked(every_sequence(mean, videos(video), 3), 0.5)[:4]
        assert [h.tokens for h in hypotheses] == [tuple(t for t in s.tokens if t) for s in best]
        assert [h.score for h in hypotheses] == pytest.approx([s.score(0.5) for s in best], abs=1e-12)


def test_averages_attention_of_like_members() -> None:
    members = [RandomToy(WORDS, seed=1), RandomToy(WORDS, seed=2)]
    ensemble, memory = Ensemble(members), videos(0, frames=[3])
    state, word = ensemble.start(ensemble.join_memories([memory] * 2), 1), torch.tensor([4])
    _, _, seen = ensemble.step(state, word, ensemble.join_memories([memory] * 2))
    each = [m.step(m.start(memory, 1), word, memory)[2] for m in members]
    assert seen is not None
    assert each[0] is not None
    assert each[1] is not None
    assert torch.allclose(seen.temporal, (each[0].temporal + each[1].temporal) / 2)
    assert torch.allclose(seen.temporal.sum(1), torch.ones(1, dtype=torch.float64))


def test_one_member_is_itself() -> None:
    member, memory = RandomToy(WORDS, seed=1), videos(0, 1, 2)
    ensemble = Ensemble([member])
    alone = decode(member, memory, OPTIONS)
    together = decode(ensemble, ensemble.join_memories([memory]), OPTIONS)
    assert [[h.tokens for h in v] for v in together] == [[h.tokens for h in v] for v in alone]


def test_members_must_fit_together() -> None:
    with pytest.raises(ValueError, match="vocabulary"):
        Ensemble([RandomToy(WORDS, seed=1), RandomToy(("cat",), seed=1)])
    with pytest.raises(ValueError, match="at least one"):
        Ensemble([])
