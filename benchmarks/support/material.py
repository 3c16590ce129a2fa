"""What extractors are measured on: windows of frames, or sound, as they come from the decoder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from extractors.extractor import AnyExtractor, Extractor, SoundExtractor
from extractors.features import Audio, Frames
from extractors.media.decode import Sampling, decode_here
from extractors.media.request import DecodeRequest
from extractors.preprocessing.images import to_device
from extractors.windowing.window_extractor import WindowExtractor
from extractors.windowing.window_rows import WindowRows, join_rows, move_to_cpu

HEIGHT, WIDTH = 256, 340
#: Of a clip so much is looked at.
FRAMES, RATE = 72, 12.5
SECONDS, SOUND_RATE = 20.0, 16000


def smooth_clip() -> Tensor:
    """Frames uint8 (T, 256, 340, 3) whose colours drift; noise would not excite a network's later layers."""
    coarse = np.random.default_rng(0).uniform(0, 255, (1, 3, FRAMES // 8, 8, 10))
    fine = F.interpolate(
        torch.from_numpy(coarse).float(), (FRAMES, HEIGHT, WIDTH), mode="trilinear", align_corners=False
    )
    return fine[0].byte().permute(1, 2, 3, 0).contiguous()


def clips(folder: Path | None, most: int) -> list[Tensor]:
    """Frames uint8 (T, H, W, 3) of videos in the folder; one smooth clip without a folder."""
    if folder is None:
        return [smooth_clip()]
    request = DecodeRequest(Sampling(fps=RATE, max_frames=FRAMES), short_side=HEIGHT)
    files = sorted(file for file in folder.iterdir() if file.suffix in {".mp4", ".mkv", ".avi", ".webm"})
    return [torch.from_numpy(decode_here(file, request).frames.pixels) for file in files[:most]]


def windows(extractor: AnyExtractor, clip: Tensor, count: int) -> Tensor:
    """uint8 (count, S, h, w, 3), spread over the clip, prepared as the extractor wants them.

    Of sound there is nothing to prepare: the windows are seconds, uint8 (count, 0).
    """
    if "audio" in extractor.needs:
        return torch.zeros(count, 0, dtype=torch.uint8)
    if not isinstance(extractor, WindowExtractor):
        return clip[torch.linspace(0, len(clip) - 1, count).long()][:, None]
    length = extractor.windows.cut(1.0, 1.0).index.shape[1]
    first = torch.linspace(0, max(0, len(clip) - length), count).long()
    place = (first[:, None] + torch.arange(length)).clamp(max=len(clip) - 1)
    used, index = torch.unique(place, return_inverse=True)
    prepared = extractor.prepare(to_device(clip[used].numpy(), extractor.device))
    return prepared[index]


def extract(extractor: AnyExtractor, stacks: Tensor) -> Mapping[str, WindowRows]:
    """Stream name → rows of windows, on the CPU, ``batch`` of them a forward pass."""
    if isinstance(extractor, WindowExtractor):
        batches = torch.split(stacks, extractor.batch)
        parts = [move_to_cpu(extractor.extract_windows(batch)) for batch in batches]
        return {name: join_rows([part[name] for part in parts]) for name in parts[0]}
    seconds = float(len(stacks))
    if "audio" in extractor.needs:
        noise = np.random.default_rng(0).normal(0, 0.1, round(seconds * SOUND_RATE)).astype(np.float32)
        streams = cast(SoundExtractor, extractor).extract(Audio(noise, SOUND_RATE), seconds)
    else:
        assert "frames" in extractor.needs, "streams made of streams are not measured"
        frames = Frames(stacks[:, 0].numpy(), np.arange(len(stacks), dtype=np.float64), seconds)
        (streams,) = cast(Extractor, extractor).extract([frames])
    return {name: WindowRows(stream.values) for name, stream in streams.items()}
