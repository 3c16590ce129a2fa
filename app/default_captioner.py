"""Which captioner writes where a job names none: the best on real clips per second of waiting.

Both numbers are in the checkpoints' cards: how good it is on the set of scores that is called after clips,
and the seconds from a 10 s clip to its caption as ``python -m benchmarks.captioners`` measured them. How good
is what was judged by eye, where anybody's clips were judged, a caption that is partly right counting half: on
a few dozen clips of one reference each, CIDEr-D's interval is wider than what separates two captioners.
Elsewhere it is CIDEr-D. Captioners without both numbers do not compete, nor do fusion and ensemble, whose
members' seconds add up. Where nobody competes it is FALLBACK, or the first by name. REELWORD_CAPTIONER
overrules all of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from app.advertisement import CaptionerInfo
from app.options import COMBINATIONS

FALLBACK = "stats"


def default_captioner(infos: Iterable[CaptionerInfo]) -> str | None:
    """None where there is no captioner."""
    alone = sorted((info for info in infos if info.name not in COMBINATIONS), key=lambda info: info.name)
    for score in (clips_judged, clips_cider):
        rated = {info.name: rate for info in alone if (rate := per_second(info, score)) is not None}
        if rated:
            return max(rated, key=rated.__getitem__)
    names = [info.name for info in alone]
    return FALLBACK if FALLBACK in names else next(iter(names), None)


def per_second(info: CaptionerInfo, score: Callable[[CaptionerInfo], float | None]) -> float | None:
    """The score over the seconds that one clip takes; None where either is not known."""
    found = score(info)
    return None if found is None or info.speed is None else found / info.speed.seconds


def clips_judged(info: CaptionerInfo) -> float | None:
    """The share of real clips that were captioned rightly, in per cent; half of those partly right."""
    metrics = _clips(info)
    if not {"right", "partly", "n"} <= metrics.keys():
        return None
    return 100 * (float(metrics["right"]) + float(metrics["partly"]) / 2) / float(metrics["n"])


def clips_cider(info: CaptionerInfo) -> float | None:
    """CIDEr-D ×100 on real clips."""
    metrics = _clips(info)
    return float(metrics["cider"]) if "cider" in metrics else None


def _clips(info: CaptionerInfo) -> Mapping[str, Any]:
    """The scores on real clips, empty where there are none."""
    named = (metrics for name, metrics in info.scores.items() if "clips" in name.lower())
    return next((metrics for metrics in named if isinstance(metrics, dict)), {})
