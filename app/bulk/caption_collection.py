"""Captions a collection with Ray Data and writes parquet, a part at a time; a second run resumes.

    list → decode (actors on CPUs) → caption (actors on devices) → write

The same on a laptop, where Ray is started here, and on a cluster, by its address: the checkout, its
environment and the weights have to be at the same place on every machine, and the videos and rows where all
of them reach them.
"""

import hashlib
import logging
import math
import os
import sys
from dataclasses import dataclass
from typing import Any

from app.bulk.rows import DoneVideos, drop_doubles, find_done
from app.bulk.stages import CaptionVideos, DecodeVideo, describe_engine
from app.errors import UsageError
from app.extract.storage import Location, open_location
from app.jobs.options import CaptionOptions
from app.pipeline.engine_protocol import EngineInfo
from app.settings import Settings
from app.terminal import complain
from extractors.child_process import ROOT

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would report to its makers
import ray
import ray.data

VIDEOS_A_PART = 16  #: rows of a parquet file, and what a killed run has to do again
SHOWN = 20  #: files with a code that are listed at the end; their rows have the rest
PROGRESS_LOGGER = "ray.data._internal.progress"  #: warns that there are no bars, which is chosen here


@dataclass(frozen=True)
class Fleet:
    """Holds how many processes do the work, and where."""

    address: str | None = None  #: of a Ray cluster, None to start Ray on this machine
    decoders: int | None = None  #: actors that decode; by default as many as the CPUs allow
    engines: int | None = None  #: actors that caption; by default one a GPU, or one without any
    batch: int = 8  #: videos captioned together


def caption_collection(
    videos: list[str], out: str, options: CaptionOptions, settings: Settings, fleet: Fleet
) -> int:
    """Captions all videos that have no row yet, prints what came of them, and returns how many have a code.

    Args:
        videos: paths and addresses, as app/extract/inputs.py lists them.
        out: folder of parquet files, or its address; made where it is not there.
        settings: where models are, limits.

    Raises:
        UsageError: Ray is not there, or the folder cannot be opened.
        JobFailure: no captioner can write as the options ask.
    """
    start_ray(fleet.address)
    info: EngineInfo = ray.get(ray.remote(describe_engine).remote(settings))
    options = info.resolve(options)
    run = _digest_options(options, info)
    folder = open_location(out)
    finished = find_done(folder, run)
    if folder.is_local:
        folder.files.create_dir(folder.path)
    _pipeline(videos, options, settings, fleet, info, run, finished).write_parquet(
        folder.path, filesystem=folder.files, mode=ray.data.SaveMode.APPEND, min_rows_per_file=1
    )
    drop_doubles(folder, run)
    return _report(folder, run, out, len(videos), len(finished))


def start_ray(address: str | None) -> None:
    """Connects to a cluster, or starts Ray: without an address it would look for one. Raises UsageError."""
    if ray.is_initialized():
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    _quiet_ray()
    environment = {"env_vars": {"PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}}
    try:
        ray.init(
            address=address,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.WARNING,
            runtime_env=environment,
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UsageError(f"Ray cannot be reached at {address}: {error}.") from error


def _quiet_ray() -> None:
    """Leaves one bar on a terminal, and warnings; Ray's own log files keep everything."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = sys.stdout.isatty()
    context.enable_operator_progress_bars = False
    for handler in logging.getLogger("ray.data").handlers:
        if isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler):
            handler.setLevel(logging.WARNING)
    logging.getLogger(PROGRESS_LOGGER).setLevel(logging.ERROR)


def _pipeline(
    videos: list[str],
    options: CaptionOptions,
    settings: Settings,
    fleet: Fleet,
    info: EngineInfo,
    run: str,
    done: DoneVideos,
) -> ray.data.Dataset:
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    gpus, cpus = int(resources.get("GPU", 0)), int(resources.get("CPU", 1))
    engines = fleet.engines or max(1, gpus)
    decoders = fleet.decoders or max(1, cpus - engines)
    blocks = max(1, math.ceil(len(videos) / VIDEOS_A_PART))
    rows = ray.data.from_items([{"path": os.fsencode(video)} for video in videos], override_num_blocks=blocks)
    decoded = rows.flat_map(
        DecodeVideo,
        fn_constructor_args=(settings, info.request_for(options.choice), options, run, done),
        compute=ray.data.ActorPoolStrategy(size=decoders),
        num_cpus=0.5,
    )
    return decoded.map_batches(
        CaptionVideos,
        fn_constructor_args=(settings, options),
        compute=ray.data.ActorPoolStrategy(size=engines),
        batch_size=fleet.batch,
        batch_format="numpy",
        num_cpus=0.5,
        num_gpus=1 if gpus else 0,
    )


def _digest_options(options: CaptionOptions, info: EngineInfo) -> str:
    """Digests what a caption depends on beside the video, so that a changed option is not passed over."""
    names = () if options.choice is None else (options.choice.captioner, *options.choice.members)
    digests = {each.name: each.weights_sha256 for each in info.captioners}
    weights = " ".join(digests.get(name, "") for name in names)
    return hashlib.sha256(f"{sorted(options.model_dump().items())} {weights}".encode()).hexdigest()


def _report(folder: Location, run: str, out: str, count: int, passed_over: int) -> int:
    """Prints files with a code, and how many of ``count`` have what; returns how many have a code."""
    import pyarrow.dataset as ds

    rows = ds.dataset(folder.path, filesystem=folder.files, format="parquet")
    mine, has_code = ds.field("run") == run, ds.field("code").is_valid()
    failed: Any = rows.to_table(columns=["file", "code"], filter=mine & has_code).to_pylist()
    for file, code in sorted((row["file"], row["code"]) for row in failed)[:SHOWN]:
        complain(f"{file}: {code}")
    if len(failed) > SHOWN:
        complain(f"… and {len(failed) - SHOWN} more.")
    captioned = rows.count_rows(filter=mine & ~has_code)
    counted = "1 video" if count == 1 else f"{count} videos"
    were = "was" if passed_over == 1 else "were"
    complain(
        f"{counted}: {captioned} captioned, {len(failed)} with a code in {out}; "
        f"{passed_over} {were} done before."
    )
    return len(failed)
