"""How fast frames become features, and how far each engine is from fp32: python -m benchmarks.extract

Every row starts from the same frames (340 × 256, as the decoder hands them over) and ends with the grid
on the CPU. The baseline is the plain way: the network as written, eager fp32, at whichever thread count and
batch is its fastest here. Rounds alternate between the rows, and each row keeps its best, so that other
work on the machine harms all of them alike.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from extractors.efficientnet import SIDE, EfficientNetLite2, pretrained
from extractors.engines import EngineName, Precision
from extractors.preprocess import squash

Run = Callable[[NDArray[np.uint8]], NDArray[np.float16]]
HEIGHT, WIDTH = 256, 340
PATIENCE = 10  # seconds for a pass
OURS: tuple[tuple[EngineName, Precision], ...] = (
    ("torch", "fp32"),
    ("torch", "bf16"),
    ("openvino", "fp32"),
    ("openvino", "bf16"),
)


@dataclass
class Row:
    """One way to run the network, with its best speed so far (frames a second)."""

    label: str
    threads: int
    run: Run
    speed: float = 0.0


def frames(count: int) -> NDArray[np.uint8]:
    """Smooth colours that differ from frame to frame; noise would not excite the later layers."""
    coarse = np.random.default_rng(0).uniform(0, 255, (count, 3, 8, 10))
    smooth = torch.nn.functional.interpolate(
        torch.from_numpy(coarse), (HEIGHT, WIDTH), mode="bicubic", align_corners=False
    )
    pictures: NDArray[np.uint8] = smooth.clamp(0, 255).byte().permute(0, 2, 3, 1).contiguous().numpy()
    return pictures


def plain_loop(batch: int) -> Run:
    """What one would write first."""
    network = pretrained()

    def run(pictures: NDArray[np.uint8]) -> NDArray[np.float16]:
        grids = []
        with torch.inference_mode():
            for part in torch.split(torch.from_numpy(pictures), batch):
                x = (squash(part, SIDE).permute(0, 3, 1, 2).float() - 127) / 128
                grids.append(network(x).permute(0, 2, 3, 1).half())
        whole: NDArray[np.float16] = torch.cat(grids).numpy()
        return whole

    return run


def rows(cache: Path) -> Iterator[Row]:
    for threads in sorted({1, os.cpu_count() or 1}):
        for batch in (1, 8):
            yield Row(f"plain torch loop fp32, batch {batch}", threads, plain_loop(batch))
        for engine, precision in OURS:
            made = EfficientNetLite2(engine=engine, precision=precision, threads=threads, cache=cache)
            yield Row(f"{engine} {precision}", threads, made.grid)
    if torch.cuda.is_available():
        yield Row("torch fp32 on a GPU", 1, EfficientNetLite2("cuda", precision="fp32").grid)
        yield Row("torch fp16 on a GPU", 1, EfficientNetLite2("cuda", precision="fp16").grid)


def measure(row: Row, pictures: NDArray[np.uint8]) -> None:
    """One timed pass; threads that crawl on busy cores are seen by two frames and not waited for."""
    torch.set_num_threads(row.threads)
    for part in (pictures[:2], pictures):
        begin = time.perf_counter()
        row.run(part)
        row.speed = max(row.speed, len(part) / (time.perf_counter() - begin))
        if len(pictures) / row.speed > PATIENCE:
            return


def difference(row: Row, pictures: NDArray[np.uint8], exact: NDArray[np.float16]) -> tuple[float, float]:
    """Largest difference of a value, and root mean square of all as a share of the exact values' own."""
    apart = row.run(pictures).astype(np.float32) - exact.astype(np.float32)
    size = np.sqrt(np.mean(np.square(exact.astype(np.float32))))
    return float(np.abs(apart).max()), float(np.sqrt(np.mean(np.square(apart))) / size)


def machine() -> str:
    processor = str(torch.cpu.get_capabilities().get("cpu_name") or platform.processor())
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{processor}, {os.cpu_count()} cores{gpu}; torch {torch.__version__}; {datetime.date.today()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--frames", type=int, default=64, help="frames in a round (default 64)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, of which the best counts (default 3)")
    arguments = parser.parse_args()
    pictures = frames(max(8, arguments.frames))
    with tempfile.TemporaryDirectory() as cache:
        measured = list(rows(Path(cache)))
        for _ in range(arguments.rounds):
            for row in measured:
                print(f"{row.label}, {row.threads} threads …", file=sys.stderr)
                measure(row, pictures)
    plain = [row for row in measured if row.label.startswith("plain")]
    report(measured, max(plain, key=lambda row: row.speed), pictures)


def report(measured: list[Row], baseline: Row, pictures: NDArray[np.uint8]) -> None:
    """The table, as Markdown."""
    pictures = pictures[:8]
    exact = baseline.run(pictures)
    print(f"EfficientNet-Lite2, {machine()}\n")
    print("| engine | threads | frames/s | × the plain loop's best | largest difference | rms, relative |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in measured:
        torch.set_num_threads(1)
        largest, rms = difference(row, pictures, exact)
        ratio = row.speed / baseline.speed
        print(f"| {row.label} | {row.threads} | {row.speed:.1f} | {ratio:.2f} | {largest:.4f} | {rms:.1e} |")


if __name__ == "__main__":
    main()
