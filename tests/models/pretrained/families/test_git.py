"""GIT gives what transformers' generate gives, and its attention lies where the frames were."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoTokenizer, CLIPImageProcessor, GitForCausalLM

from extractors.features import Frames, place_within
from models.caption import Caption, GridAttention
from models.decoding.options import DecodingOptions
from models.pretrained.attention import AttentionChoice
from models.pretrained.errors import NotANumber
from models.pretrained.families.git import GitCaptioner
from models.pretrained.load import load_pretrained_captioner
from models.pretrained.opening import LoadSettings
from tests.models.pretrained.attention_arrays import AttentionArrays
from tests.models.pretrained.generation import SEARCHES, Generated, assert_same, generated
from tests.models.pretrained.tiny_folders import SEP, random_video, write_git

VIDEOS = [random_video(6, seed=4), random_video(6, 64, 40, seed=2), random_video(6, 33, 51, seed=3)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_git(tmp_path_factory.mktemp("models") / "tiny-git")


@pytest.fixture(scope="module")
def captioner(folder: Path) -> GitCaptioner:
    found = load_pretrained_captioner(folder)
    assert isinstance(found, GitCaptioner)
    return found


def _theirs(folder: Path, videos: list[Frames], options: DecodingOptions) -> Generated:
    model, processor = (
        GitForCausalLM.from_pretrained(folder).eval(),
        CLIPImageProcessor.from_pretrained(folder),
    )
    pixels = [processor(list(video.pixels), return_tensors="pt").pixel_values for video in videos]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return generated(model, tokenizer, options, SEP, pixel_values=torch.stack(pixels))


def _weights(found: Caption) -> NDArray[np.float64]:
    """(words, moments, cells)."""
    attention = AttentionArrays.of_caption(found)
    joint: NDArray[np.float64] = attention.temporal[..., None] * attention.spatial
    return joint


@pytest.mark.parametrize("search", SEARCHES)
def test_captions_and_scores_are_those_of_generate(
    folder: Path, captioner: GitCaptioner, search: str
) -> None:
    assert_same(captioner, VIDEOS, SEARCHES[search], lambda options: _theirs(folder, VIDEOS, options))


def test_a_cut_caption_s_words_sum_to_its_score(captioner: GitCaptioner) -> None:
    options = DecodingOptions(method="greedy", max_length=3, length_penalty=0.0)
    for (found,) in captioner.caption(VIDEOS, options):
        assert sum(word.logprob for word in found.words) == pytest.approx(found.score, abs=1e-4)


def test_a_beam_and_a_video_alone_give_what_the_batch_gives(captioner: GitCaptioner) -> None:
    options = SEARCHES["beam"]
    together = captioner.caption(VIDEOS, options)
    for video, of_batch in zip(VIDEOS, together, strict=True):
        (alone,) = captioner.caption([video], options)
        assert [each.text for each in alone] == [each.text for each in of_batch]
        for one, other in zip(alone, of_batch, strict=True):
            np.testing.assert_allclose(_weights(one), _weights(other), atol=1e-5)


@pytest.mark.parametrize("search", ["greedy", "beam"])
def test_images_are_read_once_for_all_beams_and_all_captions(captioner: GitCaptioner, search: str) -> None:
    """Once to write, and once to read back what was written."""
    read: list[int] = []

    def count(_: object, given: tuple[Tensor, ...]) -> None:
        if given[0].shape[1] > 6 * 17:
            read.append(len(given[0]))

    hook = captioner.model.git.encoder.layer[0].register_forward_pre_hook(count)
    try:
        captioner.caption(VIDEOS, SEARCHES[search])
    finally:
        hook.remove()
    assert read == [len(VIDEOS)] * 2


def test_texts_read_behind_images_are_what_they_are_in_one_pass(captioner: GitCaptioner) -> None:
    with torch.inference_mode():
        encoded = captioner.encode(VIDEOS).encoded
        given = torch.randint(5, 20, (6, 7), generator=torch.Generator().manual_seed(1))
        with captioner._reading(encoded):
            one = captioner._read_behind_images(encoded, given, 2, nullcontext())
            other = captioner._read_whole(encoded, given, 2, nullcontext())
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_encoder_and_decoder_are_in_their_places_again(captioner: GitCaptioner) -> None:
    git = captioner.model.git
    before = (git.image_encoder, git.encoder)
    captioner.caption(VIDEOS[:1], SEARCHES["beam"])
    assert (git.image_encoder, git.encoder) == before


def test_a_video_of_two_frames_is_shown_them_as_six_and_told_as_two(captioner: GitCaptioner) -> None:
    ((found,),) = captioner.caption([random_video(2, seconds=1.0)], SEARCHES["greedy"])
    attention = AttentionArrays.of_caption(found)
    np.testing.assert_allclose(attention.times, [[0, 0.5], [0.5, 1]])
    np.testing.assert_allclose(attention.temporal.sum(1), 1, atol=1e-4)
    assert attention.grid == (4, 4)


def test_six_frames_are_asked_for_in_the_processor_s_size(captioner: GitCaptioner) -> None:
    assert captioner.sampling.count == 6
    assert captioner.request.short_side == 32


def test_a_git_of_pictures_sees_the_middle_frame(tmp_path: Path) -> None:
    folder = write_git(tmp_path / "tiny-git-coco", frames=None)
    captioner = load_pretrained_captioner(folder)
    video = random_video(5, seconds=5.0)
    ((found,),) = captioner.caption([video], SEARCHES["greedy"])
    model, processor = (
        GitForCausalLM.from_pretrained(folder).eval(),
        CLIPImageProcessor.from_pretrained(folder),
    )
    pixels = processor(video.pixels[2], return_tensors="pt").pixel_values
    theirs = generated(model, captioner.tokenizer, SEARCHES["greedy"], SEP, pixel_values=pixels)
    assert [found.text] == theirs.texts
    assert found.attention is not None
    np.testing.assert_allclose(found.attention.times, [[2, 5]])


def test_layers_heads_and_rollout_are_chosen(folder: Path, captioner: GitCaptioner) -> None:
    def attention(choice: AttentionChoice) -> NDArray[np.float64]:
        chosen = load_pretrained_captioner(folder, LoadSettings(attention=choice))
        ((found,),) = chosen.caption(VIDEOS[:1], SEARCHES["greedy"])
        return _weights(found)

    upper, lower = attention(AttentionChoice(layers=(1,))), attention(AttentionChoice(layers=(0,)))
    np.testing.assert_array_equal(attention(AttentionChoice()), upper)
    assert np.abs(upper - lower).max() > 0.01
    heads = [attention(AttentionChoice(layers=(1,), heads=(head,))) for head in (0, 1)]
    assert np.abs(heads[0] - heads[1]).max() > 0.01
    rolled = attention(AttentionChoice(rollout=True))
    np.testing.assert_allclose(rolled.sum((1, 2)), 1, atol=1e-3)
    assert np.abs(rolled - upper).max() > 0.001
    with pytest.raises(ValueError, match="layers must be some of 0 to 1"):
        attention(AttentionChoice(layers=(2,)))


def test_rollout_is_the_product_of_the_layers(folder: Path) -> None:
    chosen = load_pretrained_captioner(folder, LoadSettings(attention=AttentionChoice(rollout=True)))
    options = DecodingOptions(method="greedy", max_length=1, explanation="attention")
    ((found,),) = chosen.caption(VIDEOS[:1], options)
    model = chosen.model
    with torch.inference_mode():
        pixels = CLIPImageProcessor.from_pretrained(folder)(list(VIDEOS[0].pixels), return_tensors="pt")
        output = model(
            input_ids=torch.tensor([[2]]), pixel_values=pixels.pixel_values[None], output_attentions=True
        )
    first, second = (layer[0].mean(0).double() for layer in output.attentions)
    eye = torch.eye(len(first))
    rolled = ((second + eye) / 2 @ ((first + eye) / 2))[-1, :102].view(6, 17)[:, 1:]
    attention = AttentionArrays.of_caption(found)
    np.testing.assert_allclose(attention.temporal[0], (rolled.sum(1) / rolled.sum()).numpy(), atol=1e-5)


def test_maps_of_a_part_of_the_frame_are_placed_in_the_frame(folder: Path) -> None:
    """Its bars were left out: caption and weights stay, and places are those of the whole frame."""
    captioner, view = load_pretrained_captioner(folder), (0.25, 0.0, 0.75, 1.0)
    options = DecodingOptions(method="greedy", max_length=2, explanation="both")
    ((alone,),), ((part,),) = (
        captioner.caption([video], options) for video in (VIDEOS[0], replace(VIDEOS[0], view=view))
    )
    assert alone.attention is not None
    assert part.attention is not None
    assert part.text == alone.text
    for one, other in (
        (alone.attention.spatial, part.attention.spatial),
        (alone.attention.shown.spatial, part.attention.shown.spatial),
    ):
        assert isinstance(one, GridAttention)
        assert isinstance(other, GridAttention)
        assert other.weights == one.weights
        (rows, columns), (other_rows, other_columns) = one.edges(), other.edges()
        assert other_rows == rows
        assert other_columns == pytest.approx([0.25 + x / 2 for x in columns], abs=1e-4)
        assert other.view == pytest.approx(place_within(view, one.view), abs=1e-4)


@pytest.mark.parametrize("method", ["beam", "greedy", "sample"])
def test_a_weight_that_is_infinite_is_named_however_words_are_chosen(
    tmp_path: Path, method: Literal["beam", "greedy", "sample"]
) -> None:
    folder = write_git(tmp_path / "infinite")
    weights = load_file(folder / "model.safetensors")
    name = next(each for each in weights if each.endswith("word_embeddings.weight"))
    weights[name][5:] = torch.inf
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    captioner = load_pretrained_captioner(folder)
    with pytest.raises(NotANumber):
        captioner.caption(VIDEOS[:1], DecodingOptions(method=method, max_length=5))
