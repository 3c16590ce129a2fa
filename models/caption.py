"""Declares what comes out: captions, their words, and from which moment and place each comes.

Decoding ends in these values and the API answers with them as they are: they are declared here and nowhere
else, and made of plain numbers, so that the API's image carries this one file without torch or numpy. Absent
members are null, never missing.
"""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, computed_field, field_validator

Weights = list[float]
#: Chinese characters, as a range of a regular expression.
HAN = "\u3400-\u4dbf\u4e00-\u9fff"
_TWO_HAN = re.compile(f"[{HAN}]{{2}}")
#: [word][moment][place]; null for a word, and for a moment of one, that has none.
PlaceWeights = list[list[Weights | None] | None]


def join_words(words: Sequence[str]) -> str:
    """Joins words to a sentence: ``man 's`` is written ``man's``, and Chinese without spaces."""
    return "".join(words[:1]) + "".join(space_between(*pair) + pair[1] for pair in pairwise(words))


def space_between(word: str, following: str) -> str:
    """Returns what stands between two words of a sentence: a space, or nothing."""
    return "" if following.startswith("'") or _TWO_HAN.match(word[-1:] + following[:1]) else " "


class Part(BaseModel, frozen=True):
    """Is a part of a caption or of its attention."""


class GridAttention(Part):
    """Holds weights over the cells of a grid, within each moment."""

    kind: Literal["grid"]
    rows: int = Field(ge=1)
    columns: int = Field(ge=1)
    weights: PlaceWeights = Field(description="[word][moment][cell], cells row by row.")
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
    weights: PlaceWeights = Field(description="[word][moment][box].")
    boxes: list[list[Weights]] = Field(description="[moment][box], x0 y0 x1 y1 in [0, 1] of the picture.")


class ChosenMoment(Part):
    """Names a moment that a captioner chose."""

    moment: int = Field(ge=0, description="Its place in `times`, and in spatial.weights of a word.")
    time: float = Field(description="Seconds, its start.")
    end: float | None = Field(None, description="Seconds, where it lasts.")
    weight: float | None = Field(None, description="Of the attention that chose it.")
    title: str | None = Field(None, description="What it was chosen as, in a visitor's words.")
    text: str | None = Field(None, description="What was read in it, or written from it.")
    box: Weights | None = Field(None, description="Where in the picture: x0 y0 x1 y1 in [0, 1].")

    def lasts(self, time: float) -> bool:
        """Tells whether it is there at a time, in seconds."""
        return self.end is not None and self.time <= time <= self.end

    def on_clock(self, clock_of: Callable[[float], float]) -> Self:
        """Returns the moment with its times on another clock, ``clock_of`` seconds of this one."""
        end = None if self.end is None else round(clock_of(self.end), 4)
        return self.model_copy(update={"time": round(clock_of(self.time), 4), "end": end})


class NamedChoice(Part):
    """Names one of several things that weights are over, or a column of a table."""

    name: str
    title: str = Field(description="The same in a visitor's words.")


class Explanation(Part):
    """Is what a captioner shows beside the two maps: one part, drawn by its kind alone."""

    name: str = Field(description="By which a client finds it.")
    title: str = Field(description="Its heading.")
    note: str = Field("", description="A sentence or two about it.")

    def on_clock(self, clock_of: Callable[[float], float]) -> Self:  # noqa: ARG002
        """Returns the part with its times on another clock, ``clock_of`` seconds of this one."""
        return self


class MomentsExplanation(Explanation):
    """Shows moments that were chosen."""

    kind: Literal["moments"] = "moments"
    caption: list[ChosenMoment] | None = Field(None, description="Of the caption as a whole, in their order.")
    words: list[list[ChosenMoment]] | None = Field(None, description="[word], of each word, rising.")

    def on_clock(self, clock_of: Callable[[float], float]) -> Self:
        def move(chosen: list[ChosenMoment]) -> list[ChosenMoment]:
            return [each.on_clock(clock_of) for each in chosen]

        moved = {
            "caption": self.caption and move(self.caption),
            "words": self.words and list(map(move, self.words)),
        }
        return self.model_copy(update=moved)


class WeightsExplanation(Explanation):
    """Shows weights that sum to one."""

    kind: Literal["weights"] = "weights"
    over: Literal["choices", "moments", "places"] = Field(
        description="Named choices, the moments of `times`, or the cells or boxes of `spatial`."
    )
    choices: list[NamedChoice] | None = Field(None, description="[choice], of weights over choices.")
    caption: Weights | None = Field(None, description="[choice, moment or place], of the caption as a whole.")
    words: list[Weights | None] | None = Field(
        None, description="[word][choice, moment or place]; null for a word that has none."
    )
    absent: str = Field("", description="What is said of a word that has none.")


class TextExplanation(Explanation):
    """Shows sentences."""

    kind: Literal["text"] = "text"
    caption: str | None = Field(None, description="Of the caption as a whole.")
    words: list[str | None] | None = Field(None, description="[word], of each word.")
    items: list[str] = Field([], description="The names in it.")


class TableColumn(NamedChoice):
    """Says what a column of a table is for."""

    role: Literal["text", "measure", "aside", "data"] = Field(
        description="The row's sentence, what rows are ranked by, what is shown beside them, or not shown."
    )


TableRow = dict[str, str | int | float | Weights | None]


class TableExplanation(Explanation):
    """Shows rows, the best first."""

    kind: Literal["table"] = "table"
    columns: list[TableColumn]
    caption: list[TableRow] | None = Field(None, description="[row], by the columns' names, of the caption.")
    words: list[list[TableRow]] | None = Field(None, description="[word][row], of each word.")


ExplanationPart = Annotated[
    MomentsExplanation | WeightsExplanation | TextExplanation | TableExplanation, Field(discriminator="kind")
]


class WordMaps(Part):
    """Holds for each word of a caption weights over moments, and over places within them.

    Null for a word that has none.
    """

    temporal: list[Weights | None] = Field(description="[word][moment], each row sums to one.")
    entropy: list[float | None] | None = Field(
        None, description="[word], of `temporal`, normalised: 0 for one moment alone, 1 for all alike."
    )
    spread: list[bool] | None = Field(
        None, description="[word], whether `temporal` is so even that it names no moment: it is all along."
    )
    spatial: Annotated[GridAttention | BoxAttention, Field(discriminator="kind")] | None = None

    def find_drawn_moment(self, word: int) -> int | None:
        """Finds the heaviest of a word's moments that have places, or of all where none has; None of none."""
        weights = self.temporal[word]
        if not weights:
            return None
        places = None if self.spatial is None else self.spatial.weights[word]
        moments = range(len(weights))
        return max(
            [k for k in moments if places and places[k] is not None] or moments, key=weights.__getitem__
        )


class Evidence(WordMaps):
    """Tells which moment and place each content word needs: function words have none.

    Weights are by how likely the word is where the film is that moment, or that place of it, alone. So they
    tell what the word needs, and not where the network looked.
    """

    moments: list[int | None] = Field(
        description="[word], the place in `times` of its moment; null for a function word, and for one that "
        "is all along."
    )
    boxes: list[Weights | None] = Field(
        description="[word], where its place is a box: x0 y0 x1 y1 in [0, 1] of the picture."
    )
    unplaced: list[bool] | None = Field(
        None, description="[word], whether its weights over places are so even that they name no place."
    )


class WordPlace(Part):
    """Tells which moment and place a word is shown at, everywhere: page, pictures, client and exports."""

    moment: int | None = Field(description="Its place in `times`; null for a word that is all along.")
    start: float | None = Field(
        None, description="Seconds: of its moment, or of its label where that is all."
    )
    end: float | None = None
    label: str | None = Field(None, description="What was recognised then that the word is of.")
    box: Weights | None = Field(None, description="Its place, where that is a box: x0 y0 x1 y1 in [0, 1].")


def _leave_out_of_required(schema: dict[str, Any]) -> None:
    """Describes ``located`` as optional: answers that an earlier version has kept are without it."""
    if "located" in schema.get("required", ()):
        schema["required"].remove("located")


class AttentionDocument(WordMaps, json_schema_extra=_leave_out_of_required):
    """Tells the moments and places of each word of a video's best caption.

    ``evidence`` is what each word needs; the maps beside it are where the captioner looked. A job has those
    that its option ``explanation`` asks for.
    """

    words: list[str]
    content: list[bool] | None = Field(
        None,
        description="[word], whether it names something; false for articles, prepositions and their like.",
    )
    times: list[Weights] = Field(description="[moment], start and end in seconds.")
    parts: list[Weights] | None = Field(
        None, description="[moment], the part of the clip that it stands for: start and end in seconds."
    )
    extras: list[ExplanationPart] = Field([], description="What the captioner shows beside, part by part.")
    evidence: Evidence | None = Field(
        None, description="On the same moments; null where it was not asked for."
    )

    @field_validator("extras", mode="before")
    @classmethod
    def _leave_out_members(cls, value: object) -> object:
        """Leaves out what documents have that were kept before extras were parts: one member a captioner."""
        return [] if isinstance(value, dict) else value

    @property
    def shown(self) -> Self:
        """The document with evidence, where there is some, in the place of attention: what is drawn."""
        if self.evidence is None:
            return self
        return self.model_copy(update={name: getattr(self.evidence, name) for name in WordMaps.model_fields})

    @computed_field(description="[word], where each is shown.")  # type: ignore[prop-decorator]
    @property
    def located(self) -> list[WordPlace]:
        """The moment and place of each word, as `locate` decides them."""
        return [self.locate(word) for word in range(len(self.words))]

    def locate(self, word: int) -> WordPlace:
        """Decides the moment, the time and the place that a word is shown at.

        Its moment is the one that it needs most, without evidence the one looked at most; of a word that is
        all along the label's. Its time is the moment's, or the label's where moment or box are the label's.
        """
        label, evidence = self._find_label(word), self.evidence
        box = evidence and evidence.boxes[word]
        moment = self._find_moment(word)
        if label is not None and (moment is None or label.box):
            shown, box = label.moment, label.box or box
            return WordPlace(moment=shown, start=label.time, end=label.end, label=label.text, box=box)
        start, end = (None, None) if moment is None else self.clip_parts()[moment]
        return WordPlace(moment=moment, start=start, end=end, label=label and label.text, box=box)

    def _find_moment(self, word: int) -> int | None:
        if self.evidence is not None:
            return self.evidence.moments[word]
        return None if self.is_spread(word) else self.find_drawn_moment(word)

    def _find_label(self, word: int) -> ChosenMoment | None:
        """Finds the label that a word is of, put on the word's own moment; None without evidence.

        It lasts while the word's moment does, or the word is all along; one with a box goes before others.
        """
        if self.evidence is None:
            return None
        needed, parts = self.evidence.moments[word], self.clip_parts()
        labels = [
            each
            for each in self._list_moments(word)
            if each.text and (needed is None or each.moment == needed or each.lasts(sum(parts[needed]) / 2))
        ]
        best = max(labels, key=lambda each: (each.box is not None, each.weight or 0.0), default=None)
        return best if best is None or needed is None else best.model_copy(update={"moment": needed})

    def _list_moments(self, word: int) -> list[ChosenMoment]:
        parts = (part for part in self.extras if isinstance(part, MomentsExplanation) and part.words)
        return [each for part in parts for each in (part.words or [])[word]]

    @property
    def drawn_words(self) -> list[int]:
        """The places of the words that are drawn: beside evidence those that have some, else all."""
        content = self.content if self.evidence is not None else None
        return [word for word in range(len(self.words)) if content is None or content[word]]

    def find_places(self, word: int, moment: int) -> Weights | None:
        """Finds a word's weights over the cells or boxes of a moment; None where they name no place."""
        evidence, rows = self.evidence, None if self.spatial is None else self.spatial.weights[word]
        is_even = evidence is not None and evidence.unplaced is not None and evidence.unplaced[word]
        return None if rows is None or is_even else rows[moment]

    def list_chosen(self, word: int) -> list[ChosenMoment]:
        """Lists the moments that were chosen for a word, each once, rising.

        Beside evidence its label alone, others being of the attention.
        """
        if self.evidence is not None:
            label = self._find_label(word)
            return [] if label is None else [label]
        chosen = {each.moment: each for each in self._list_moments(word)}
        return [chosen[k] for k in sorted(chosen)]

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
    """Holds a caption, and of a video's best the moments and places of its words, if they were asked for."""

    attention: AttentionDocument | None = None
