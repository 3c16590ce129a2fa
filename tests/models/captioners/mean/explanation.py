"""Explains a caption by a part of each kind."""

from __future__ import annotations

from models.caption import (
    ExplanationPart,
    MomentsExplanation,
    NamedChoice,
    TableColumn,
    TableExplanation,
    TextExplanation,
    WeightsExplanation,
)
from models.captioner import CaptionSteps

THIRDS = [NamedChoice(name=name, title=f"the {name}") for name in ("left", "middle", "right")]
COLUMNS = [
    TableColumn(name="text", title="caption", role="text"),
    TableColumn(name="merit", title="merit", role="measure"),
]


def explain(caption: CaptionSteps) -> list[ExplanationPart]:
    words = range(len(caption.steps.temporal))
    first = [[caption.moment(0, 1.0)] for _ in words]
    shares = [[0.2, 0.3, 0.5] for _ in words]
    return [
        MomentsExplanation(name="firsts", title="The first moment", words=first),
        WeightsExplanation(name="thirds", title="Thirds", over="choices", choices=THIRDS, words=list(shares)),
        TextExplanation(name="said", title="In a word", caption=caption.text),
        TableExplanation(
            name="others", title="Others", columns=COLUMNS, caption=[{"text": "a dog", "merit": 0.5}]
        ),
    ]
