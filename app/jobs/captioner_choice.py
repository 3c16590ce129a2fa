"""Chooses who writes, by what is installed.

The API chooses when a job is submitted and writes the choice into its record; the command line, and a worker
that finds a record without one, choose by the same function.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from app.errors import CaptionerUnknown, EmbeddingMissing, InvalidMembers, OptionNotTaken, PromptNotTaken
from app.jobs.captioner_info import CaptionerInfo
from app.jobs.options import COMBINATIONS, ENSEMBLE, FUSION, CaptionerChoice, CaptionOptions

# Which captioner writes where a job names none: the best on real clips of those that do not take long.
#
# Both numbers are in the captioners' cards: how good it is on the set of scores that is called after clips,
# and the seconds from a 10 s clip to its caption as ``python -m benchmarks.captioners`` and ``judge`` measure
# them. How good is what was judged by eye, where its clips were judged, a caption that is partly right
# counting half: on a few dozen clips of one reference each, CIDEr-D's interval is wider than what separates
# two captioners. Elsewhere it is CIDEr-D. Captioners without both numbers do not compete, nor do fusion and
# ensemble, whose members' seconds add up. Where none competes it is FALLBACK, or the first by name.
# REELWORD_CAPTIONER overrules all of this.


PATIENCE = 60.0  #: seconds for a 10 s clip; a slower captioner is asked by name
FALLBACK = "stats"


def default_captioner(infos: Iterable[CaptionerInfo]) -> str | None:
    """Finds who writes where a job names no captioner; None where there is no captioner."""
    alone = sorted((info for info in infos if info.name not in COMBINATIONS), key=lambda info: info.name)
    for score in (clips_judged, clips_cider):
        rated = {  # of equal ones the quicker first
            info.name: (points, -info.speed.seconds)
            for info in alone
            if (points := score(info)) is not None and info.speed and info.speed.seconds <= PATIENCE
        }
        if rated:
            return max(rated, key=rated.__getitem__)
    names = [info.name for info in alone]
    return FALLBACK if FALLBACK in names else next(iter(names), None)


def clips_judged(info: CaptionerInfo) -> float | None:
    """Returns the share of real clips that were captioned rightly, in per cent; partly right counts half."""
    metrics = _clips(info)
    if not {"right", "partly", "n"} <= metrics.keys():
        return None
    return 100 * (float(metrics["right"]) + float(metrics["partly"]) / 2) / float(metrics["n"])


def clips_cider(info: CaptionerInfo) -> float | None:
    """Returns CIDEr-D ×100 on real clips."""
    metrics = _clips(info)
    return float(metrics["cider"]) if "cider" in metrics else None


def _clips(info: CaptionerInfo) -> Mapping[str, Any]:
    """Finds the scores on real clips, empty where there are none."""
    named = (metrics for name, metrics in info.scores.items() if "clips" in name.lower())
    return next((metrics for metrics in named if isinstance(metrics, dict)), {})


IDENTITY = ("network", "weights_sha256", "preprocessing")
#: Option → whether it is asked for; of words, and pretrained captioners write parts of words
#: (models/pretrained/options.py).
WORD_RULES: Mapping[str, Callable[[CaptionOptions], bool]] = {
    "block_trigrams": lambda options: options.block_trigrams,
    "decoding_constraint": lambda options: options.decoding_constraint,
    "remove_bad_endings": lambda options: options.remove_bad_endings,
    "group_size": lambda options: options.group_size > 1,
    "temperature": lambda options: options.temperature != 1 and options.method != "sample",
}


class CaptionerChoices:
    """Chooses among the captioners that there are, fusion and ensemble included.

    ``default`` writes where options name no captioner; by the rule above where it is not given.
    """

    def __init__(self, captioners: Iterable[CaptionerInfo], default: str | None = None) -> None:
        self._infos = {info.name: info for info in captioners}
        self.default = default or default_captioner(self._infos.values())

    @property
    def alone(self) -> list[str]:
        """Captioners that write alone, and may be members, by name."""
        return sorted(name for name in self._infos if name not in COMBINATIONS)

    @property
    def names(self) -> list[str]:
        return sorted(self._infos)

    def resolve(self, options: CaptionOptions) -> CaptionerChoice:
        """Fills in default captioner and members. Raises what ``check`` and ``check_options`` raise."""
        captioner = options.captioner or self.default or ""
        members = options.members or (self._infos[captioner].members if captioner in self._infos else ())
        choice = CaptionerChoice(captioner, members)
        self.check(choice)
        self.check_options(choice, options)
        return choice

    @property
    def prompted(self) -> list[str]:
        """Captioners that take a prompt, by name."""
        return sorted(name for name, info in self._infos.items() if info.takes_prompt)

    def check_options(self, choice: CaptionerChoice, options: CaptionOptions) -> None:
        """Checks that who writes has what options ask for.

        Raises PromptNotTaken; OptionNotTaken for a class of video that none of them knows, or a search that a
        pretrained captioner does not have.
        """
        if options.prompt is not None and choice.captioner not in self.prompted:
            those = f"those that do: {', '.join(self.prompted)}" if self.prompted else "none here does"
            raise PromptNotTaken(f"{choice.captioner} takes no prompt; {those}.", self.prompted)
        self._check_category(choice, options.category)
        infos = [self._infos[name] for name in choice.writers]
        for info in infos:
            lacking = [name for name, why in WORD_RULES.items() if info.source and why(options)]
            if lacking:
                raise OptionNotTaken(
                    f"{info.name} is a pretrained captioner, which does not have {lacking[0]}."
                )

    def _check_category(self, choice: CaptionerChoice, category: int | None) -> None:
        if category is None:
            return
        classes = max(self._infos[name].classes for name in choice.writers)
        if not classes:
            those = sorted(name for name, info in self._infos.items() if info.classes)
            others = f"those that do: {', '.join(those)}" if those else "none here does"
            raise OptionNotTaken(f"{choice.captioner} knows no classes of videos (category); {others}.")
        if category >= classes:
            raise OptionNotTaken(
                f"category is {category}, and {choice.captioner} knows the classes 0 to {classes - 1}."
            )

    def check(self, choice: CaptionerChoice) -> None:
        """Checks that all are here who have to write, and can write together.

        Raises CaptionerUnknown, EmbeddingMissing where fusion has nothing to choose captions by,
        InvalidMembers.
        """
        if choice.captioner == FUSION and FUSION not in self._infos:
            raise EmbeddingMissing(
                "There is no captioner fusion, as no semantic embedding is there to choose captions by.",
                self.names,
            )
        if choice.captioner not in self._infos:
            raise self._unknown(choice.captioner, self.names)
        for member in choice.members:
            if member not in self.alone:
                raise self._unknown(member, self.alone)
        self._check_together(choice.captioner, choice.members)

    def _unknown(self, name: str, names: list[str]) -> CaptionerUnknown:
        fault = f"There is no captioner called {name}; there are: {', '.join(names)}."
        return CaptionerUnknown(fault, names)

    def _check_together(self, captioner: str, members: Iterable[str]) -> None:
        """Compares members: an ensemble averages words' probabilities, and a batch shares streams."""
        infos = [self._infos[name] for name in members]
        for info in infos:
            if captioner not in info.joins:
                raise InvalidMembers(
                    f"{info.name} is a pretrained captioner with a vocabulary of its own, and an ensemble "
                    "averages the probabilities of the same words; fusion can have it as a member."
                )
        for other in infos[1:]:
            if captioner == ENSEMBLE and other.vocabulary != infos[0].vocabulary:
                raise InvalidMembers(
                    f"{infos[0].name} and {other.name} were trained on different vocabularies, and an "
                    "ensemble averages the probabilities of the same words."
                )
        specs: dict[str, tuple[str, object]] = {}
        for info in infos:
            for stream, spec in info.features.items():
                identity = [spec.get(name) for name in IDENTITY]
                first, expected = specs.setdefault(stream, (info.name, identity))
                if expected != identity:
                    raise InvalidMembers(
                        f"{first} and {info.name} were trained on different features called {stream}."
                    )
