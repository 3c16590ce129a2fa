"""Writes features of videos to files, for training and for other people's code: ``reelword extract``.

Every video is decoded once for all extractors. Features that are there, whole and made as they would be
now, are left alone, so that a run that was stopped resumes where it was. A line a video goes to standard
output where predictions are asked for; progress, what was done anew and what failed go to standard error.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from app.errors import UsageError, sentence
from app.extract.inputs import InputVideo, find_inputs, make_folder, name_apart
from app.extract.plan import ExtractionOutcome, ExtractionPlan, choose_format
from app.extract.pool import extract_in_processes
from app.terminal import complain, printable, show_progress
from extractors.extractor import UnknownExtractor, list_extractors, list_inputs
from extractors.video_features.feature_files import FeaturesDamaged, VideoSource, path_digest
from extractors.video_features.npy_hdf5 import link


def extract_files(sources: Sequence[str], plan: ExtractionPlan, jobs: int) -> int:
    """Extracts features of files and folders, prints what came of each, and returns how many failed.

    Args:
        sources: files, folders, lists and addresses.
        jobs: how many are extracted at a time.

    Raises:
        UsageError: nothing can be done for any of them.
        ExtractorsMissing: weights or a package are absent.
    """
    plan = _complete(plan)
    files = find_inputs(sources, plan.out)
    videos = name_apart(files, lambda video: find_owner(video, plan))
    outcomes = []
    with show_progress(len(videos)) as bar:
        bar.say(f"Extracting {', '.join(plan.extractors)}")
        for outcome in extract_in_processes(plan, videos, jobs):
            outcomes.append(outcome)
            bar.advance()
            bar.print(*(printable(f"{outcome.file}: {line}") for line in outcome.predictions))
    if plan.form == "hdf5":
        for name in plan.extractors:
            link(plan.folder(name))
    return _report(outcomes)


def find_owner(video: InputVideo, plan: ExtractionPlan) -> str | None:
    """Finds whose features lie under the video's name: its "own", an "other" video's; None without any."""
    sources = _read_sources(video, plan)
    if not sources:
        return None
    return "own" if all(_is_of(source, video.file) for source in sources) else "other"


def _read_sources(video: InputVideo, plan: ExtractionPlan) -> set[VideoSource]:
    form, sources = choose_format(plan.form), set()
    for folder in map(plan.folder, plan.extractors):
        if form.main_file(folder, video.name).exists():
            with suppress(FeaturesDamaged):
                sources.add(form.header(folder, video.name).source)
    return sources


def _is_of(source: VideoSource, file: Path) -> bool:
    """Returns whether a file lies where the source lay, whatever its bytes are, or has the source's bytes."""
    if source.path == path_digest(file):
        return True
    try:
        return file.stat().st_size == source.bytes and VideoSource.of(file).sha256 == source.sha256
    except OSError:
        return False


def _complete(plan: ExtractionPlan) -> ExtractionPlan:
    """Adds the extractors that others take streams of. Raises UsageError where the plan cannot be done."""
    if not plan.extractors:
        raise UsageError(f"Name an extractor with --extractor; there are: {', '.join(list_extractors())}.")
    try:
        needed = [of for name in plan.extractors for of in list_inputs(name)]
    except UnknownExtractor as error:
        raise UsageError(sentence(str(error))) from error
    choose_format(plan.form)
    make_folder(plan.out)
    return replace(plan, extractors=tuple(dict.fromkeys([*needed, *plan.extractors])))


def _report(outcomes: Sequence[ExtractionOutcome]) -> int:
    """Prints what was done, what was made anew and why, what failed and what to do, after everything else."""
    failed = [outcome for outcome in outcomes if outcome.error]
    kept = sum(not outcome.written and not outcome.error for outcome in outcomes)
    built = len(outcomes) - kept - len(failed)
    for outcome in outcomes:
        for reason in outcome.renewed:
            complain(f"  {outcome.file}: made anew, {reason}")
    videos = "1 video" if len(outcomes) == 1 else f"{len(outcomes)} videos"
    complain(f"{videos}: {built} extracted, {kept} were there, {len(failed)} failed.")
    for outcome in failed:
        complain(f"  {outcome.error}")
    return len(failed)
