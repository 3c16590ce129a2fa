"""The interface of every pretrained captioner, and the way that all share: choose frames, encode them, let
transformers generate, read what was written once more for log-probabilities and attention, join words.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from transformers import GenerationConfig

from extractors.features import Footage, Frames, FrameSize
from extractors.media.request import DecodeRequest
from extractors.windows import Sampling
from models.caption import AttentionDocument, Caption, ScoredWord
from models.decoding.length_penalty import LengthPenalty
from models.decoding.options import DecodingOptions
from models.evidence.evidence import find_evidence
from models.pretrained.attention import AttentionChoice, AttentionRecorder
from models.pretrained.chosen_frames import ChosenFrames
from models.pretrained.errors import NotANumber, OptionRefused
from models.pretrained.evidence import FrameReader
from models.pretrained.folder import PretrainedInfo
from models.pretrained.options import SpecialTokens, check_options, generation_config
from models.pretrained.token_map import TokenMap
from models.pretrained.words import TokenWords, split_words

EncodedT = TypeVar("EncodedT")
#: Texts a video that are read in one pass: what is read together costs memory, and so many captions are.
TEXTS = 5


@dataclass(frozen=True, eq=False)
class ReadBack:
    """Holds what a model predicts of captions that it reads. logits: (R, L, V), which predict each token.

    attention: (R, L, keys), what is attended to where each token is predicted; None where nothing recorded.
    """

    logits: Tensor
    attention: Tensor | None


@dataclass(frozen=True, eq=False)
class WrittenCaption:
    """Holds a caption with its tokens, its end included where it has one."""

    caption: Caption
    tokens: Sequence[int]


@dataclass(frozen=True, eq=False)
class EncodedVideos(Generic[EncodedT]):
    """Holds videos as one captioner has encoded them. chosen: the frames that it was shown. prompt: its."""

    chosen: Sequence[ChosenFrames]
    encoded: EncodedT
    prompt: str | None = None


class PretrainedCaptioner(ABC, Generic[EncodedT]):
    """From frames to captions, by a model of transformers. Made by ``load_pretrained_captioner``.

    takes_prompt: whether it can be asked something, or goes on from words that it is given.
    cross_attention: whether it looks at frames by attention of its own, which has no rollout.
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
        self.choice.of(self.attention_modules())

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
    def has_fixed_length(self) -> bool:
        """Whether it takes videos of one number of frames alone."""
        return False

    @property
    def sampling(self) -> Sampling:
        """When it looks at a video, which is how its ``request`` chooses frames."""
        assert self.request.sampling is not None
        return self.request.sampling

    @torch.inference_mode()
    def encode(self, videos: Sequence[Frames], prompt: str | None = None) -> EncodedVideos[EncodedT]:
        """Encodes several videos, to be captioned and to have texts scored, once for both.

        Args:
            videos: Decoded by ``request``, or by one that asks for more; one at least.
            prompt: What a video-language model is asked, by default the captioner's own, and what BLIP goes
                on from; others take none.

        Raises:
            OptionRefused: A prompt for a captioner that takes none, or one with a mark of the model's own.
        """
        if prompt is not None:
            self._check_prompt(prompt)
        chosen = [self._choose(self._as_decoded_alone(video)) for video in videos]
        return EncodedVideos(chosen, self._encode(chosen, prompt), prompt)

    @torch.inference_mode()
    def caption(
        self,
        videos: Sequence[Frames] | EncodedVideos[EncodedT],
        options: DecodingOptions,
        prompt: str | None = None,
    ) -> list[list[Caption]]:
        """Captions several videos together.

        Args:
            videos: As for ``encode``, or what it made of them.
            options: As for any captioner; ``max_length`` counts tokens, of which a word may have several.
            prompt: As for ``encode``.

        Returns:
            For each video its best ``options.num_captions`` captions, best first. ``Caption.score`` is the
            model's log-probability, the end token's too, over n^length_penalty.

        Raises:
            OptionRefused: An option that pretrained captioners do not have.
            NotANumber: The model's probabilities are not numbers.
        """
        if not isinstance(videos, EncodedVideos):
            if not videos:
                return []
            videos = self.encode(videos, prompt)
        written = self.write(videos, options)
        return [
            [self.explain(videos, video, best, options), *(each.caption for each in others)]
            for video, (best, *others) in enumerate(written)
        ]

    @torch.inference_mode()
    def write(self, videos: EncodedVideos[EncodedT], options: DecodingOptions) -> list[list[WrittenCaption]]:
        """Writes captions as ``caption`` does, of what ``encode`` made: with attention where the options ask
        for it, and no evidence yet.
        """
        check_options(options)
        encoded = videos.encoded
        with torch.random.fork_rng(self._devices(), enabled=options.method == "sample"):
            if options.seed is not None and options.method == "sample":
                torch.manual_seed(options.seed)
            written = self._generate(encoded, generation_config(options, self.tokens))
        captions = _until_end(written.tolist(), self.tokens)
        is_looking = options.attention and options.explanation != "evidence"
        read = self._read_back(encoded, self._padded(captions), is_looking)
        return self._to_captions(encoded, videos.chosen, captions, read, options)

    @torch.inference_mode()
    def explain(
        self, videos: EncodedVideos[EncodedT], video: int, written: WrittenCaption, options: DecodingOptions
    ) -> Caption:
        """Adds to a caption what each of its words needs, where the options ask for it.

        Args:
            videos: As ``encode`` made them.
            video: The place of the caption's video among them.
            written: One of the captions of that video.
            options: Those that it was written by.

        Returns:
            The caption with evidence beside the attention that it has.
        """
        caption = written.caption
        if not options.attention or options.explanation == "attention":
            return caption
        frames, words = videos.chosen[video], [each.word for each in caption.words]
        tokens = self._place_tokens(videos.encoded, video, frames)
        document = caption.attention or tokens.without_attention(words, frames)
        reader = FrameReader(
            frames,
            split_words(self.tokenizer, self._without_end(written.tokens)),
            partial(self._score_tokens, tokens=written.tokens, prompt=videos.prompt),
            tokens.frames_each,
            self.has_fixed_length,
        )
        evidence = find_evidence(reader, words, len(document.times), tokens.places)
        return caption.model_copy(update={"attention": document.model_copy(update={"evidence": evidence})})

    def _check_prompt(self, prompt: str) -> None:
        """Raises OptionRefused: a mark that stands for frames or ends a turn would not be read as a word."""
        if not self.takes_prompt:
            raise OptionRefused("prompt", f"{self.name} takes none")
        added = self.tokenizer.added_tokens_decoder.values()
        marks = {*self.tokenizer.all_special_tokens, *(str(token) for token in added if token.special)}
        if refused := next((mark for mark in sorted(marks) if mark in prompt), None):
            raise OptionRefused("prompt", f"{refused} is a mark of {self.name}'s own")

    @torch.inference_mode()
    def score_texts(
        self, videos: Sequence[Frames] | EncodedVideos[EncodedT], texts: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        """Computes how likely texts, one or more of each video, are as captions by reading them (teacher
        forcing).

        Returns for each video its texts' log-probability a word: that of all tokens and of the end token,
        over the number of words between white space and one for the end. Raises NotANumber where one is none.
        """
        if not isinstance(videos, EncodedVideos):
            videos = self.encode(videos)
        most = max(len(of_video) for of_video in texts)
        likelihoods: list[list[float]] = [[] for _ in texts]
        for begin in range(0, most, TEXTS):
            # every video has as many rows; what fills them up is cut off below
            rows = min(TEXTS, most - begin)
            part = [[*of_video[begin:], *[""] * rows][:rows] for of_video in texts]
            for of_texts, new in zip(likelihoods, self._score_part(videos.encoded, part), strict=True):
                of_texts.extend(new)
        return [scores[: len(of_video)] for scores, of_video in zip(likelihoods, texts, strict=True)]

    def read_captions(
        self, videos: Sequence[Frames], texts: Sequence[Sequence[str]], most: int
    ) -> tuple[Tensor, Tensor]:
        """Reads captions so that their decoder can learn: frames are encoded without gradients, texts with.

        Args:
            videos: B, as for ``encode``.
            texts: R each, as many of every video.
            most: Tokens of a caption; longer ones are cut.

        Returns:
            Logits (B · R, L, V) and the tokens (B · R, L) that they predict, ends included, -100 behind.
        """
        with torch.no_grad():
            encoded = self._encode([self._choose(self._as_decoded_alone(video)) for video in videos], None)
        tokens = [self._tokens_of(text)[:most] for of_video in texts for text in of_video]
        padded = self._padded(tokens)
        lengths = torch.tensor([len(each) for each in tokens], device=self.device)
        behind = torch.arange(padded.shape[1], device=self.device) >= lengths[:, None]
        return self._read_back(encoded, padded, False).logits, padded.masked_fill(behind, -100)

    def _score_part(self, encoded: EncodedT, texts: Sequence[Sequence[str]]) -> list[list[float]]:
        """Scores equally many texts of each video."""
        flat = [text for of_video in texts for text in of_video]
        tokens = [self._tokens_of(text) for text in flat]
        padded = self._padded(tokens)
        logprobs = _logprobs(self._read_back(encoded, padded, False).logits, padded, 1.0)
        scores = [
            sum(of_text[: len(ids)]) / (len(text.split()) + 1)
            for of_text, ids, text in zip(logprobs, tokens, flat, strict=True)
        ]
        each = len(flat) // len(texts)
        return [scores[begin : begin + each] for begin in range(0, len(flat), each)]

    def _score_tokens(
        self, videos: Sequence[ChosenFrames], tokens: Sequence[int], prompt: str | None
    ) -> list[list[float]]:
        """Computes the log-probability of each of a caption's tokens for each of several videos."""
        padded = self._padded([tokens] * len(videos))
        return _logprobs(self._read_back(self._encode(videos, prompt), padded, False).logits, padded, 1.0)

    def _without_end(self, tokens: Sequence[int]) -> Sequence[int]:
        return tokens[:-1] if tokens and tokens[-1] in self.tokens.ends else tokens

    def _tokens_of(self, text: str) -> list[int]:
        """Spells a text as the model would write it, its end token included."""
        spelt = f"{self._before_text}{text}" if text else ""
        return [*self.tokenizer(spelt, add_special_tokens=False)["input_ids"], self.tokens.ends[0]]

    @property
    def _before_text(self) -> str:
        """Returns what stands between what a model is given and its first word."""
        return ""

    def _as_decoded_alone(self, video: Frames) -> Frames:
        """Finds the frames in the size that ``request`` asks for, where they were decoded in several."""
        return video.at(FrameSize(self.request.short_side)) if isinstance(video, Footage) else video

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
        """Writes (R, L) tokens, the captions of a video side by side, without what they began with."""

    def _read_back(self, encoded: EncodedT, tokens: Tensor, with_attention: bool) -> ReadBack:
        """Reads finished captions (R, L), padded behind their end, and records what is attended to."""
        recorder = AttentionRecorder(self.attention_modules(), self.choice, tokens.shape[1])
        logits = self._predict(encoded, tokens, recorder if with_attention else nullcontext())
        return ReadBack(logits, recorder.weights() if with_attention else None)

    @abstractmethod
    def _predict(self, encoded: EncodedT, tokens: Tensor, recording: AbstractContextManager[Any]) -> Tensor:
        """Computes the logits (R, L, V) of each of the tokens (R, L), in one pass within ``recording``."""

    @abstractmethod
    def attention_modules(self) -> Sequence[nn.Module]:
        """Returns the decoder's modules that look at visual tokens, the lowest layer first."""

    @abstractmethod
    def _token_map(self, encoded: EncodedT, video: int, frames: ChosenFrames) -> TokenMap:
        """Finds the visual tokens of a video among the recorded keys."""

    def _place_tokens(self, encoded: EncodedT, video: int, frames: ChosenFrames) -> TokenMap:
        """Finds them where they lie in the displayed frames."""
        return self._token_map(encoded, video, frames).placed_within(frames.view)

    def _start_tokens(self, rows: int) -> Tensor:
        """Makes (R, 1), what captions begin with."""
        return torch.full((rows, 1), self.tokens.start or 0, device=self.device)

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
    ) -> list[list[WrittenCaption]]:
        logprobs = _logprobs(read.logits, self._padded(captions), options.temperature)
        each = len(captions) // len(chosen)
        by_video: list[list[WrittenCaption]] = []
        for video, frames in enumerate(chosen):
            rows = range(video * each, (video + 1) * each)
            looked = None if read.attention is None else self._place_tokens(encoded, video, frames)
            of_video = [
                self._to_caption(captions[row], logprobs[row], options)
                if looked is None or read.attention is None
                else self._to_caption(
                    captions[row], logprobs[row], options, (looked, frames, read.attention[row])
                )
                for row in rows
            ]
            written = map(WrittenCaption, of_video, (captions[row] for row in rows))
            by_video.append(sorted(written, key=lambda each: -each.caption.score))
        return by_video

    def _to_caption(
        self,
        tokens: Sequence[int],
        logprobs: Sequence[float],
        options: DecodingOptions,
        looked: tuple[TokenMap, ChosenFrames, Tensor] | None = None,
    ) -> Caption:
        """Makes the caption of one row of the batch, whose lists are padded to the longest."""
        inner = self._without_end(tokens)
        words = split_words(self.tokenizer, inner)
        exponent = LengthPenalty.parse(options.length_penalty).exponent
        score = sum(logprobs[: len(tokens)]) / max(1, len(tokens)) ** exponent
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
    """Returns the captions with their end token, without padding; one that was cut has no end token."""
    ends = [next((place for place, token in enumerate(row) if token in tokens.ends), None) for row in rows]
    return [list(row if end is None else row[: end + 1]) for row, end in zip(rows, ends, strict=True)]


def _logprobs(logits: Tensor, tokens: Tensor, temperature: float) -> list[list[float]]:
    """Computes (R, L) log-probabilities of each token given those before it. Raises NotANumber."""
    normed = (logits.float() / temperature).log_softmax(2)
    of_tokens = normed.gather(2, tokens[:, :, None])[:, :, 0]
    if of_tokens.isnan().any():
        raise NotANumber("The model's probabilities are not numbers.")
    rows: list[list[float]] = of_tokens.tolist()
    return rows
