"""What does a caption cost with each captioner?

    python -m benchmarks.captioners [--record] [--clip FILE] [--rounds 5]

In one run and on one machine, for each captioner in weights/ and for fusion and the ensemble over their
default members: the seconds from a clip of 10 s (drawn, unless one is given) to its features, decoding
included, and from there to its caption with beam 5 and attention, as one user waits for it. Captioners take
turns and each side keeps its median, so that a busy moment hurts all alike. ``--record`` writes the numbers
into the checkpoints' cards, from where ``GET /models`` and the rule for the default captioner have them.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from app.jobs.options import CaptionerChoice, CaptionOptions
from app.pipeline.loaded_captioners import LoadedCaptioners
from app.settings import Settings
from benchmarks.support.film_shapes import X264, FilmShape
from extractors.decoder.decoder import Decoder
from models.checkpoint import Speed, list_checkpoints, record_speed
from models.decoding.decode import DecodingOptions

CLIP = FilmShape("10 s 720p", ".mp4", "libx264", 1280, 720, 250, X264)


@dataclass(frozen=True)
class Seconds:
    """What one captioner took, a number a round."""

    features: list[float] = field(default_factory=list)
    captions: list[float] = field(default_factory=list)

    def median(self, machine: str) -> Speed:
        features, captions = statistics.median(self.features), statistics.median(self.captions)
        return Speed(round(features, 4), round(captions, 4), machine)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="write the numbers into the checkpoints")
    parser.add_argument("--clip", type=Path, help="measure on this clip")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    settings = Settings(device="cpu")
    torch.set_num_threads(settings.threads)
    captioners = LoadedCaptioners(settings, "cpu")
    with tempfile.TemporaryDirectory() as folder, Decoder(settings.decoder) as decoder:
        clip = arguments.clip or CLIP.draw(Path(folder) / "clip.mp4")
        measured = measure(captioners, decoder, clip, arguments.rounds)
    fed = {
        name: captioners.feature_source(captioners.captioner_choices.resolve(CaptionOptions(captioner=name)))
        for name in measured
    }
    speeds = {name: each.median(machine(settings.threads)) for name, each in together(measured, fed).items()}
    print(table(speeds))
    if arguments.record:
        for name, path in list_checkpoints(settings.weights).items():
            record_speed(path, speeds[name])


def measure(captioners: LoadedCaptioners, decoder: Decoder, clip: Path, rounds: int) -> dict[str, Seconds]:
    """Captioner → its seconds. The first round warms up and is not counted."""
    times = {name: Seconds() for name in captioners.captioner_choices.names}
    for turn in range(rounds + 1):
        for name, seconds in times.items():
            choice = captioners.captioner_choices.resolve(CaptionOptions(captioner=name))
            features, captions = once(captioners, choice, decoder, clip)
            if turn > 0:
                seconds.features.append(features)
                seconds.captions.append(captions)
    return times


def together(found: Mapping[str, Seconds], fed: Mapping[str, object]) -> dict[str, Seconds]:
    """Captioners that are fed alike share all their seconds to the features: only the moment differs."""
    shared = {
        source: [second for name, each in found.items() if fed[name] is source for second in each.features]
        for source in set(fed.values())
    }
    return {name: Seconds(shared[fed[name]], each.captions) for name, each in found.items()}


def once(
    captioners: LoadedCaptioners, choice: CaptionerChoice, decoder: Decoder, clip: Path
) -> tuple[float, float]:
    """Seconds to the features, and from there to the caption."""
    source, writer = captioners.feature_source(choice), captioners.writer(choice)
    began = time.perf_counter()
    streams = source.extract([decoder.decode(clip, source.request).footage])
    described = time.perf_counter()
    writer.caption(streams, DecodingOptions())
    return described - began, time.perf_counter() - described


def machine(threads: int) -> str:
    return f"{platform.processor() or platform.machine()}, {threads} thread{'s' if threads > 1 else ''}"


def table(speeds: Mapping[str, Speed]) -> str:
    lines = ["captioner      features s  caption s  captions/s  waiting s"]
    for name, speed in sorted(speeds.items(), key=lambda pair: pair[1].seconds):
        lines.append(
            f"{name:14} {speed.feature_seconds:10.3f} {speed.caption_seconds:10.3f} "
            f"{speed.captions_per_second:11.1f} {speed.seconds:10.3f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
