"""VGGish's parts: what is refused, resampling, principal components and their quantising."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from extractors.networks.vggish import (
    PrincipalComponents,
    VGGishEmbedder,
    VGGishOptions,
    components_from_checkpoint,
)
from extractors.preprocessing import log_mel
from extractors.preprocessing.log_mel import resample
from extractors.pretrained.parameters import WrongCheckpoint


def tone(seconds: float, rate: int = log_mel.RATE, pitch: float = 440.0) -> NDArray[np.float32]:
    return (0.5 * np.sin(2 * np.pi * pitch * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


class MeanBands(nn.Module):
    """Takes and gives what VGGish does, without its 72 million parameters."""

    def forward(self, examples: Tensor) -> Tensor:
        return examples.mean(1).repeat(1, 2) + 5


@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 48_000])
def test_resampling_keeps_a_tone(rate: int) -> None:
    got = resample(tone(1.0, rate), rate, log_mel.RATE)
    assert len(got) == log_mel.RATE
    np.testing.assert_allclose(got[500:-500], tone(1.0)[500:-500], atol=3e-4)


def test_resampling_removes_what_the_lower_rate_cannot_hold() -> None:
    assert np.abs(resample(tone(1.0, 48_000, 12_000), 48_000, log_mel.RATE)[500:-500]).max() < 1e-4


@pytest.mark.parametrize("rate", [8_000, 32_000, 44_100])
def test_a_part_of_resampled_sound_is_cut_from_the_whole(rate: int) -> None:
    sound = np.random.default_rng(3).normal(size=rate).astype(np.float32)
    whole = resample(sound, rate, log_mel.RATE)
    for begin, end in ((0, 100), (777, 9_001), (15_990, 20_000), (16_000, 16_100)):
        part = resample(sound, rate, log_mel.RATE, begin, end)
        np.testing.assert_allclose(part, whole[begin:end], atol=1e-12)


def test_quantising_rounds_or_truncates() -> None:
    components = torch.tensor([[0.0, 1.999, -3.0, 3.0, -2.0 + 5 / 255]])
    assert PrincipalComponents.quantise(components, truncate=False).tolist() == [[128, 255, 0, 255, 1]]
    assert PrincipalComponents.quantise(components, truncate=True).tolist() == [[127, 254, 0, 255, 1]]


def test_components_come_with_or_without_a_second_axis() -> None:
    vectors, means = torch.randn(128, 128), torch.randn(128)
    flat = components_from_checkpoint({"pca_eigen_vectors": vectors, "pca_means": means})
    column = components_from_checkpoint(
        {"pproc.pca_eigen_vectors": vectors, "pproc.pca_means": means[:, None]}
    )
    x = torch.randn(3, 128)
    torch.testing.assert_close(flat(x), (x - means) @ vectors.T)
    torch.testing.assert_close(flat(x), column(x))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(WrongCheckpoint, match="principal components"):
        VGGishEmbedder(MeanBands(), None, VGGishOptions(components="rounded"))
    with pytest.raises(WrongCheckpoint, match=r"eigen_vectors is missing"):
        components_from_checkpoint({"pca_means": torch.zeros(128)})
    with pytest.raises(ValueError, match="components must be one of"):
        VGGishOptions(components="half")  # type: ignore[arg-type]
