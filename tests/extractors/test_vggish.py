"""VGGish on short sound, on silence, on none, and on sound that outlasts the picture."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from extractors import log_mel
from extractors.checkpoint import WrongCheckpoint
from extractors.request import Audio
from extractors.resampling import resample
from extractors.vggish import (
    Embedder,
    PrincipalComponents,
    VGGishOptions,
    components_from_checkpoint,
)
from extractors.vggish_stream import SoundExtractor, windows


def tone(seconds: float, rate: int = log_mel.RATE, pitch: float = 440.0) -> NDArray[np.float32]:
    return (0.5 * np.sin(2 * np.pi * pitch * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


class Small(nn.Module):
    """Takes and gives what VGGish does, without its 72 million parameters."""

    def forward(self, examples: Tensor) -> Tensor:
        return examples.mean(1).repeat(1, 2) + 5


@pytest.fixture
def extractor() -> SoundExtractor:
    return SoundExtractor(Embedder(Small(), None, VGGishOptions()), "seeded")


@pytest.mark.parametrize(("seconds", "rows"), [(6.0, 6), (2.0, 2), (0.975, 1)])
def test_rows_of_whole_seconds(extractor: SoundExtractor, seconds: float, rows: int) -> None:
    stream = extractor.describe(Audio(tone(seconds), log_mel.RATE), seconds)
    assert stream.values.shape == (rows, 128)
    assert stream.mask is not None
    assert stream.mask.all()
    assert stream.end[-1] == pytest.approx(0.96 * rows)


def test_sound_is_cut_to_the_picture(extractor: SoundExtractor) -> None:
    stream = extractor.describe(Audio(tone(6.0), log_mel.RATE), 2.0)
    assert len(stream) == 2
    assert stream.end[-1] <= 2.0


@pytest.mark.parametrize("seconds", [0.5, 0.2, 0.01])
def test_short_sound_is_one_padded_row(extractor: SoundExtractor, seconds: float) -> None:
    stream = extractor.describe(Audio(tone(seconds), log_mel.RATE), 6.0)
    assert len(stream) == 1
    assert stream.mask is not None
    assert not stream.mask.any()
    assert stream.values.abs().sum() > 0


def test_a_long_tail_is_repeated_and_marked(extractor: SoundExtractor) -> None:
    sound = np.concatenate([tone(0.96, pitch=440), tone(0.6, pitch=3000)])
    stream = extractor.describe(Audio(sound, log_mel.RATE), 1.56)
    assert stream.mask is not None
    assert stream.mask.tolist() == [True, False]
    assert stream.end.tolist() == pytest.approx([0.96, 1.56])
    examples, padded = windows(sound.astype(np.float64))
    assert padded
    loudest = examples.mean(1).argmax(1)
    assert loudest[1] > loudest[0]  # of the higher tone throughout: nothing of the first row is in it


def test_no_sound_is_a_masked_row_of_zeros_that_says_so(extractor: SoundExtractor) -> None:
    for audio in (None, Audio(np.zeros(0, np.float32), 16_000)):
        stream = extractor.describe(audio, 3.0)
        assert stream.spec.sampling == "no_audio"
        assert stream.spec.identity == extractor.spec.identity
        assert stream.mask is not None
        assert not stream.mask.any()
        assert not stream.values.any()
        assert stream.end.tolist() == [3.0]


def test_silence_is_sound(extractor: SoundExtractor) -> None:
    silence = np.zeros(16_000, np.float32)
    np.testing.assert_allclose(log_mel.log_mel(silence), np.log(0.01))
    stream = extractor.describe(Audio(silence, log_mel.RATE), 1.0)
    assert stream.mask is not None
    assert stream.mask.all()
    assert torch.isfinite(stream.values).all()


@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 48_000])
def test_resampling_keeps_a_tone(rate: int) -> None:
    got = resample(tone(1.0, rate), rate, log_mel.RATE)
    assert len(got) == log_mel.RATE
    np.testing.assert_allclose(got[500:-500], tone(1.0)[500:-500], atol=3e-4)


def test_resampling_removes_what_the_lower_rate_cannot_hold() -> None:
    assert np.abs(resample(tone(1.0, 48_000, 12_000), 48_000, log_mel.RATE)[500:-500]).max() < 1e-4


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
        Embedder(Small(), None, VGGishOptions(components="rounded"))
    with pytest.raises(WrongCheckpoint, match=r"eigen_vectors is missing"):
        components_from_checkpoint({"pca_means": torch.zeros(128)})
    with pytest.raises(ValueError, match="components must be one of"):
        VGGishOptions(components="half")  # type: ignore[arg-type]
