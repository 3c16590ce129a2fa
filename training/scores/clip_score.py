"""Computes CLIPScore and RefCLIPScore of captions of videos, by a CLIP of a folder.

Hessel et al., "CLIPScore: A Reference-free Evaluation Metric for Image Captioning" (EMNLP 2021): 2.5 times
the cosine of caption and picture, none below zero; RefCLIPScore is its harmonic mean with the greatest
cosine of the caption with a reference. Texts begin with "A photo depicts", as in the authors' code, and are
cut at the length that the network takes. Of a video the cosine is the mean over its frames, which for one
frame is the authors' score.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from extractors.features import Frames
from training.scores.bootstrap import Floats

WEIGHT = 2.5
PREFIX = "A photo depicts "
BATCH = 64


@dataclass(frozen=True, eq=False)
class ClipEncoder:
    """Turns frames and texts into unit vectors of one space."""

    model: Any
    processor: Any

    @classmethod
    def load(cls, folder: Path, device: torch.device) -> Self:
        """Loads a CLIP offline, from safetensors alone. Raises PretrainedDamaged."""
        from transformers import CLIPModel, CLIPProcessor

        from extractors.pretrained.hub_folder import CLOSED
        from models.pretrained.opening import name_damage

        with name_damage(f"{folder} cannot be loaded as a CLIP"):
            model = CLIPModel.from_pretrained(folder, use_safetensors=True, **CLOSED)
            processor = CLIPProcessor.from_pretrained(folder, **CLOSED)
        return cls(model.eval().to(device), processor)

    @torch.inference_mode()
    def encode_frames(self, video: Frames) -> Tensor:
        """Computes (T, D) of a video's frames."""
        pictures = [Image.fromarray(pixels) for pixels in video.pixels]
        inputs = self.processor(images=pictures, return_tensors="pt").to(self.model.device)
        return F.normalize(self.model.get_image_features(**inputs).pooler_output, dim=1).cpu()

    @torch.inference_mode()
    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Computes (N, D) of captions."""
        parts = []
        for start in range(0, len(texts), BATCH):
            spelt = [f"{PREFIX}{text}" for text in texts[start : start + BATCH]]
            inputs = self.processor(
                text=spelt, return_tensors="pt", padding=True, truncation=True, max_length=self._most_tokens
            )
            vectors = self.model.get_text_features(**inputs.to(self.model.device)).pooler_output
            parts.append(F.normalize(vectors, dim=1).cpu())
        return torch.cat(parts)

    @property
    def _most_tokens(self) -> int:
        return int(self.model.config.text_config.max_position_embeddings)


def compute_clip_scores(
    encoder: ClipEncoder,
    videos: Sequence[Tensor],
    captions: Sequence[str],
    references: Sequence[Sequence[str]],
) -> tuple[Floats, Floats]:
    """Computes CLIPScore (n,) and RefCLIPScore (n,), 0 to 2.5, of n captions.

    Args:
        encoder: that made the vectors of the videos.
        videos: of each the vectors (T, D) of its frames.
        captions: one of each video.
        references: of each video, one or more.
    """
    written = encoder.encode_texts(captions)
    theirs = encoder.encode_texts([text for texts in references for text in texts])
    of_each = torch.split(theirs, [len(texts) for texts in references])
    looks = [float((frames @ text).mean()) for frames, text in zip(videos, written, strict=True)]
    nearest = [float((texts @ text).max()) for texts, text in zip(of_each, written, strict=True)]
    clip, reference = WEIGHT * np.maximum(looks, 0), np.maximum(nearest, 0)
    total = clip + reference
    return clip, np.divide(2 * clip * reference, total, out=np.zeros_like(total), where=total > 0)
