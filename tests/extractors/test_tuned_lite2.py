"""The tuned network: its changes survive a byte a weight, and make another grid beside the untouched one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from extractors.checkpoint_file import read
from extractors.efficientnet_lite import EfficientNetLite
from extractors.efficientnet_stages import LastStages
from extractors.initial import lively
from extractors.tuned_lite2 import (
    apply_changes,
    save_changes,
)
from extractors.weight_changes import LARGEST, SCALE, changed, changes_of
from extractors.weights import seeded
from extractors.weights_errors import WrongCheckpoint


def stages() -> LastStages:
    return LastStages(seeded(lambda: lively(EfficientNetLite())))


def moved(network: LastStages, by: float = 0.01, seed: int = 1) -> LastStages:
    """The same with every parameter moved by chance, some channels not at all."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            change = by * torch.randn(parameter.shape, generator=generator)
            change[::5] = 0
            parameter += change
    return network


def test_changes_are_off_by_half_a_scale_at_most() -> None:
    """Biases by nothing; a channel that did not move does not move."""
    before, after = stages().state_dict(), moved(stages()).state_dict()
    changes = changes_of(before, after)
    again = changed(before, changes)
    assert again.keys() == after.keys()
    for name, value in after.items():
        if value.dim() < 2:
            torch.testing.assert_close(again[name], value, atol=1e-7, rtol=1e-6)
            continue
        assert changes[name].dtype == torch.int8
        assert int(changes[name].abs().max()) == LARGEST
        scale = changes[name + SCALE].view(-1, *[1] * (value.dim() - 1))
        slack = 1e-6 * value.abs().max()  # of the sum in float32
        assert bool(((again[name] - value).abs() <= scale / 2 + slack).all()), name
        assert torch.equal(again[name][::5], before[name][::5])


@pytest.mark.parametrize("mistake", ["missing", "left over", "shape"])
def test_changes_of_another_network_are_refused(mistake: str) -> None:
    before = stages().state_dict()
    changes = changes_of(before, before)
    if mistake == "missing":
        del changes["head.conv.weight" + SCALE]
    elif mistake == "left over":
        changes["tail.weight"] = torch.zeros(1)
    else:
        changes["head.conv.weight"] = changes["head.conv.weight"][:, :2]
    with pytest.raises(WrongCheckpoint, match=r"head\.conv\.weight|tail\.weight"):
        changed(before, changes)


def test_a_file_gives_the_network_back_and_is_small(tmp_path: Path) -> None:
    untouched, tuned = stages(), moved(stages())
    digest = save_changes(tuned, untouched, tmp_path / "changes.safetensors")
    assert (tmp_path / "changes.safetensors").stat().st_size < 4_000_000
    assert save_changes(tuned, untouched, tmp_path / "again.safetensors") == digest
    given = stages()
    apply_changes(given, read(tmp_path / "changes.safetensors"))
    cells = torch.randn(1, 196, 120, generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        before, after, ours = untouched(cells), tuned(cells), given(cells)
    assert (ours - after).abs().mean() < 0.05 * (before - after).abs().mean()
