"""VGGish on the sound of real files: any codec, rate and layout, silence, little sound, and none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from extractors.catalog.vggish import VGGishExtractor, compute_example, parse_options, split_rows
from extractors.extractor import ExtractorOptions, UnknownExtractor, create
from extractors.features import Audio, Stream
from extractors.media.decode import decode_here
from extractors.media.request import DecodeRequest
from extractors.networks.vggish import PrincipalComponents, VGGish, VGGishEmbedder, VGGishOptions
from extractors.preprocessing import log_mel
from extractors.pretrained.load import build_seeded
from extractors.windows import Windows
from tests.extractors.networks.test_vggish import MeanBands
from tests.media import write_video


def tone(
    seconds: float, rate: int = log_mel.RATE, pitch: float = 440.0, loud: float = 0.5
) -> NDArray[np.float32]:
    return (loud * np.sin(2 * np.pi * pitch * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def mask_of(stream: Stream) -> list[bool]:
    assert stream.mask is not None
    return [bool(real) for real in stream.mask]


EXACT = ExtractorOptions(engine="torch", precision="fp32")


@pytest.fixture(scope="module")
def small() -> VGGishExtractor:
    return VGGishExtractor("vggish", VGGishEmbedder(MeanBands(), None, VGGishOptions()), "seeded", EXACT)


@pytest.fixture(scope="module")
def real() -> VGGishExtractor:
    made = create("vggish", engine="torch", precision="fp32", weights="seeded")
    assert isinstance(made, VGGishExtractor)
    return made


def stream_of(extractor: VGGishExtractor, path: Path) -> Stream:
    """What the extractor says of a file, whose sound is decoded as it asks for it."""
    decoded = decode_here(path, DecodeRequest(audio_rate=extractor.rate))
    return extractor.extract(decoded.audio, decoded.video.duration)["vggish"]


def sound_of(path: Path, rate: int) -> Audio:
    audio = decode_here(path, DecodeRequest(audio_rate=rate)).audio
    assert audio is not None
    return audio


def of_file(real: VGGishExtractor, path: Path, codec: str, **options: object) -> Stream:
    given = {"audio_seconds": 2.0, "frames": 20, "audio_rate": 44_100, **options}
    return stream_of(real, write_video(path, audio_codec=codec, **given))  # type: ignore[arg-type]


def cosines(a: Stream, b: Stream) -> Tensor:
    return torch.cosine_similarity(a.values, b.values, dim=1)


def test_case_4_sound_is_cut_to_the_picture(small: VGGishExtractor, tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", frames=20, audio_seconds=6.0)
    stream = stream_of(small, path)
    assert mask_of(stream) == [True, True]
    assert stream.start.tolist() == pytest.approx([0.0, 0.96])
    assert stream.end[-1] == pytest.approx(1.92)


def test_case_5_no_audio_is_a_zero_stream_that_says_so(small: VGGishExtractor, tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", frames=30)
    stream = stream_of(small, path)
    assert stream.spec.sampling == "no_audio"
    assert stream.spec.identity == small.spec.identity
    assert mask_of(stream) == [False]
    assert not stream.values.any()
    assert [*stream.start, *stream.end] == pytest.approx([0.0, 3.0])


@pytest.mark.parametrize("seconds", [0.2, 0.5])
def test_case_5_little_sound_is_one_padded_row(real: VGGishExtractor, seconds: float, tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", frames=60, audio_seconds=seconds)
    stream = stream_of(real, path)
    assert stream.spec.sampling == "0.96 s rows"
    assert mask_of(stream) == [False]
    assert stream.values.any()
    assert stream.values.isfinite().all()


def test_case_6_mp3_inside_mp4_says_what_aac_says(real: VGGishExtractor, tmp_path: Path) -> None:
    aac, mp3 = of_file(real, tmp_path / "a.mp4", "aac"), of_file(real, tmp_path / "b.mp4", "libmp3lame")
    assert mask_of(aac) == mask_of(mp3) == [True, True]
    assert cosines(aac, mp3).min() > 0.98
    other = real.extract(Audio(tone(2.0, pitch=3000), log_mel.RATE), 2.0)["vggish"]
    assert cosines(aac, other).max() < cosines(aac, mp3).min()


@pytest.mark.parametrize(
    ("name", "codec", "options"),
    [
        ("opus.mkv", "libopus", {"audio_rate": 48_000}),
        ("surround.mp4", "aac", {"audio_rate": 48_000, "audio_layout": "5.1"}),
        ("telephone.mkv", "pcm_s16le", {"audio_rate": 8_000}),
        ("stereo.mkv", "pcm_s16le", {"audio_layout": "stereo"}),
    ],
)
def test_any_codec_layout_and_rate(
    real: VGGishExtractor, name: str, codec: str, options: dict[str, object], tmp_path: Path
) -> None:
    stream = of_file(real, tmp_path / name, codec, **options)
    expected = real.extract(Audio(tone(2.0, loud=0.25), log_mel.RATE), 2.0)["vggish"]
    assert mask_of(stream) == [True, True]
    assert cosines(stream, expected).min() > 0.98


def test_high_tones_are_as_the_public_code_hears_them(tmp_path: Path) -> None:
    """FFmpeg's own filter to 16 kHz bends what lies near 8 kHz; hence twice the rate is asked for."""
    path = write_video(
        tmp_path / "a.mkv", audio_seconds=1.0, audio_codec="pcm_s16le", audio_rate=44_100, audio_pitch=7_400
    )
    stored = Audio(tone(1.0, 44_100, pitch=7_400, loud=0.25), 44_100)
    wanted, ours, ffmpegs = (
        compute_example(audio, split_rows(log_mel.EXAMPLE)[0])[5:90, -1]
        for audio in (stored, sound_of(path, VGGishExtractor.rate), sound_of(path, log_mel.RATE))
    )
    np.testing.assert_allclose(ours, wanted, atol=0.01)
    assert np.abs(ffmpegs - wanted).max() > 0.1


def test_silence_is_sound(small: VGGishExtractor) -> None:
    silence = np.zeros(32_000, np.float32)
    np.testing.assert_allclose(log_mel.compute_log_mel(silence), np.log(0.01))
    stream = small.extract(Audio(silence, 32_000), 1.0)["vggish"]
    assert mask_of(stream) == [True]
    assert torch.isfinite(stream.values).all()


def test_no_samples_are_no_audio(small: VGGishExtractor) -> None:
    stream = small.extract(Audio(np.zeros(0, np.float32), 32_000), 3.0)["vggish"]
    assert stream.spec.sampling == "no_audio"
    assert mask_of(stream) == [False]


def test_a_long_tail_is_repeated_and_marked(small: VGGishExtractor) -> None:
    sound = np.concatenate([tone(0.96, pitch=440), tone(0.6, pitch=3000)])
    stream = small.extract(Audio(sound, log_mel.RATE), 1.56)["vggish"]
    assert mask_of(stream) == [True, False]
    assert stream.end.tolist() == pytest.approx([0.96, 1.56])
    rows = split_rows(len(sound))
    loudest = [compute_example(Audio(sound, log_mel.RATE), row).mean(0).argmax() for row in rows]
    assert loudest[1] > loudest[0]  # of the higher tone throughout: nothing of the first row is in it


def test_the_rows_of_a_long_video_spread_over_it(small: VGGishExtractor) -> None:
    sound = np.concatenate([tone(48.0, pitch=440), tone(48.0, pitch=3000)])
    options = replace(EXACT, windows=Windows(most=4))
    few = VGGishExtractor("vggish", VGGishEmbedder(MeanBands(), None, VGGishOptions()), "seeded", options)
    stream = few.extract(Audio(sound, log_mel.RATE), 96.0)["vggish"]
    every = small.extract(Audio(sound[: 60 * log_mel.RATE], log_mel.RATE), 60.0)["vggish"]
    assert len(stream) == 4
    assert len(every) == 63
    assert stream.start[0] < 24 < 72 < stream.start[-1]
    place = int(np.flatnonzero(np.isclose(every.start, stream.start[1]))[0])
    torch.testing.assert_close(stream.values[1], every.values[place])


def test_options_stand_behind_the_name() -> None:
    assert parse_options("vggish") == VGGishOptions(relu=True, components="no")
    assert parse_options("vggish:no_relu+pca_rounded") == VGGishOptions(relu=False, components="rounded")
    with pytest.raises(UnknownExtractor, match="no_relu, pca_raw"):
        parse_options("vggish:loud")


def test_options_change_the_values_and_the_name_tag() -> None:
    network, components = build_seeded(VGGish), build_seeded(PrincipalComponents)
    plain, signed, quantised = (
        VGGishExtractor(name, VGGishEmbedder(network, components, parse_options(name)), "seeded", EXACT)
        for name in ("vggish", "vggish:no_relu", "vggish:pca_rounded")
    )
    sound = Audio(tone(1.0), log_mel.RATE)
    before = signed.extract(sound, 1.0)["vggish:no_relu"].values
    assert before.min() < 0
    torch.testing.assert_close(before.relu(), plain.extract(sound, 1.0)["vggish"].values)
    rounded = quantised.extract(sound, 1.0)["vggish:pca_rounded"].values
    assert torch.equal(rounded, rounded.round())
    assert 0 <= rounded.min() <= rounded.max() <= 255
    assert len({extractor.spec.identity for extractor in (plain, signed, quantised)}) == 3


def test_components_are_of_a_second_file() -> None:
    made = create("vggish:pca_raw", engine="torch", precision="fp32", weights="seeded")
    assert made.spec.weights_sha256 == "seeded"
    assert "principal components: raw" in made.spec.preprocessing
