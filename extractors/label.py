"""Names what a network recognises in a video: an action, a kind of thing, or a thing and its place."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from extractors.features import StreamSpec, View
from extractors.networks.labels import COCO_80, IMAGENET, KINETICS_400

#: What a label was recognised by: neighbouring frames, a single frame, or a part of one.
LabelKind: TypeAlias = Literal["motion", "picture", "box"]
#: The classes of each kind; a row of the stream ``labels`` names both by their places here.
NAMES: Mapping[LabelKind, tuple[str, ...]] = {"motion": KINETICS_400, "picture": IMAGENET, "box": COCO_80}
KINDS: tuple[LabelKind, ...] = tuple(NAMES)


@dataclass(frozen=True)
class Label:
    """One class that a network recognises, how surely, when and where.

    name: the class, as its data set calls it. kind: what it was recognised by. probability: in [0, 1].
    start, end: seconds of the video in which it is seen. box: its place in [0, 1] of the displayed frame,
    None for a label of the whole picture. spec: the network, its weights and its preprocessing.
    """

    name: str
    kind: LabelKind
    probability: float
    start: float
    end: float
    box: View | None
    spec: StreamSpec
