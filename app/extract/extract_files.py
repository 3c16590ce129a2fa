"""``python -m app extract``: features of videos as files, for training, and for other people's code.

Every video is decoded once for all extractors. Features that are there, whole and made as they would be
now, are left alone, so that a run that was stopped goes on where it was. A line a video goes to standard
output where predictions are asked for; progress, what was done anew and what failed go to standard error.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from app.errors import UsageError, sentence
from app.extract.inputs import Input, find_videos, name_apart
from app.extract.plan import ExtractionOutcome, ExtractionPlan, form_of
from app.extract.pool import describe_all
from app.progress import progress
from app.terminal import complain, printable
from extractors.extractor import UnknownExtractor, list_extractors, list_inputs
from extractors.video_features.feature_files import FeaturesDamaged, VideoSource, path_digest
from extractors.video_features.npy_hdf5 import link


def extract_files(paths: Sequence[Path], plan: ExtractionPlan, jobs: int) -> int:
    """Describes files and the videos in folders; returns how many failed.

    Raises UsageError, and ExtractorsMissing where weights or a package are absent.
    """
    plan = _completed(plan)
    found = find_videos(paths, plan.out)
    videos = name_apart(found, lambda video: owner_of(video, plan))
    outcomes = []
    with progress(len(videos)) as bar:
        bar.say(f"Extracting {', '.join(plan.extractors)}")
        for outcome in describe_all(plan, videos, jobs):
            outcomes.append(outcome)
            bar.print(_lines(outcome))
    if plan.form == "hdf5":
        for name in plan.extractors:
            link(plan.folder(name))
    return _report(outcomes)


def owner_of(video: Input, plan: ExtractionPlan) -> str | None:
    """Whose features lie under the video's name: its "own", an "other" video's, or nobody's (None)."""
    sources = _sources(video, plan)
    if not sources:
        return None
    return "own" if all(_is_of(source, video.file) for source in sources) else "other"


def _sources(video: Input, plan: ExtractionPlan) -> set[VideoSource]:
    form, found = form_of(plan.form), set()
    for folder in map(plan.folder, plan.extractors):
        if form.main_file(folder, video.name).exists():
            with suppress(FeaturesDamaged):
                found.add(form.header(folder, video.name).source)
    return found


def _is_of(source: VideoSource, file: Path) -> bool:
    """The file lies where the source lay, whatever its bytes are now, or has the source's bytes."""
    if source.path == path_digest(file):
        return True
    try:
        return file.stat().st_size == source.bytes and VideoSource.of(file).sha256 == source.sha256
    except OSError:
        return False


def _completed(plan: ExtractionPlan) -> ExtractionPlan:
    """The plan with the extractors that others take streams of. Raises UsageError where it cannot be done."""
    if not plan.extractors:
        raise UsageError(f"Name an extractor with --extractor; there are: {', '.join(list_extractors())}.")
    try:
        needed = [of for name in plan.extractors for of in list_inputs(name)]
    except UnknownExtractor as error:
        raise UsageError(sentence(str(error))) from error
    try:
        form_of(plan.form)
        plan.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"The folder {plan.out} cannot be made: {error.strerror}.") from error
    except ImportError as error:
        raise UsageError(sentence(str(error))) from error
    return replace(plan, extractors=tuple(dict.fromkeys([*needed, *plan.extractors])))


def _lines(outcome: ExtractionOutcome) -> list[str]:
    return [printable(f"{outcome.file}: {line}") for line in outcome.predictions]


def _report(outcomes: Sequence[ExtractionOutcome]) -> int:
    """What was done, what was made anew and why, what failed and what to do, after everything else."""
    failed = [outcome for outcome in outcomes if outcome.error]
    kept = sum(not outcome.written and not outcome.error for outcome in outcomes)
    built = len(outcomes) - kept - len(failed)
    for outcome in outcomes:
        for reason in outcome.renewed:
            complain(f"  {outcome.file}: made anew, {reason}")
    videos = "1 video" if len(outcomes) == 1 else f"{len(outcomes)} videos"
    complain(f"{videos}: {built} described, {kept} were there, {len(failed)} failed.")
    for outcome in failed:
        if outcome.error:
            error = outcome.error
            complain(f"  {outcome.file}: {error.message} {error.hint} [{error.code}]")
    return len(failed)
