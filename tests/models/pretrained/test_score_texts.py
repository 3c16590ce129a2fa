"""How likely a pretrained captioner finds a text that somebody wrote: by reading it, token by token."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, CLIPImageProcessor, GitForCausalLM

from extractors.features import Footage, Frames, FrameSize
from models.decoding.options import DecodingOptions
from models.pretrained.captioner import TEXTS
from models.pretrained.load import load_pretrained_captioner
from tests.models.pretrained.tiny_folders import (
    CLS,
    SEP,
    random_video,
    write_blip,
    write_encoder_decoder,
    write_git,
)
from tests.models.pretrained.tiny_vlm import WRITERS

VIDEOS = [random_video(6, seed=4), random_video(6, 64, 40, seed=2)]
TEXT = ["the red dog runs", "a dog", "", "a cat 's guitar in the park .", "unheard of", "cats", "play"]
FAMILIES: dict[str, Callable[[Path], Path]] = {
    "git": write_git,
    "blip": write_blip,
    "encoder_decoder": lambda folder: write_encoder_decoder(folder, "vit", "gpt2", 1, 0.0),
    "smolvlm": lambda folder: WRITERS["smolvlm"](folder, seed=2, end_bias=1.0),
    "qwen2_5_vl": lambda folder: WRITERS["qwen2_5_vl"](folder, seed=1, end_bias=1.0),
}


@pytest.fixture(scope="module", params=FAMILIES)
def captioner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    name = str(request.param)
    return load_pretrained_captioner(FAMILIES[name](tmp_path_factory.mktemp(name) / name))


def test_git_reads_a_text_as_the_model_does_token_by_token(tmp_path: Path) -> None:
    """Written with transformers alone: each token's probability, from a pass over those before it."""
    folder = write_git(tmp_path / "tiny-git")
    model, processor = (
        GitForCausalLM.from_pretrained(folder).eval(),
        CLIPImageProcessor.from_pretrained(folder),
    )
    found = load_pretrained_captioner(folder).score_texts(VIDEOS, [TEXT, TEXT[:2]])
    assert [len(of_video) for of_video in found] == [len(TEXT), 2]
    for video, of_video in zip(VIDEOS, found, strict=True):
        pixels = processor(list(video.pixels), return_tensors="pt").pixel_values[None]
        for text, score in zip(TEXT, of_video, strict=False):
            ids = [*AutoTokenizer.from_pretrained(folder)(text, add_special_tokens=False).input_ids, SEP]
            total = 0.0
            for place, token in enumerate(ids):
                given = torch.tensor([[CLS, *ids[:place]]])
                with torch.no_grad():
                    logits = model(input_ids=given, pixel_values=pixels).logits[0, -1]
                total += float(logits.log_softmax(0)[token])
            assert score == pytest.approx(total / (len(text.split()) + 1), abs=1e-4)


def test_what_it_wrote_it_finds_as_likely_as_when_it_wrote_it(
    captioner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the search had found these texts: random weights write nothing that a tokenizer spells."""
    texts = ["the red dog runs", "a dog", "cats", "play in the park"]
    written = captioner._padded([captioner._tokens_of(text) for text in texts] * len(VIDEOS))
    monkeypatch.setattr(captioner, "_generate", lambda *_: written)
    options = DecodingOptions(num_captions=len(texts), length_penalty=0.0, attention=False)
    for video, captions in zip(VIDEOS, captioner.caption(VIDEOS, options), strict=True):
        (scores,) = captioner.score_texts([video], [[each.text for each in captions]])
        assert len(scores) == len(texts)
        for each, score in zip(captions, scores, strict=True):
            assert score * (len(each.text.split()) + 1) == pytest.approx(each.score, abs=1e-3)


def test_other_texts_and_other_videos_change_nothing(captioner: Any) -> None:
    assert len(TEXT) > TEXTS, "more than one pass"
    together = captioner.score_texts(VIDEOS, [TEXT, TEXT[::-1][:3]])
    alone = [
        [captioner.score_texts([video], [[text]])[0][0] for text in texts]
        for video, texts in zip(VIDEOS, [TEXT, TEXT[::-1][:3]], strict=True)
    ]
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)
    assert all(score < 0 for of_video in together for score in of_video)


def test_videos_are_encoded_once_for_captions_and_scores(
    captioner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = DecodingOptions(beam_size=2, num_captions=2, max_length=5, explanation="attention")
    captions, scores = captioner.caption(VIDEOS, options), captioner.score_texts(VIDEOS, [TEXT, TEXT])
    encoded = captioner.encode(VIDEOS)
    monkeypatch.setattr(captioner, "_encode", None)
    assert captioner.caption(encoded, options) == captions
    assert captioner.score_texts(encoded, [TEXT, TEXT]) == scores


def test_a_space_stands_before_the_first_word_where_the_template_ends_in_one(tmp_path: Path) -> None:
    """``Assistant:`` is followed by a space, a line break is not."""
    leading = {}
    for name in ("smolvlm", "qwen2_5_vl"):
        captioner: Any = load_pretrained_captioner(WRITERS[name](tmp_path / name))
        end = captioner.tokens.ends[0]
        leading[name] = captioner.tokenizer.decode(captioner._tokens_of("a dog")[:-1])
        assert captioner._tokens_of("a dog")[-1] == end
        assert captioner._tokens_of("") == [end]
    chats = {name: name == "smolvlm" for name in leading}
    assert {name: text.startswith(" ") for name, text in leading.items()} == chats


def test_it_sees_the_frames_that_it_is_decoded_alone(captioner: Any) -> None:
    """Of a joint decode that has them in several sizes."""
    size = FrameSize(captioner.request.short_side)
    video = VIDEOS[0]
    larger = video.pixels.repeat(2, 1).repeat(2, 2)
    joint = Footage(larger, video.pts, video.duration, sized={size: video.pixels})
    alone = Frames(video.pixels, video.pts, video.duration)
    assert captioner.score_texts([joint], [TEXT]) == captioner.score_texts([alone], [TEXT])
