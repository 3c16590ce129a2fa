"""Shows where the time of a ten-second clip goes, stage by stage, beside the least that it could be.

    python -m benchmarks.end_to_end [--quick] [--clip FILE] [--results FILE]

First in this process, a clip at a time, in processor seconds, which other programs on the machine change
little: decoding, features, captions, their attention, storing. The floor of decoding is a plain PyAV loop
that decodes the fewest packets from which the same frames come, and converts none. The floor of the networks
and of the search is the number of their operations by what one core reaches in a large product of bfloat16
matrices, measured in the same turns. Then with a full queue: ``serve`` with one worker gets 40 clips at
once, and the clock says how many it captions a second, its processes what each clip cost them, and its
clients how soon a POST is answered meanwhile. Both starts are timed, too: of ``serve`` and of ``app
caption``, networks kept.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import av
import httpx
import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.flop_counter import FlopCounterMode

from app.jobs.blobs import Blobs
from app.jobs.options import CaptionOptions
from app.pipeline.engine import Engine
from app.pipeline.engine_protocol import EngineAnswer, ignore_progress
from app.pipeline.loaded_captioners import CaptionInputs
from app.settings import Settings
from app.worker.job_ends import frame_jpeg, store_result
from benchmarks.support.joined_film import encode_parts, write_joined
from benchmarks.support.rows import Row, add_options, cpu_seconds, measure_in_turns, medians, tell
from benchmarks.support.served import (
    ROOT,
    ServedInstance,
    await_jobs,
    copies_of,
    post_clip,
)
from extractors.extractor import Extractor, create
from extractors.media.decode import decode_here
from extractors.media.request import Decoded, DecodeRequest
from models.decoding.options import DecodingOptions

NAME = "end_to_end"
CLIP_SECONDS = 10.0
SIDE = 2048  #: rows and columns of the matrices whose product is the peak
FLOOR_GOAL = "ratio >= 0.667"  #: one and a half times the floor
#: Jobs a second of one worker that decoded, then captioned (quiet machine of two cores, 40 clips).
BEFORE = 2.6


@dataclass(frozen=True)
class Parts:
    """Holds one engine, and a clip that has been decoded and described."""

    engine: Engine
    options: CaptionOptions
    clip: Path
    request: DecodeRequest
    decoded: Decoded
    inputs: CaptionInputs

    @classmethod
    def load(cls, data: Path, clip: Path) -> Parts:
        """Loads the default captioner."""
        engine = Engine(Settings(data=data))
        options = engine.info.resolve(CaptionOptions())
        request = engine.info.request_for(options.choice)
        decoded = decode_here(clip, request)
        assert options.choice is not None
        source = engine._captioners.feature_source(options.choice)
        (streams,) = source.extract([decoded.footage])
        return cls(engine, options, clip, request, decoded, CaptionInputs(decoded.footage, streams))

    def describe(self) -> object:
        """Computes the features."""
        assert self.options.choice is not None
        return self.engine._captioners.feature_source(self.options.choice).extract([self.decoded.footage])

    def caption(self, attention: bool, videos: int = 1) -> object:
        """Writes the caption of as many videos at once."""
        assert self.options.choice is not None
        plan = self.engine._captioners.plan(self.options.choice)
        return plan.caption([self.inputs] * videos, DecodingOptions(attention=attention))

    def answer(self) -> EngineAnswer:
        """Goes from frames to the answer, as the engine's process does."""
        (answer,) = self.engine.describe_and_caption([self.decoded.footage], [self.options], ignore_progress)
        assert isinstance(answer, EngineAnswer)
        return answer

    def network_operations(self) -> int:
        """Counts the operations of the networks for all frames of the clip."""
        assert self.options.choice is not None
        total = 0
        for extractor in self.engine._captioners.feature_source(self.options.choice).extractors:
            plain = create(extractor.name, "cpu", engine="torch", precision="fp32", weights="seeded")
            if "streams" in plain.needs:  # what is derived of others' rows costs no network
                continue
            with FlopCounterMode(display=False) as counter:
                cast(Extractor, plain).extract([self.decoded.footage])
            total += int(counter.get_total_flops())
        return total

    def search_operations(self) -> int:
        """Counts those of the search.

        Each step multiplies what all beams have by all parameters but the words' vectors, of which it reads
        one.
        """
        assert self.options.choice is not None
        checkpoint = self.engine._captioners.checkpoints[self.options.choice.captioner]
        weights = sum(p.numel() for n, p in checkpoint.captioner.named_parameters() if "embed" not in n)
        words = len(self.answer().answer.captions[0].words) + 1  # type: ignore[index]
        return 2 * weights * self.options.beam_size * words


def main() -> None:
    """Measures both, and prints the rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser)
    parser.add_argument("--clip", type=Path, help="by default ten seconds of drawn patterns")
    parser.add_argument("--jobs", type=int, help="in the full queue (40, quick: 12)")
    arguments = parser.parse_args()
    jobs = arguments.jobs or (12 if arguments.quick else 40)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data")
        data.mkdir(parents=True, exist_ok=True)
        clip = arguments.clip or Path(folder, "clip.mp4")
        if arguments.clip is None:
            write_joined(clip, encode_parts([]), CLIP_SECONDS)
        stages, floor = measure_stages(Parts.load(data, clip), data, 3 if arguments.quick else 9)
        command = measure_command(clip, data, 1 if arguments.quick else 3)
        rows = [*stages, *command, *measure_queue(Path(folder, "served"), clip.read_bytes(), jobs, floor)]
    tell(rows, arguments.results)


def measure_stages(parts: Parts, data: Path, rounds: int) -> tuple[list[Row], float]:
    """Measures each stage of one clip.

    Args:
        parts: the engine and the clip.
        data: where results are stored.
        rounds: that count.

    Returns:
        The rows, and the floor of a clip in seconds.
    """
    answer, blobs = parts.answer(), Blobs(str(data / "blobs"), data / "staging")
    matrix = torch.rand(SIDE, SIDE)
    ways: Mapping[str, Callable[[], object]] = {
        "decoded": partial(decode_here, parts.clip, parts.request),
        "fewest": partial(decode_fewest, parts.clip, find_ticks(parts.clip, parts.decoded.frames.pts)),
        "features": parts.describe,
        "captions": partial(parts.caption, attention=False),
        "explained": partial(parts.caption, attention=True),
        "together": partial(parts.caption, attention=True, videos=4),
        "answer": parts.answer,
        "stored": partial(store, parts, answer, blobs),
        "bf16": partial(torch.matmul, matrix.bfloat16(), matrix.bfloat16()),
        "fp32": partial(torch.matmul, matrix, matrix),
    }
    taken = measure_in_turns(ways, rounds, clock=cpu_seconds)
    peak = 2 * SIDE**3 / min(*taken["bf16"], *taken["fp32"])
    spent = medians(taken)
    work = {"features": parts.network_operations(), "captions": parts.search_operations()}
    least = {name: count / peak for name, count in work.items()}
    floor = spent["fewest"] + sum(least.values())
    row = partial(_milliseconds, repeats=rounds)
    notes = {name: f"{count / 1e9:.3g} GFLOP at {peak / 1e9:.0f} GFLOP/s" for name, count in work.items()}
    whole = spent["decoded"] + spent["answer"] + spent["stored"]
    return [
        row("decode", spent["decoded"], spent["fewest"], "fewest packets in a plain PyAV loop"),
        row("features", spent["features"], least["features"], notes["features"]),
        row("captions, alone", spent["captions"], least["captions"], notes["captions"]),
        row(
            "captions, each of four with attention",
            spent["together"] / 4,
            least["captions"],
            notes["captions"],
        ),
        row("attention", max(0.0, spent["explained"] - spent["captions"])),
        row("answer", max(0.0, spent["answer"] - spent["features"] - spent["explained"])),
        row("JPEGs and storing", spent["stored"]),
        row("a lone clip, all stages", whole, floor, "the floors' sum", goal=FLOOR_GOAL),
    ], floor


def measure_command(clip: Path, data: Path, rounds: int) -> Iterator[Row]:
    """Captions the clip by the command line, from the interpreter's start to its end.

    Args:
        clip: the video.
        data: with the converted networks.
        rounds: that count.

    Yields:
        The rows of the clock and of the processors.
    """
    command = [sys.executable, "-m", "app", "caption", str(clip)]
    environment = {**os.environ, "REELWORD_DATA": str(data)}
    caption = partial(subprocess.run, command, env=environment, check=True, capture_output=True, cwd=ROOT)
    (took,) = measure_in_turns({"clock": caption}, rounds).values()
    (spent,) = measure_in_turns({"processor": caption}, rounds, warm_up=0, clock=cpu_seconds).values()
    row = partial(Row, NAME, unit="s", repeats=rounds)
    yield row("app caption of one clip, clock", statistics.median(took), goal="ours <= 3")
    yield row("app caption of one clip, processors", statistics.median(spent))


def measure_queue(data: Path, video: bytes, jobs: int, floor: float) -> list[Row]:
    """Measures one worker with clips sent one by one, then all at once, then POSTs while it is busy.

    Args:
        data: of the service.
        video: the clip.
        jobs: clips that are sent at once.
        floor: processor seconds that a clip costs at least.

    Returns:
        The rows.
    """
    with ServedInstance(data) as served, served.client() as client:
        alone = [
            await_jobs(client, [post_clip(client, each)[0]], 0.02)[0] for each in copies_of(video, 6, 1 << 20)
        ][1:]
        lone, beside = (statistics.median(each) for each in zip(*map(_lone_seconds, alone), strict=True))
        before, began = served.cpu_seconds(), time.perf_counter()
        await_jobs(client, [post_clip(client, each)[0] for each in copies_of(video, jobs)])
        seconds = time.perf_counter() - began
        spent = {role: now - before.get(role, 0.0) for role, now in served.cpu_seconds().items()}
        posts = list(_post_while_busy(client, video, jobs))
    each = sum(spent.values()) / jobs
    shares = ", ".join(f"{role} {1000 * value / jobs:.0f}" for role, value in sorted(spent.items()))
    return [
        Row(NAME, "serve, from its start to ready", served.start_seconds, "s", goal="ours <= 8"),
        _milliseconds("a lone job, from POST to its end", lone, repeats=len(alone)),
        _milliseconds("of that beside its stages", beside, repeats=len(alone)),
        Row(
            NAME,
            f"jobs a second, {jobs} queued, one worker",
            jobs / seconds,
            "1/s",
            BEFORE,
            "the worker before, on another day",
            "more",
            "ratio >= 1.8",
        ),
        _milliseconds(
            "a queued clip, all processes", each, floor, "the floors' sum", FLOOR_GOAL, note=shares
        ),
        Row(
            NAME,
            "POST beside running jobs, p99",
            1000 * float(np.quantile(posts, 0.99)),
            "ms",
            goal="ours <= 15",
            repeats=len(posts),
            note=f"median {1000 * statistics.median(posts):.1f}",
        ),
    ]


def _post_while_busy(client: httpx.Client, video: bytes, jobs: int) -> Iterator[float]:
    """Sends clips so that the worker always has some, and yields the seconds until each was accepted."""
    sent: list[str] = []
    for number, each in enumerate(copies_of(video, 5 * jobs // 2, 1 << 24)):
        job, spent = post_clip(client, each)
        yield spent
        sent.append(job)
        if number >= jobs:
            client.delete(f"/jobs/{job}")
            time.sleep(0.03)
    for job in sent:
        client.delete(f"/jobs/{job}")


def _lone_seconds(document: Mapping[str, object]) -> tuple[float, float]:
    """Returns the seconds from acceptance to end, and those of them that no stage has."""
    timings = document["timings"]
    assert isinstance(timings, dict)
    stages = sum(timings[stage] or 0.0 for stage in ("decode", "extract", "caption"))
    return timings["total"], timings["total"] - stages


def store(parts: Parts, answer: EngineAnswer, blobs: Blobs) -> None:
    """Stores what a worker stores of a clip.

    Args:
        parts: with the frames.
        answer: with the attention.
        blobs: that it is stored in.
    """
    frames = [frame_jpeg(pixels) for pixels in parts.decoded.frames.pixels]
    store_result(blobs, "results/benchmark/1", frames, answer.attention)
    if answer.pack_streams is not None:
        answer.pack_streams()


def find_ticks(path: Path, times: NDArray[np.float64]) -> list[tuple[int, list[int]]]:
    """Finds from which key frames on the fewest packets are decoded: (its pts, pts of the frames wanted)."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.pts is not None]
        assert stream.time_base is not None
        ticks = np.array(sorted(int(packet.pts or 0) for packet in packets))
        keys = np.array(sorted(int(packet.pts or 0) for packet in packets if packet.is_keyframe))
        seconds = (ticks - ticks[0]) * float(stream.time_base)
    targets = [int(ticks[np.abs(seconds - moment).argmin()]) for moment in times]
    groups: dict[int, list[int]] = {}
    for tick in targets:
        behind = int(np.searchsorted(keys, tick, "right"))
        groups.setdefault(int(keys[max(0, behind - 1)]), []).append(tick)
    return list(groups.items())


def decode_fewest(path: Path, groups: Sequence[tuple[int, Sequence[int]]]) -> int:
    """Decodes those frames, and no more than lies between each group's key frame and its last."""
    count = 0
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        for key, ticks in groups:
            container.seek(key, stream=stream)
            last, targets = ticks[-1], set(ticks)
            for frame in container.decode(stream):
                count += frame.pts in targets
                if frame.pts is not None and frame.pts >= last:
                    break
    if count != sum(len(ticks) for _, ticks in groups):
        raise SystemExit(f"the plain loop found {count} of the frames")
    return count


def _milliseconds(
    name: str,
    seconds: float,
    peer: float | None = None,
    peer_name: str = "",
    goal: str = "",
    *,
    repeats: int = 1,
    note: str = "",
) -> Row:
    number = None if peer is None else 1000 * peer
    return Row(NAME, name, 1000 * seconds, "ms", number, peer_name, goal=goal, repeats=repeats, note=note)


if __name__ == "__main__":
    main()
