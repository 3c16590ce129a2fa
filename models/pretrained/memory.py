"""Estimates from a configuration what captioning one video takes beside a model's weights.

Counted are the three things that are large: what one layer of the image encoder holds of all frames, the
decoder's keys and values for each beam, and the weights of one eager attention over them, in which GIT reads
images once for all beams.
docs/results/pretrained.md has estimates beside what was measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

#: Frames that a model is shown where its kind leaves that open, beams, and tokens of a prompt with a caption.
FRAMES, BEAMS, TEXT = 8, 5, 120
FLOAT = 4


@dataclass(frozen=True)
class _Stack:
    """Layers of a transformer as configurations of any family name them."""

    layers: int
    width: int
    inner: int
    heads: int
    key_width: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        width = _first(config, "hidden_size", "n_embd", "embed_dim", default=768)
        heads = _first(config, "num_attention_heads", "n_head", "num_heads", default=12)
        keys = _first(config, "num_key_value_heads", default=heads)
        return cls(
            layers=_first(config, "num_hidden_layers", "n_layer", "depth", default=12),
            width=width,
            inner=_first(config, "intermediate_size", "n_inner", default=4 * width),
            heads=heads,
            key_width=keys * _first(config, "head_dim", default=width // heads),
        )


def working_memory(config: Mapping[str, Any]) -> int:
    """Estimates the bytes in float32 for one video with a beam of five.

    Returns an estimate, above what is needed where beams end early.
    """
    vision_config = config.get("vision_config") or config.get("encoder") or {}
    text_config = config.get("text_config") or config.get("decoder") or config
    vision, text = _Stack.of(vision_config), _Stack.of(text_config)
    frames = _first(config, "num_image_with_embedding", default=0)
    frames = frames or _first(vision_config, "num_frames", default=FRAMES)
    patches = _patches(vision_config)
    seen = frames * _merged(config, vision_config, patches)
    encoding = frames * patches * (vision.inner + 6 * vision.width + vision.heads * patches)
    keys = 2 * BEAMS * (seen + TEXT) * text.layers * 2 * text.key_width
    in_one_attention = "decoder" not in config and config.get("model_type") != "blip"
    of_images = (1 if config.get("model_type") == "git" else BEAMS) * (seen if in_one_attention else 0)
    queries = of_images + BEAMS * TEXT
    attending = queries * (2 * text.heads * (seen + TEXT) + text.inner)
    words = 3 * BEAMS * TEXT * _first(text_config, "vocab_size", default=50_000)
    return FLOAT * (encoding + keys + attending + words)


def _patches(vision: Mapping[str, Any]) -> int:
    """Counts a frame's patches before merging; models of any size are taken to see 448 pixels square."""
    pixels = _first(vision, "image_size", default=448)
    return max(1, pixels // _first(vision, "patch_size", default=16)) ** 2


def _merged(config: Mapping[str, Any], vision: Mapping[str, Any], patches: int) -> int:
    """Counts the visual tokens of one frame in the decoder."""
    merged = float(config.get("scale_factor") or 1)
    each_way = merged if merged >= 1 else 1 / merged
    each_way = max(each_way, _first(vision, "spatial_merge_size", default=1))
    return 1 + int(patches / each_way**2 / _first(vision, "temporal_patch_size", default=1))


def _first(config: Mapping[str, Any], *names: str, default: int) -> int:
    """Returns the first number of several names; of a size with two sides, the first."""
    for name in names:
        value = config.get(name)
        if isinstance(value, list | tuple) and value:
            value = value[0]
        if isinstance(value, int | float) and value > 0:
            return int(value)
    return default
