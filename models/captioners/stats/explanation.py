"""Explains a caption of STaTS: how much of each word came from which branch, and where ST looked."""

from collections.abc import Sequence

from models.caption import ExplanationPart, NamedChoice, WeightsExplanation
from models.captioner import CaptionSteps, as_numpy, rounded

BRANCHES = [
    NamedChoice(name="ST", title="followed things through the whole film"),
    NamedChoice(name="TS", title="looked closely at one frame"),
]


def explain_branches(caption: CaptionSteps, streams: Sequence[str]) -> list[ExplanationPart]:
    """Shows the branches' shares of each stream, and ST's map of the first.

    streams: the names of those that have branches.
    """
    branch = as_numpy(caption.steps.extras["branch"])  # (words, streams, 2)
    shares = [
        WeightsExplanation(
            name="branch" if len(streams) == 1 else f"branch:{stream}",
            title="Two ways of looking" if len(streams) == 1 else f"Two ways of looking, {stream}",
            note="ST is the share of what was followed through time, the rest is of one frame.",
            over="choices",
            choices=BRANCHES,
            words=rounded(branch[:, place]),
        )
        for place, stream in enumerate(streams)
    ]
    followed = WeightsExplanation(
        name="st_spatial",
        title="Where things were followed",
        over="places",
        words=rounded(as_numpy(caption.steps.extras["st_spatial"][:, : caption.regions])),
    )
    return [*shares, followed]
