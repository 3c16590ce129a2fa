"""The interface of every pretrained captioner, and the way that all share: choose frames, encode them, let
transformers generate, read what was written once more for log-probabilities and attention, join words.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from transformers import GenerationConfig

from extractors.features import Frames
from extractors.media.request import DecodeRequest
from extractors.windows import Sampling
from models.caption import AttentionDocument, Caption, ScoredWord
from models.decoding.options import DecodingOptions
from models.pretrained.attention import AttentionChoice, AttentionRecorder
from models.pretrained.chosen_frames import ChosenFrames
from models.pretrained.errors import NotANumber, OptionRefused
from models.pretrained.folder import PretrainedInfo
from models.pretrained.options import SpecialTokens, check_options, generation_config, penalty_exponent
from models.pretrained.token_map import TokenMap
from models.pretrained.words import TokenWords, split_words

EncodedT = TypeVar("EncodedT")


@dataclass(frozen=True, eq=False)
class ReadBack:
    """Holds what a model says of captions that it reads. logits: (R, L, V), those that predict each token.

    attention: (R, L, keys), what is attended to where each token is predicted; None where nothing recorded.
    """

    logits: Tensor
    attention: Tensor | None


class PretrainedCaptioner(ABC, Generic[EncodedT]):
    """From frames to captions, by a model of transformers. Made by ``load_pretrained_captioner``.

    takes_prompt: whether it can be asked something. cross_attention: whether it looks at frames by attention
    of its own, which has no rollout.
    """

    takes_prompt: ClassVar[bool] = False
    cross_attention: ClassVar[bool] = False

    def __init__(self, info: PretrainedInfo, model: Any, tokenizer: Any, attention: AttentionChoice) -> None:
        """Takes over a loaded model.

        Args:
            info: What its folder holds.
            model: Of transformers, in eval mode.
            tokenizer: The model's.
            attention: Which of its attention is shown.

        Raises:
            OptionRefused: A rollout of cross-attention.
        """
        if attention.rollout and self.cross_attention:
            raise OptionRefused("rollout", f"is for self-attention, and {info.name} looks by cross-attention")
        self.info, self.model, self.tokenizer, self.choice = info, model, tokenizer, attention
        self.choice.of(self._attention_modules())

    @property
    def name(self) -> str:
        """Its name among captioners."""
        return self.info.name

    @property
    def device(self) -> torch.device:
        """The device that its weights lie on."""
        device: torch.device = self.model.device
        return device

    @property
    @abstractmethod
    def request(self) -> DecodeRequest:
        """The frames that it is to be given; more, and larger ones, do no harm."""

    @property
    def sampling(self) -> Sampling:
        """When it looks at a video, which is how its ``request`` chooses frames."""
        assert self.request.sampling is not None
        return self.request.sampling

    @torch.inference_mode()
    def caption(
        self, videos: Sequence[Frames], options: DecodingOptions, prompt: str | None = None
    ) -> list[list[Caption]]:
        """Captions several videos together.

        Args:
            videos: Decoded by ``request``, or by one that asks for more.
            options: As for any captioner; ``max_length`` counts tokens, of which a word may have several.
            prompt: What a video-language model is asked, by default the captioner's own; others take none.

        Returns:
            For each video its best ``options.num_captions`` captions, best first. ``Caption.score`` is the
            model's log-probability, the end token's too, over n^length_penalty.

        Raises:
            OptionRefused: An option that pretrained captioners do not have.
            NotANumber: The model's probabilities are not numbers.
        """
        check_options(options)
        if prompt is not None and not self.takes_prompt:
            raise OptionRefused("prompt", f"{self.name} is no video-language model and takes none")
        if not videos:
            return []
        chosen = [self._choose(video) for video in videos]
        encoded = self._encode(chosen, prompt)
        with torch.random.fork_rng(self._devices(), enabled=options.method == "sample"):
            if options.seed is not None and options.method == "sample":
                torch.manual_seed(options.seed)
            written = self._generate(encoded, generation_config(options, self.tokens))
        captions = _until_end(written.tolist(), self.tokens)
        read = self._read_back(encoded, self._padded(captions), options.attention)
        return self._to_captions(encoded, chosen, captions, read, options)

    @property
    @abstractmethod
    def tokens(self) -> SpecialTokens:
        """The model's special tokens."""

    def _choose(self, video: Frames) -> ChosenFrames:
        return ChosenFrames.of(video, self.sampling)

    @abstractmethod
    def _encode(self, videos: Sequence[ChosenFrames], prompt: str | None) -> EncodedT:
        """Encodes what all captions of the videos are written from."""

    @abstractmethod
    def _generate(self, encoded: EncodedT, config: GenerationConfig) -> Tensor:
        """(R, L) tokens written, the captions of a video side by side, without what they began with."""

    @abstractmethod
    def _read_back(self, encoded: EncodedT, tokens: Tensor, with_attention: bool) -> ReadBack:
        """Reads finished captions in one pass.

        Args:
            encoded: The videos.
            tokens: (R, L), padded behind their end.
            with_attention: Whether to record it.

        Returns:
            The logits, and what the chosen layers attend to.
        """

    @abstractmethod
    def _attention_modules(self) -> Sequence[nn.Module]:
        """Those of the decoder that look at visual tokens, the lowest layer first."""

    @abstractmethod
    def _token_map(self, encoded: EncodedT, video: int, frames: ChosenFrames) -> TokenMap:
        """Finds the visual tokens of a video among the recorded keys."""

    def _recorder(self, queries: slice) -> AttentionRecorder:
        return AttentionRecorder(self._attention_modules(), self.choice, queries)

    def _devices(self) -> list[torch.device]:
        return [self.device] if self.device.type == "cuda" else []

    def _padded(self, captions: Sequence[Sequence[int]]) -> Tensor:
        longest = max(1, *(len(each) for each in captions))
        rows = [[*each, *[self.tokens.pad] * (longest - len(each))] for each in captions]
        return torch.tensor(rows, device=self.device)

    def _to_captions(
        self,
        encoded: EncodedT,
        chosen: Sequence[ChosenFrames],
        captions: Sequence[Sequence[int]],
        read: ReadBack,
        options: DecodingOptions,
    ) -> list[list[Caption]]:
        logprobs = _logprobs(read.logits, self._padded(captions), options.temperature)
        each = len(captions) // len(chosen)
        found: list[list[Caption]] = []
        for video, frames in enumerate(chosen):
            rows = range(video * each, (video + 1) * each)
            looked = None if read.attention is None else self._token_map(encoded, video, frames)
            of_video = [
                self._to_caption(captions[row], logprobs[row], options)
                if looked is None or read.attention is None
                else self._to_caption(
                    captions[row], logprobs[row], options, (looked, frames, read.attention[row])
                )
                for row in rows
            ]
            found.append(sorted(of_video, key=lambda caption: -caption.score))
        return found

    def _to_caption(
        self,
        tokens: Sequence[int],
        logprobs: Sequence[float],
        options: DecodingOptions,
        looked: tuple[TokenMap, ChosenFrames, Tensor] | None = None,
    ) -> Caption:
        """One row of the batch, whose lists are padded to the longest."""
        inner = tokens[:-1] if tokens and tokens[-1] in self.tokens.ends else tokens
        words = split_words(self.tokenizer, inner)
        score = sum(logprobs[: len(tokens)]) / max(1, len(tokens)) ** penalty_exponent(options)
        scored = [
            ScoredWord(word=word, logprob=round(logprob, 5))
            for word, logprob in zip(words.words, words.summed(logprobs), strict=True)
        ]
        attention = None if looked is None else _attention(words, len(inner), *looked)
        text = " ".join(words.words)
        return Caption(text=text, score=round(score, 5), words=scored, attention=attention)


def _attention(
    words: TokenWords, tokens: int, looked: TokenMap, frames: ChosenFrames, weights: Tensor
) -> AttentionDocument:
    rows = weights[:tokens].to("cpu", torch.float64).numpy()
    return looked.attention(words.words, words.averaged(np.asarray(rows)), frames)


def _until_end(rows: Sequence[Sequence[int]], tokens: SpecialTokens) -> list[list[int]]:
    """Captions with their end token, without what pads them; one that was cut has no end token."""
    ends = [next((place for place, token in enumerate(row) if token in tokens.ends), None) for row in rows]
    return [list(row if end is None else row[: end + 1]) for row, end in zip(rows, ends, strict=True)]


def _logprobs(logits: Tensor, tokens: Tensor, temperature: float) -> list[list[float]]:
    """(R, L) natural logarithms of each token's probability given those before it. Raises NotANumber."""
    normed = (logits.float() / temperature).log_softmax(2)
    found = normed.gather(2, tokens[:, :, None])[:, :, 0]
    if found.isnan().any():
        raise NotANumber("The model's probabilities are not numbers.")
    rows: list[list[float]] = found.tolist()
    return rows
