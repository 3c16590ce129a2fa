"""Which captioner writes where a job names none: the best on real clips per second of waiting.

Both numbers are in the checkpoints' cards: CIDEr-D on the set of scores that is called after clips, and the
seconds from a 10 s clip to its caption as ``python -m benchmarks.captioners`` measured them. Captioners
without both do not compete, nor do fusion and ensemble, whose members' seconds add up. Where nobody
competes it is FALLBACK, or the first by name. REELWORD_CAPTIONER overrules all of this.
"""

from __future__ import annotations

from collections.abc import Iterable

from app.advertisement import CaptionerInfo
from app.options import COMBINATIONS

FALLBACK = "stats"


def default_captioner(infos: Iterable[CaptionerInfo]) -> str | None:
    """None where there is no captioner."""
    alone = sorted((info for info in infos if info.name not in COMBINATIONS), key=lambda info: info.name)
    rated = {info.name: per_second for info in alone if (per_second := cider_per_second(info)) is not None}
    if rated:
        return max(rated, key=rated.__getitem__)
    names = [info.name for info in alone]
    return FALLBACK if FALLBACK in names else next(iter(names), None)


def cider_per_second(info: CaptionerInfo) -> float | None:
    """CIDEr-D ×100 on real clips over the seconds that one clip takes; None where either is not known."""
    score = clips_cider(info)
    return None if score is None or info.speed is None else score / info.speed.seconds


def clips_cider(info: CaptionerInfo) -> float | None:
    """CIDEr-D ×100 on real clips."""
    for name, metrics in info.scores.items():
        if "clips" in name.lower() and isinstance(metrics, dict) and "cider" in metrics:
            return float(metrics["cider"])
    return None
