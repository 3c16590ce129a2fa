"""Declares what comes out: captions, their words, and where the captioner looked for each.

Decoding ends in these values and the API answers with them as they are: they are declared here and nowhere
else, and made of plain numbers, so that the API's image carries this one file without torch or numpy. Absent
members are null, never missing.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Weights = list[float]


class Part(BaseModel):
    """Is a part of a caption or of its attention."""

    model_config = ConfigDict(frozen=True)


class GridAttention(Part):
    """Holds weights over the cells of a grid, within each moment."""

    kind: Literal["grid"]
    rows: int = Field(ge=1)
    columns: int = Field(ge=1)
    weights: list[list[Weights] | None] = Field(description="[word][moment][cell], cells row by row.")
    view: tuple[float, float, float, float] = Field(
        (0.0, 0.0, 1.0, 1.0),
        description="The part of the picture that the network saw: x0 y0 x1 y1 in [0, 1].",
    )
    row_edges: Weights | None = Field(
        None, description="[row] and one more: where each row begins and the last ends, in [0, 1]."
    )
    column_edges: Weights | None = Field(
        None, description="[column] and one more: where each column begins and the last ends."
    )

    def edges(self) -> tuple[Weights, Weights]:
        """Tells where rows and columns begin and end.

        Even within the view in documents that were kept before there were edges.
        """
        x0, y0, x1, y1 = self.view
        rows = self.row_edges or [y0 + (y1 - y0) * k / self.rows for k in range(self.rows + 1)]
        return rows, self.column_edges or [x0 + (x1 - x0) * k / self.columns for k in range(self.columns + 1)]


class BoxAttention(Part):
    """Holds weights over boxes, within each moment."""

    kind: Literal["boxes"]
    weights: list[list[Weights] | None] = Field(description="[word][moment][box].")
    boxes: list[list[Weights]] = Field(description="[moment][box], x0 y0 x1 y1 in [0, 1] of the picture.")


class ChosenMoment(Part):
    """Names a moment that a captioner chose."""

    moment: int = Field(ge=0, description="Its place in `times`, and in spatial.weights of a word.")
    time: float = Field(description="Seconds, its start.")
    weight: float = Field(description="Of the attention that chose it.")


class LayerWeights(Part):
    """Holds how much each level of abstraction counted for each word."""

    names: list[str] = Field(description="[layer], the streams that the layers are.")
    weights: list[Weights | None] = Field(description="[word][layer], sum to one; the first word has none.")


class NamedLabel(Part):
    """Names what a classifier said of the clip."""

    name: str = Field(description="The class, in the words of its data set.")
    source: Literal["motion", "picture", "box"] = Field(
        description="Whose class: an action by motion, a thing in the picture, or a thing in a box."
    )
    probability: float
    start: float = Field(description="Seconds: where in the clip the classifier saw it.")
    end: float
    box: Weights | None = Field(None, description="x0 y0 x1 y1 in [0, 1] of the picture, of a detector's.")


class LabelReading(Part):
    """Tells which of a clip's labels each word was written from."""

    labels: list[NamedLabel]
    weights: list[Weights] = Field(description="[word][label]; what is missing from one is no label's.")
    origins: list[int | None] = Field(
        description="[word], the label that the word is of or came from; null for a word of none."
    )


class CandidateCaption(Part):
    """Holds a caption that competed in a fusion."""

    captioner: str
    beam: int = Field(description="Its place among its captioner's own, 0 the best.")
    text: str
    score: float = Field(description="Its captioner's: log-probability over length ** length_penalty.")
    relevance: float = Field(description="Cosine of caption and video in the semantic embedding.")
    likelihood: float = Field(description="Log-probability a word, the mean over all members.")
    merit: float = Field(description="What the best is chosen by: relevance and weighted likelihood.")


class Extras(Part):
    """Holds what a captioner shows beside the two maps; null for what it does not have.

    Each captioner's ``explain`` fills in its own; app/attention_picture/captioner_panels.py and
    app/api/static/film/captioner_views.js show it.
    """

    branch: list[list[Weights]] | None = Field(
        None, description="STaTS: [word][stream], shares of ST and TS."
    )
    st_spatial: list[Weights] | None = Field(None, description="STaTS: [word][cell or box], where ST looked.")
    selected: list[list[ChosenMoment]] | None = Field(
        None, description="G2L: [word], its key frames, rising."
    )
    default_key_frame: ChosenMoment | None = Field(None, description="Refocus: where step 1 begins.")
    key_frame: ChosenMoment | None = Field(
        None, description="Refocus: the predicted one, where step 2 begins."
    )
    refocus: Weights | None = Field(None, description="Refocus: [moment], by which the key frame is chosen.")
    step_1: str | None = Field(None, description="Refocus: the caption from the default key frame.")
    step_2: str | None = Field(None, description="Refocus: the caption from the key frame, its answer.")
    layers: LayerWeights | None = Field(None, description="dualAFR: the levels of abstraction.")
    labels: LabelReading | None = Field(
        None, description="Captioners that read labels: what each word is of."
    )
    members: list[str] | None = Field(
        None, description="Ensemble: who wrote together; maps and extras are the first one's."
    )
    candidates: list[CandidateCaption] | None = Field(
        None, description="Fusion: all that competed, the best first; maps are the winner's."
    )


class AttentionDocument(Part):
    """Tells where the captioner looked for each word of its best caption.

    Null for a word without attention.
    """

    words: list[str]
    times: list[Weights] = Field(description="[moment], start and end in seconds.")
    parts: list[Weights] | None = Field(
        None, description="[moment], the part of the clip that it stands for: start and end in seconds."
    )
    temporal: list[Weights | None] = Field(description="[word][moment], each row sums to one.")
    entropy: list[float | None] | None = Field(
        None, description="[word], of `temporal`, normalised: 0 for one moment alone, 1 for all alike."
    )
    spread: list[bool] | None = Field(
        None, description="[word], whether `temporal` is so even that it names no moment."
    )
    spatial: Annotated[GridAttention | BoxAttention, Field(discriminator="kind")] | None = None
    extras: Extras = Extras()

    def clip_parts(self) -> list[Weights]:
        """Returns the moments' parts; their times in documents that were kept before there were parts."""
        return self.parts or self.times

    def is_spread(self, word: int) -> bool:
        """Tells whether a word's weights over time are nearly even."""
        return self.spread is not None and self.spread[word]


class ScoredWord(Part):
    """Holds one word and the natural logarithm of its probability given the words before it."""

    word: str
    logprob: float


class ScoredCaption(Part):
    """Holds a caption. ``score``: its log-probability over length ** length_penalty."""

    text: str
    score: float
    words: list[ScoredWord]
    confidence: float | None = Field(
        None,
        description="How often captions alike are right, in [0, 1]; null where the captioner cannot tell.",
    )


class Caption(ScoredCaption):
    """Holds a caption, and of a video's best where the captioner looked, if that was asked for."""

    attention: AttentionDocument | None = None
