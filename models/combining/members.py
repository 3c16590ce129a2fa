"""Chooses who writes together: the captioners that fusion and ensemble are made of, by default and as named.

One rule for the service, which goes by what workers publish of their captioners, and for the evaluation,
which goes by the files.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from extractors.errors import ReelwordError
from models.captioners.registry import list_captioners
from models.checkpoint import WEIGHTS, list_checkpoints, read_card, read_vocabulary_digest

FUSION, ENSEMBLE = "fusion", "ensemble"


class WrongMembers(ReelwordError, ValueError, code="wrong_members"):
    """Members that cannot be combined as they were named, or none to combine; the message says why."""

    hint = "Name two or more captioners that reelword models lists, of one vocabulary."


class MemberFacts(Protocol):
    """Describes a captioner that is not loaded. kind: whose paper it is. vocabulary: a digest."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def vocabulary(self) -> str: ...


MemberFactsT = TypeVar("MemberFactsT", bound=MemberFacts)


@dataclass(frozen=True)
class CaptionerFile:
    """Describes a captioner by its file."""

    name: str
    kind: str
    vocabulary: str


def describe_files(weights: Path = WEIGHTS) -> list[CaptionerFile]:
    """Describes the captioners of a folder. Raises CheckpointError."""
    checkpoints = list_checkpoints(weights).items()
    return [
        CaptionerFile(name, read_card(path).captioner, read_vocabulary_digest(path))
        for name, path in checkpoints
    ]


def choose_members(kind: str, captioners: Sequence[MemberFactsT]) -> list[MemberFactsT]:
    """Chooses the members of fusion or ensemble where none are named; none where they cannot be had.

    All of ``captioners`` but those that are there to compare with, unless there are no others. An ensemble
    is of two or more that know the same words: the largest number of them.
    """
    members = [each for each in captioners if _joins_unasked(each.kind)] or list(captioners)
    if kind != ENSEMBLE:
        return members
    counts = Counter(each.vocabulary for each in members)
    (most, _), *_ = counts.most_common(1) or [("", 0)]
    alike = [each for each in members if each.vocabulary == most]
    return alike if len(alike) > 1 else []


def check_members(names: Sequence[str]) -> tuple[str, ...]:
    """Cuts the space around names. Raises WrongMembers for an empty name and for one named twice."""
    members = tuple(name.strip() for name in names)
    if not members or not all(members):
        raise WrongMembers("members are names of captioners with commas between them, and none is empty")
    if twice := [name for name in dict.fromkeys(members) if members.count(name) > 1]:
        raise WrongMembers(f"members name {twice[0]} more than once: name each captioner once")
    return members


def _joins_unasked(kind: str) -> bool:
    """Finds out whether captioners of a kind are members without being named; pretrained ones are."""
    registered = list_captioners().get(kind)
    return registered is None or registered.description.joins_unasked
