"""What may be chosen: captioners, and members that can write together. The API and the engine ask alike."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from app.advertisement import CaptionerInfo
from app.errors import CaptionerUnavailable, EmbeddingMissing, MembersDiffer
from app.options import COMBINATIONS, ENSEMBLE, FUSION, CaptionOptions

IDENTITY = ("network", "weights_sha256", "preprocessing")


@dataclass(frozen=True)
class Choice:
    """Who writes. members: of fusion or ensemble, in order; empty for a captioner that writes alone."""

    captioner: str
    members: tuple[str, ...] = ()

    @property
    def writers(self) -> tuple[str, ...]:
        """The captioners that have to be there."""
        return self.members or (self.captioner,)


class Menu:
    """captioners: all that there are. default: of options that name none."""

    def __init__(self, captioners: Iterable[CaptionerInfo], default: str | None = None) -> None:
        self._infos = {info.name: info for info in captioners}
        self.default = default

    @property
    def alone(self) -> list[str]:
        """Captioners that write alone, and may be members, by name."""
        return sorted(name for name in self._infos if name not in COMBINATIONS)

    @property
    def names(self) -> list[str]:
        return sorted(self._infos)

    def choose(self, options: CaptionOptions) -> Choice:
        """Raises CaptionerUnavailable, EmbeddingMissing, MembersDiffer."""
        captioner = options.captioner or self.default
        if captioner == FUSION and FUSION not in self._infos:
            raise EmbeddingMissing("There is no semantic embedding, which fusion chooses captions by.")
        if captioner is None or captioner not in self._infos:
            raise self._unknown(captioner or "", self.names)
        members = options.members or self._infos[captioner].members
        for member in members:
            if member not in self.alone:
                raise self._unknown(member, self.alone)
        self._check_together(captioner, members)
        return Choice(captioner, tuple(members))

    def _unknown(self, name: str, known: list[str]) -> CaptionerUnavailable:
        said = f"There is no captioner called {name}; there are: {', '.join(known)}."
        return CaptionerUnavailable(said, name, known)

    def _check_together(self, captioner: str, members: Iterable[str]) -> None:
        """An ensemble averages the probabilities of words, and members of one batch share their streams."""
        infos = [self._infos[name] for name in members]
        for other in infos[1:]:
            if captioner == ENSEMBLE and other.vocabulary != infos[0].vocabulary:
                raise MembersDiffer(
                    f"{infos[0].name} and {other.name} were trained on different vocabularies, and an "
                    "ensemble averages the probabilities of the same words."
                )
        specs: dict[str, tuple[str, object]] = {}
        for info in infos:
            for stream, spec in info.features.items():
                identity = [spec.get(name) for name in IDENTITY]
                first, known = specs.setdefault(stream, (info.name, identity))
                if known != identity:
                    raise MembersDiffer(
                        f"{first} and {info.name} were trained on different features called {stream}."
                    )
