"""A line about each kind of captioner, for ``GET /models``, the page and ``python -m app models``."""

from __future__ import annotations

from collections.abc import Mapping

ABOUT: Mapping[str, str] = {
    "stats": "STaTS: weighs regions followed through time against regions of one chosen frame",
    "g2l": "G2L: looks over all frames, then at the regions of the key frames that it picks for each word",
    "refocus": "Refocus: watches from the middle frame, finds the key frame, and watches again from there",
    "dual_afr": "dualAFR: chooses for each word a place and a level of abstraction of the network",
    "vanilla": "Vanilla: two LSTMs over the mean of the video, without attention",
    "temporal": "Temporal: two LSTMs that attend to moments",
    "spatial": "Spatial: two LSTMs that attend to regions of all moments",
    "fusion": "Fusion: members write, and the caption that fits the video best wins",
    "ensemble": "Ensemble: members agree on every word by the mean of their probabilities",
}
