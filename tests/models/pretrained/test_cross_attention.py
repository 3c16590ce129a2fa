"""BLIP and vision encoder-decoders give what transformers' generate gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BlipForConditionalGeneration, VisionEncoderDecoderModel

from extractors.features import Frames
from models.decoding.options import DecodingOptions
from models.pretrained.attention import AttentionChoice
from models.pretrained.errors import OptionRefused, PretrainedDamaged, UnknownArchitecture
from models.pretrained.installed import PROMPTED
from models.pretrained.load import CLASSES, load_pretrained_captioner
from models.pretrained.opening import LoadSettings
from tests.models.pretrained.attention_arrays import AttentionArrays
from tests.models.pretrained.generation import SEARCHES, Generated, assert_same, generated
from tests.models.pretrained.tiny_folders import (
    ENCODERS,
    SEP,
    random_video,
    write_blip,
    write_encoder_decoder,
)

VIDEOS = [random_video(6, seed=4), random_video(6, 64, 40, seed=2), random_video(6, 33, 51, seed=3)]
#: Encoder, decoder, a seed and how much likelier than by chance captions end: some early, some not at all.
PAIRS = [
    ("vit", "gpt2", 1, 0.0),
    ("vit", "bert", 2, 3.0),
    ("deit", "bert", 2, 1.0),
    ("beit", "bert", 1, 1.0),
    ("swin", "bert", 1, 1.0),
    ("timesformer", "gpt2", 3, 0.5),
    ("timesformer", "bert", 1, 1.0),
    ("videomae", "bert", 1, 1.0),
]


def _one_frame(videos: list[Frames]) -> list[Frames]:
    """What a captioner that is shown one frame sees: the middle one."""
    return [Frames(video.pixels[3:4], video.pts[3:4], video.duration) for video in videos]


def test_blip_of_one_frame_is_generate_s(tmp_path: Path) -> None:
    folder = write_blip(tmp_path / "blip", initializer_range=0.4)
    captioner: Any = load_pretrained_captioner(folder, LoadSettings(frames=1))
    model: Any = BlipForConditionalGeneration.from_pretrained(folder).eval()

    def theirs(options: DecodingOptions) -> Generated:
        pixels = torch.cat([captioner.pixels(video.pixels) for video in _one_frame(VIDEOS)])
        return generated(model, captioner.tokenizer, options, SEP, pixel_values=pixels)

    for search in SEARCHES.values():
        assert_same(captioner, VIDEOS, search, theirs)


def test_blip_of_six_frames_reads_them_as_one_memory(tmp_path: Path) -> None:
    folder = write_blip(tmp_path / "blip", initializer_range=0.4)
    captioner: Any = load_pretrained_captioner(folder)
    model: Any = BlipForConditionalGeneration.from_pretrained(folder).eval()

    def theirs(options: DecodingOptions) -> Generated:
        with torch.no_grad():
            memory = torch.stack(
                [model.vision_model(captioner.pixels(video.pixels))[0].flatten(0, 1) for video in VIDEOS]
            )
        return generated(
            model.text_decoder,
            captioner.tokenizer,
            options,
            SEP,
            input_ids=torch.full((3, 1), model.config.text_config.bos_token_id),
            encoder_hidden_states=memory,
            encoder_attention_mask=torch.ones(memory.shape[:2], dtype=torch.long),
            eos_token_id=SEP,
            pad_token_id=0,
        )

    for search in SEARCHES.values():
        found = assert_same(captioner, VIDEOS, search, theirs)
    longest = AttentionArrays.of_caption(max(found[0], key=lambda caption: len(caption.words)))
    assert longest.times.shape == (6, 2)
    np.testing.assert_allclose(longest.temporal.sum(1), 1, atol=1e-4)


def _theirs(captioner: Any, folder: Path, options: DecodingOptions) -> Generated:
    model: Any = VisionEncoderDecoderModel.from_pretrained(folder).eval()
    of_video = model.config.encoder.model_type in ("timesformer", "videomae")
    shown = VIDEOS if of_video else _one_frame(VIDEOS)
    frames = model.config.encoder.num_frames if of_video else 1
    pixels = []
    for video in shown:
        places = ((np.arange(frames) + 0.5) * len(video) / frames).astype(int)
        pixels.append(captioner.pixels(video.pixels[places]))
    batch = torch.stack(pixels) if of_video else torch.cat(pixels)
    return generated(model, captioner.tokenizer, options, captioner.tokens.ends[0], pixel_values=batch)


@pytest.mark.parametrize(("encoder", "decoder", "seed", "end_bias"), PAIRS)
def test_encoder_decoders_are_generate_s(
    tmp_path: Path, encoder: str, decoder: str, seed: int, end_bias: float
) -> None:
    folder = write_encoder_decoder(
        tmp_path / encoder, encoder, decoder, seed=seed, end_bias=end_bias, initializer_range=0.4
    )
    captioner: Any = load_pretrained_captioner(folder, LoadSettings(frames=1))
    for search in SEARCHES.values():
        assert_same(captioner, VIDEOS, search, lambda options: _theirs(captioner, folder, options))


def test_every_encoder_is_tried() -> None:
    assert {encoder for encoder, *_ in PAIRS} == set(ENCODERS)


def test_image_encoders_see_six_frames_and_video_encoders_their_own_number(tmp_path: Path) -> None:
    counts = {}
    for encoder in ENCODERS:
        captioner: Any = load_pretrained_captioner(write_encoder_decoder(tmp_path / encoder, encoder))
        counts[encoder] = captioner.sampling.count
    assert counts == {"vit": 6, "deit": 6, "beit": 6, "swin": 6, "timesformer": 4, "videomae": 6}


def test_other_encoders_are_refused_by_name(tmp_path: Path) -> None:
    folder = write_encoder_decoder(tmp_path / "vit", "vit")
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"model_type": "vit"', '"model_type": "resnet"'))
    with pytest.raises(UnknownArchitecture, match="a resnet with a gpt2"):
        load_pretrained_captioner(folder)


def test_rollout_and_prompts_are_refused_by_name(tmp_path: Path) -> None:
    folder = write_blip(tmp_path / "blip")
    with pytest.raises(OptionRefused, match=r"^rollout: "):
        load_pretrained_captioner(folder, LoadSettings(attention=AttentionChoice(rollout=True)))
    other = write_encoder_decoder(tmp_path / "vit", "vit")
    with pytest.raises(OptionRefused, match=r"^prompt: vit takes none"):
        load_pretrained_captioner(other).caption(VIDEOS[:1], DecodingOptions(), "What is seen?")


def test_blip_goes_on_from_a_prompt_as_generate_does(tmp_path: Path) -> None:
    folder = write_blip(tmp_path / "blip", initializer_range=0.4)
    captioner: Any = load_pretrained_captioner(folder, LoadSettings(frames=1))
    model: Any = BlipForConditionalGeneration.from_pretrained(folder).eval()
    prompt = "a dog"
    words = captioner.tokenizer(prompt, add_special_tokens=False)["input_ids"]
    assert captioner.tokenizer.unk_token_id not in words
    begun = torch.tensor([[model.config.text_config.bos_token_id, *words]]).expand(3, -1)
    with torch.no_grad():
        pixels = torch.cat([captioner.pixels(video.pixels) for video in _one_frame(VIDEOS)])
        memory = model.vision_model(pixels)[0]

    class Prompted:
        """Asks as a service does, with the prompt beside the options."""

        def caption(self, videos: Any, options: DecodingOptions) -> Any:
            return captioner.caption(videos, options, prompt)

    def theirs(options: DecodingOptions) -> Generated:
        return generated(
            model.text_decoder,
            captioner.tokenizer,
            options,
            SEP,
            input_ids=begun,
            encoder_hidden_states=memory,
            encoder_attention_mask=torch.ones(memory.shape[:2], dtype=torch.long),
            eos_token_id=SEP,
            pad_token_id=0,
        )

    for search in SEARCHES.values():
        found = assert_same(Prompted(), VIDEOS, search, theirs)  # type: ignore[arg-type]
        assert found != captioner.caption(VIDEOS, search)
    for caption in found[0]:
        assert AttentionArrays.of_caption(caption).times.shape == (1, 2)


def test_a_prompt_has_no_marks_of_the_model_s_own(tmp_path: Path) -> None:
    captioner = load_pretrained_captioner(write_blip(tmp_path / "blip"))
    with pytest.raises(OptionRefused, match=r"^prompt: \[SEP\] is a mark of blip's own"):
        captioner.caption(VIDEOS[:1], DecodingOptions(), "a dog [SEP]")


def test_families_that_take_prompts_are_known_without_loading_one() -> None:
    assert {family for family, kind in CLASSES.items() if kind.takes_prompt} == PROMPTED


def test_a_processor_that_keeps_sizes_is_refused(tmp_path: Path) -> None:
    folder = write_encoder_decoder(tmp_path / "vit", "vit")
    config = folder / "preprocessor_config.json"
    config.write_text(config.read_text().replace('"do_resize": true', '"do_resize": false'))
    with pytest.raises(PretrainedDamaged, match="does not resize"):
        load_pretrained_captioner(folder)
