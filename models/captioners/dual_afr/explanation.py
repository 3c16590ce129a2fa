"""Explains a caption of dualAFR: how much each level of abstraction counted for each word."""

from collections.abc import Sequence

from models.caption import ExplanationPart, NamedChoice, WeightsExplanation
from models.captioner import CaptionSteps, as_numpy, without_nothing


def explain_layers(caption: CaptionSteps, layers: Sequence[str]) -> list[ExplanationPart]:
    """Shows the layers' weights β (eq. 7) for each word but the first.

    layers: the names of their streams, from the one nearest the picture on.
    """
    choices = [
        NamedChoice(name=name, title=_describe_level(place, len(layers))) for place, name in enumerate(layers)
    ]
    return [
        WeightsExplanation(
            name="layers",
            title="Levels of detail",
            note=f"Each word weighs the layers {', '.join(layers)}.",
            over="choices",
            choices=choices,
            words=without_nothing(as_numpy(caption.steps.extras["layers"])),
            absent="The first word comes from the film as a whole.",
        )
    ]


def _describe_level(place: int, count: int) -> str:
    if place == 0:
        return "fine detail, edges and texture"
    if place == count - 1:
        return "whole things"
    return f"shapes and parts, level {place}" if count > 3 else "shapes and parts"
