"""Video-language models give what transformers' generate gives, in batches of prompts of several lengths."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from extractors.features import Frames
from models.decoding.options import DecodingOptions
from models.pretrained.attention import AttentionChoice
from models.pretrained.errors import OptionRefused, PretrainedDamaged
from models.pretrained.families.video_language import VideoLanguageCaptioner
from models.pretrained.load import load_pretrained_captioner
from models.pretrained.opening import LoadSettings
from tests.models.pretrained.attention_arrays import AttentionArrays
from tests.models.pretrained.generation import SEARCHES, Generated, assert_same, generated
from tests.models.pretrained.tiny_folders import random_video
from tests.models.pretrained.tiny_vlm import WRITERS

VIDEOS = [
    random_video(6, seed=4, seconds=6.0),
    random_video(3, 64, 40, seconds=3.0, seed=2),
    random_video(4, 33, 51, seconds=4.0, seed=3),
]
#: Instants at which each looks, of a video of so many seconds: its own rate with eight frames at most.
INSTANTS: dict[str, Callable[[int], Sequence[float]]] = {
    "smolvlm": range,
    "qwen2_5_vl": lambda seconds: [place * max(0.5, seconds / 8) for place in range(min(2 * seconds, 8))],
    "qwen3_vl": lambda seconds: [place * max(0.5, seconds / 8) for place in range(min(2 * seconds, 8))],
    "internvl": lambda seconds: [(place + 0.5) * seconds / 8 for place in range(8)],
}
#: Seeds and how much longer the end token's row of the output is: some captions end early, some not at all.
SEEDS: dict[str, tuple[int, float]] = {
    "smolvlm": (2, 1.0),
    "qwen2_5_vl": (1, 1.0),
    "qwen3_vl": (1, 1.0),
    "internvl": (1, 1.0),
}
QUESTION = "What is seen?"


def test_a_prompt_cannot_stand_for_frames(tmp_path: Path) -> None:
    captioner: Any = load_pretrained_captioner(WRITERS["smolvlm"](tmp_path / "smolvlm"))
    mark = captioner.tokenizer.convert_ids_to_tokens(captioner._visual_token)
    with pytest.raises(OptionRefused, match="is a mark of smolvlm's own"):
        captioner.caption(VIDEOS[:1], DecodingOptions(), f"What is {mark}?")


@pytest.fixture(params=WRITERS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(name: str, tmp_path: Path) -> Path:
    seed, end_bias = SEEDS[name]
    return WRITERS[name](tmp_path / name, seed=seed, end_bias=end_bias)


def theirs_alone(
    name: str, folder: Path, ends: Sequence[int], video: Frames, options: DecodingOptions
) -> Generated:
    """What ``generate`` writes for one prompt, which the processor made of the frames and their times."""
    model: Any = AutoModelForImageTextToText.from_pretrained(folder).eval()
    processor: Any = AutoProcessor.from_pretrained(folder)
    chat = [{"role": "user", "content": [{"type": "video"}, {"type": "text", "text": QUESTION}]}]
    text = processor.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    places = [int(instant + 1e-6) for instant in INSTANTS[name](int(video.duration))]
    metadata = {
        "fps": 1.0,
        "frames_indices": places,
        "total_num_frames": len(video),
        "duration": video.duration,
    }
    given = processor(
        text=[text],
        videos=[list(video.pixels[places])],
        video_metadata=[metadata],
        do_sample_frames=False,
        return_tensors="pt",
    )
    known = {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}
    return generated(model, processor.tokenizer, options, ends, **known)


def test_a_padded_batch_gives_what_generate_gives_alone(name: str, folder: Path) -> None:
    captioner = load_pretrained_captioner(folder, LoadSettings(prompt=QUESTION))

    def theirs(options: DecodingOptions) -> Generated:
        alone = [theirs_alone(name, folder, captioner.tokens.ends, video, options) for video in VIDEOS]
        return Generated(
            [text for each in alone for text in each.texts],
            [score for each in alone for score in each.scores],
            [length for each in alone for length in each.lengths],
        )

    for search in SEARCHES.values():
        assert_same(captioner, VIDEOS, search, theirs)
    prompts = captioner._encode([captioner._choose(video) for video in VIDEOS], None)
    lengths = {prompt.ids.shape[1] for prompt in prompts}
    assert len(lengths) == (1 if name == "internvl" else 3), "InternVL alone is shown always as many frames"


def test_another_question_gives_another_answer(name: str, folder: Path) -> None:
    captioner = load_pretrained_captioner(folder)
    options = DecodingOptions(method="greedy", max_length=6)
    asked = [captioner.caption(VIDEOS[:1], options, prompt)[0][0].text for prompt in (None, "Who sings?")]
    assert asked[0] != asked[1]


def test_moments_and_grid_are_the_model_s(name: str, folder: Path) -> None:
    captioner = load_pretrained_captioner(folder)
    ((found,),) = captioner.caption(
        VIDEOS[2:], DecodingOptions(method="greedy", max_length=4, explanation="attention")
    )
    attention = AttentionArrays.of_caption(found)
    shapes = {"smolvlm": (4, 4, 4), "internvl": (4, 4, 4), "qwen2_5_vl": (4, 4, 6), "qwen3_vl": (4, 4, 6)}
    moments, rows, columns = shapes[name]
    assert attention.grid == (rows, columns)
    assert attention.times[0, 0] == 0
    assert attention.times[-1, 1] == 4
    assert attention.times.shape == (moments, 2)
    np.testing.assert_allclose(attention.temporal.sum(1), 1, atol=1e-3)


@pytest.mark.parametrize("size", [(8, 2000), (2000, 8), (3, 700), (1, 1), (2, 3), (1, 300)])
def test_frames_of_any_shape_are_captioned(folder: Path, size: tuple[int, int]) -> None:
    """Strips of lights, a pixel: processors refuse some of them."""
    captioner = load_pretrained_captioner(folder)
    ((caption,),) = captioner.caption(
        [random_video(3, *size, seconds=3.0, seed=2)], DecodingOptions(method="greedy", max_length=3)
    )
    assert caption.attention is not None
    assert caption.attention.shown.spatial is not None


def test_rollout_goes_through_the_prompt(folder: Path) -> None:
    rolled, mean = (
        load_pretrained_captioner(folder, LoadSettings(attention=AttentionChoice(rollout=rollout))).caption(
            VIDEOS[:1], DecodingOptions(method="greedy", max_length=4, explanation="attention")
        )[0][0]
        for rollout in (True, False)
    )
    assert rolled.text == mean.text
    of_rolled, of_mean = AttentionArrays.of_caption(rolled), AttentionArrays.of_caption(mean)
    np.testing.assert_allclose(of_rolled.temporal.sum(1), 1, atol=1e-4)
    assert np.abs(of_rolled.temporal - of_mean.temporal).max() > 1e-4


def test_sampling_is_repeated_by_its_seed(folder: Path) -> None:
    captioner = load_pretrained_captioner(folder)
    options = DecodingOptions(method="sample", num_captions=3, max_length=6, seed=5)
    state = torch.random.get_rng_state()
    first, second = ([each.text for each in captioner.caption(VIDEOS[:1], options)[0]] for _ in range(2))
    assert first == second
    assert len(set(first)) > 1
    assert torch.equal(state, torch.random.get_rng_state())


def test_frames_in_any_number_up_to_what_was_said(name: str, folder: Path) -> None:
    captioner = load_pretrained_captioner(folder, LoadSettings(frames=2))
    assert isinstance(captioner, VideoLanguageCaptioner)
    chosen = captioner._choose(VIDEOS[0])
    assert len(chosen) == 2


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("qwen2_5_vl", "text"),
        ("internvl", "named"),
        ("smolvlm", "without processor_config.json"),
        ("internvl", "without processor_config.json"),
    ],
)
def test_older_layouts_of_the_hub_caption_as_todays(name: str, form: str, folder: Path) -> None:
    """Templates stood with the tokenizer, and settings of pictures and videos in files of their own."""
    options = DecodingOptions(beam_size=2, max_length=6, attention=False)
    whole = load_pretrained_captioner(folder).caption(VIDEOS[:1], options)[0][0]
    if form == "without processor_config.json":
        settings = json.loads((folder / "processor_config.json").read_text())
        (folder / "processor_config.json").unlink()
        (folder / "preprocessor_config.json").write_text(json.dumps(settings["image_processor"]))
        (folder / "video_preprocessor_config.json").write_text(json.dumps(settings["video_processor"]))
    else:
        template = (folder / "chat_template.jinja").read_text()
        (folder / "chat_template.jinja").unlink()
        config = json.loads((folder / "tokenizer_config.json").read_text())
        named = [{"name": "tool_use", "template": "none"}, {"name": "default", "template": template}]
        config["chat_template"] = template if form == "text" else named
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    older = load_pretrained_captioner(folder).caption(VIDEOS[:1], options)[0][0]
    assert older.text == whole.text
    assert older.score == pytest.approx(whole.score, abs=1e-5)


def test_without_a_chat_template_it_is_refused(tmp_path: Path) -> None:
    folder = WRITERS["internvl"](tmp_path / "internvl")
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(PretrainedDamaged, match="no chat template"):
        load_pretrained_captioner(folder)
