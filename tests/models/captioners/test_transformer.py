"""The transformer against torch's own decoder, and what it reads of stream sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
import torch
from torch import Tensor, nn

from extractors.features import Features
from models.captioners.registry import find_captioner, find_stream_set
from models.captioners.transformer.network import DecoderLayer, Transformer
from models.inputs import InputStream, collate_inputs
from models.stream_choice import StreamsDoNotFit
from models.stream_set import StreamInput, StreamSet
from models.vocabulary import BOS
from tests.models.tiny import GRID_INPUT, heard_videos, tiny_transformer, transformer_config, videos

SOUND, MOTION = InputStream(name="sound", width=3), InputStream(name="motion", width=4)
CAPTION = (4, 9, 4, 12, 3)


def state_of(layer: DecoderLayer) -> Mapping[str, Tensor]:
    """The layer's weights by the names of ``nn.TransformerDecoderLayer``."""
    parts = {
        "self_attn": (layer.word_query, layer.word_key_value, layer.word_output),
        "multihead_attn": (layer.token_query, layer.token_key_value, layer.token_output),
    }
    state = {}
    for name, (query, key_value, output) in parts.items():
        state[f"{name}.in_proj_weight"] = torch.cat([query.weight, key_value.weight])
        state[f"{name}.in_proj_bias"] = torch.cat([query.bias, key_value.bias])
        state[f"{name}.out_proj.weight"], state[f"{name}.out_proj.bias"] = output.weight, output.bias
    norms = (layer.before_words, layer.before_tokens, layer.before_forward)
    for number, norm in enumerate(norms, start=1):
        state[f"norm{number}.weight"], state[f"norm{number}.bias"] = norm.weight, norm.bias
    for number, linear in enumerate((layer.forward_1, layer.forward_2), start=1):
        state[f"linear{number}.weight"], state[f"linear{number}.bias"] = linear.weight, linear.bias
    return state


def decode_by_torch(captioner: Transformer, features: Features, words: Sequence[int]) -> Tensor:
    """Log-probabilities (words + 1, V), all words at once, under a causal mask."""
    config = captioner.config
    optional = captioner.optional_streams
    batches = collate_inputs([features], captioner.inputs, torch.device("cpu"), optional)
    end = batches[0].times[..., 1].amax(1)
    tokens = torch.cat([captioner._make_tokens(n, each, end) for n, each in enumerate(batches)], 1)
    hidden = ~torch.cat([each.region_mask.flatten(1) for each in batches], 1)
    ids = torch.tensor([[BOS, *words]])
    x = captioner.embed_words(ids) + torch.stack([captioner._place_word(n) for n in range(len(ids[0]))])
    causal = nn.Transformer.generate_square_subsequent_mask(len(ids[0]))
    for ours in captioner._decoder_layers():
        layer = nn.TransformerDecoderLayer(
            config.width, config.heads, config.feed_forward, 0.0, batch_first=True, norm_first=True
        )
        layer.load_state_dict(state_of(ours))
        x = layer.eval()(x, tokens, tgt_mask=causal, memory_key_padding_mask=hidden, tgt_is_causal=True)
    return captioner.score_words(captioner.last_norm(x)[0])


@pytest.mark.parametrize("frames", [(GRID_INPUT,), (GRID_INPUT, MOTION)], ids=["grid", "grid, motion"])
def test_step_by_step_it_is_torchs_decoder(frames: tuple[InputStream, ...]) -> None:
    captioner = tiny_transformer(transformer_config(frames=frames, sound=SOUND), seed=3)
    with torch.no_grad():
        for features in heard_videos():
            memory = captioner.encode([features])
            state, ours = captioner.start(memory, 1), []
            for word in (BOS, *CAPTION):
                log_probs, state, _ = captioner.step(state, torch.tensor([word]), memory)
                ours.append(log_probs[0])
            torch.testing.assert_close(torch.stack(ours), decode_by_torch(captioner, features, CAPTION))


def test_a_moment_is_told_from_another() -> None:
    """The same cells at another time are other tokens."""
    captioner = tiny_transformer(transformer_config(frames=(GRID_INPUT,)))
    features = videos((2,))[0]
    grid = features["grid"]
    with torch.no_grad():
        before = captioner.encode([features]).keys[0]
        grid.values[1] = grid.values[0]
        same = captioner.encode([{"grid": grid}]).keys[0]
    cells = grid.values.shape[1]
    assert not torch.allclose(same[:, :, :cells], same[:, :, cells:], atol=1e-3)
    assert torch.equal(before[:, :, :cells], same[:, :, :cells])


def test_it_reads_all_pictures_and_motion_of_a_set_and_its_sound_where_there_is_some() -> None:
    registered = find_captioner("transformer")
    config = registered.fit(transformer_config(), find_stream_set("fusion"))
    named = [each.name for each in config.streams]  # type: ignore[attr-defined]
    assert named[0] == "resnext101"
    assert "roi:ircsn152@mask_rcnn:10" in named
    assert named[-1] == "vggish"
    demo = registered.fit(transformer_config(), find_stream_set("demo-motion"))
    streams = [each.name for each in demo.streams]  # type: ignore[attr-defined]
    assert streams == ["tuned_pair_grid", "i3d_brief_grid", "roi:tuned_pair@coco_ssd:10"]
    alone = StreamSet("heard", "any", (StreamInput("vggish", "vggish", 128, kind="sound"),), "ours")
    with pytest.raises(StreamsDoNotFit, match="reads frames"):
        registered.fit(transformer_config(), alone)
