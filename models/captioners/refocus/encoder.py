"""Encodes videos as refocus does: from the middle frame outwards, and again from the key frame (algorithm 1).

Equation and algorithm numbers are those of the paper of models/captioners/refocus/network.py.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models.captioners.attention_layers import BilinearAttention
from models.captioners.refocus.config import RefocusConfig
from models.inputs import Batch, average_regions
from models.memory import Memory


@dataclass(frozen=True, eq=False)
class VideoEncoding(Memory):
    """Holds what algorithm 1 makes of B videos of K frames."""

    o_1: Tensor  # (B, H)
    o_2: Tensor  # (B, H)
    scores: Tensor  # (B, K): a of eq. 8
    default_key: Tensor  # (B,)
    key: Tensor  # (B,)


class KBiGRU(nn.Module):
    """Runs two GRUs from a key frame to either end (eqs. 5-7)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.leftward, self.rightward = nn.GRUCell(width, hidden), nn.GRUCell(width, hidden)
        self.W_c = nn.Linear(2 * hidden, hidden)

    def forward(self, frames: Tensor, mask: Tensor, key: Tensor, most: int) -> Tensor:
        """Encodes videos from their key frames outwards.

        Args:
            frames: (B, K, d).
            mask: bool (B, K), the frames that there are.
            key: (B,), where to start.
            most: How many frames at most lie before or behind any of these.

        Returns:
            (B, H).
        """
        last = (mask.sum(1) - 1).clamp(min=0)
        left = self._run(self.leftward, frames, key, -1, key, most)
        right = self._run(self.rightward, frames, key, 1, last - key, most)
        combined: Tensor = torch.tanh(self.W_c(torch.cat([left, right], 1)))
        return combined

    def _run(
        self, gru: nn.GRUCell, frames: Tensor, key: Tensor, way: int, steps: Tensor, most: int
    ) -> Tensor:
        """Runs from the key frame ``steps`` (B,) further; a video that has arrived keeps its state.

        In training ``most`` steps are taken: to ask a GPU how many there are would wait for it.
        """
        h = frames.new_zeros(frames.shape[0], gru.hidden_size)
        videos = torch.arange(frames.shape[0], device=frames.device)
        for i in range((most if self.training else int(steps.max())) + 1):
            going = i <= steps
            at = (key + way * i).clamp(0, frames.shape[1] - 1)
            h = torch.where(going.unsqueeze(1), gru(frames[videos, at], h), h)
        return h


class VideoRefocusingEncoder(nn.Module):
    """Runs algorithm 1, from a grid's values to both encodings and the key frame."""

    def __init__(self, config: RefocusConfig) -> None:
        super().__init__()
        d, H = config.width, config.hidden
        self.twice = config.encoder == "vre"
        self.kbigru = KBiGRU(d, H)
        self.W_a = nn.Linear(H + config.audio_width, H)
        if self.twice:
            self.refocusing = BilinearAttention(H, d, config.attention, bias=False)
            self.W_m = nn.Linear(2 * H, H)

    def forward(
        self, frames: Tensor, mask: Tensor, audio: Tensor, times: Tensor, key: Tensor | None
    ) -> VideoEncoding:
        """Encodes videos from the middle frame, picks the key frame, and encodes them again from there.

        Args:
            frames: (B, K, d), V^f.
            mask: bool (B, K), the frames that there are.
            audio: (B, d_audio), v^a.
            times: (B, K, 2) seconds.
            key: (B,) key frames that are known, None to predict them (eqs. 9-11).

        Returns:
            Both encodings, the scores of eq. 8 and the key frames.
        """
        middle, most = mask.sum(1) // 2, frames.shape[1] - 1
        h_1 = self.kbigru(frames, mask, middle, frames.shape[1] // 2)
        o_1 = torch.tanh(self.W_a(torch.cat([h_1, audio], 1)))
        if not self.twice:
            return VideoEncoding(times, o_1, o_1, torch.zeros_like(frames[..., 0]), middle, middle)
        scores = self.refocusing.score(o_1, self.refocusing.make_keys(frames)).float()  # eq. 8
        if key is None:
            key = scores.masked_fill(~mask, -torch.inf).argmax(1)  # eqs. 9-11
        h_2 = self.kbigru(frames, mask, key, most)
        both = torch.tanh(self.W_m(torch.cat([h_1, h_2], 1)))
        o_2 = torch.tanh(self.W_a(torch.cat([both, audio], 1)))
        return VideoEncoding(times, o_1, o_2, scores, middle, key)


class VideoEncoder(nn.Module):
    """Makes V^f, v^s and what algorithm 1 makes of them; what a frozen key frame needs in one piece."""

    def __init__(self, config: RefocusConfig) -> None:
        super().__init__()
        self.embed: nn.Module = nn.Identity()
        if config.embedded is not None:
            linear = nn.Linear(config.grid.width, config.embedded)
            self.embed = nn.Sequential(linear, nn.ReLU(), nn.Dropout(config.dropout))
        self.vre = None if config.encoder == "none" else VideoRefocusingEncoder(config)
        self.hidden = config.hidden

    def encode_frames(self, grid: Batch) -> Tensor:
        """Computes V^f (B, K, d), eq. 2."""
        frames: Tensor = self.embed(average_regions(grid)) * grid.frame_mask.unsqueeze(2)
        return frames

    def encode(self, frames: Tensor, grid: Batch, audio: Tensor, key: Tensor | None) -> VideoEncoding:
        """Runs algorithm 1 where the configuration has it.

        Args:
            frames: (B, K, d), V^f.
            grid: The batch that they were made of.
            audio: (B, d_audio), v^a.
            key: (B,) key frames that are known, None to predict them.

        Returns:
            The encodings; zeros without an encoder.
        """
        if self.vre is None:
            nothing, middle = frames.new_zeros(len(frames), self.hidden), grid.frame_mask.sum(1) // 2
            return VideoEncoding(
                grid.times, nothing, nothing, torch.zeros_like(frames[..., 0]), middle, middle
            )
        encoding: VideoEncoding = self.vre(frames, grid.frame_mask, audio, grid.times, key)
        return encoding
