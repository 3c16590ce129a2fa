"""``python -m app train`` and ``python -m app evaluate``."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from extractors.sampling import FRAMES

if TYPE_CHECKING:
    from training.datasets.registry import SetFolder
    from training.recipes.option_check import TrainOptions
    from training.recipes.recipe import Recipe
    from training.sessions.videos import RunPaths

app = typer.Typer(add_completion=False, no_args_is_help=True)


class CaptionerName(StrEnum):
    """What can be trained: captioners, and the embedding that picks among captions."""

    stats = "stats"
    g2l = "g2l"
    refocus = "refocus"
    dual_afr = "dual_afr"
    vanilla = "vanilla"
    temporal = "temporal"
    spatial = "spatial"
    semantic_embedding = "semantic_embedding"


Branches = Literal["st", "ts"]
DataSetName = Annotated[
    str | None, typer.Option(help="The captioned set that lies in --data: msvd, msrvtt … see docs/data.md.")
]
Paper = Annotated[str | None, typer.Option(help="Whose splits and words the set has; see data check.")]
Data = Annotated[
    Path, typer.Option(help="Folder with the archives and captions that docs/training.md lists.")
]


@app.command()
def train(
    captioner: CaptionerName,
    data: Data,
    recipe: Annotated[
        str | None,
        typer.Option(help="How it is trained; default: its demo. As in its paper: paper-msvd …"),
    ] = None,
    streams: Annotated[
        str | None,
        typer.Option(help="What it is fed with: a stream set; default: --start's own, or the demo's."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The run's folder; a run that was stopped goes on from it. Default: runs/CAPTIONER"
        ),
    ] = None,
    cache: Annotated[Path, typer.Option(help="Where features are kept between runs.")] = Path("data/cache"),
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 2,
    start: Annotated[Path | None, typer.Option(help="A checkpoint whose weights to begin with.")] = None,
    teacher: Annotated[
        list[str] | None,
        typer.Option(help="A captioner whose probabilities are learned too; may be repeated."),
    ] = None,
    data_set: DataSetName = None,
    paper: Paper = None,
    seed: Annotated[int | None, typer.Option(help="Another seed than the recipe's.")] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Another number of cross-entropy steps than the recipe's.")
    ] = None,
    self_critical: Annotated[
        bool | None,
        typer.Option(
            "--self-critical/--no-self-critical",
            help="Refine by rewards after the cross-entropy steps; default: what the recipe has.",
        ),
    ] = None,
) -> None:
    """Train a captioner; writes best.safetensors, log.csv and last.pt into --out."""
    from training.recipes.option_check import TrainOptions, UnreadOption
    from training.recipes.papers import PAPER_NAMES
    from training.sessions.videos import RunPaths

    name = captioner.value
    place = RunPaths(out or Path("runs", name), cache, typer.echo, threads)
    given = TrainOptions(start, streams, teacher, data_set, paper, steps, self_critical)
    try:
        if recipe in PAPER_NAMES:
            best = _as_paper(name, recipe, seed, data, given, place)
        else:
            best = _by_recipe(name, _recipe(recipe, name), seed, data, given, place)
    except UnreadOption as error:
        raise typer.BadParameter(str(error)) from error
    typer.echo(f"best checkpoint: {best}")


def _recipe(recipe: str | None, name: str) -> Recipe:
    from training.recipes.recipe_book import UnknownRecipe, recipe_of

    try:
        return recipe_of(recipe, name)
    except UnknownRecipe as error:
        raise typer.BadParameter(f"--recipe: {error}") from error


def _by_recipe(
    name: str, recipe: Recipe, seed: int | None, data: Path, given: TrainOptions, place: RunPaths
) -> Path:
    """The embedding, or a captioner on videos or pictures, as the options say. Raises UnreadOption."""
    from training.datasets.registry import SetFolder
    from training.recipes.option_check import (
        unread_by_embedding,
        unread_on_pictures,
        unread_on_videos,
        unread_with_network,
    )
    from training.recipes.recipe_book import FINETUNE, TUNING

    changed = {"seed": seed, "steps": given.steps}
    changed["self_critical_steps"] = 0 if given.self_critical is False else None
    plan = recipe.model_copy(update={field: value for field, value in changed.items() if value is not None})
    if recipe.name in TUNING:
        given.refuse(unread_with_network(recipe))
        return _on_pictures(name, plan, data, given, place)
    is_embedding = name == CaptionerName.semantic_embedding
    if not is_embedding and (recipe.name == FINETUNE.name or given.data_set is not None):
        given.refuse(unread_on_videos(recipe, given.start))
        folder = SetFolder(data, given.data_set, given.paper)
        return _on_videos(name, plan, given.start, folder, given.streams, place)
    given.refuse(unread_by_embedding(recipe) if is_embedding else unread_on_pictures(recipe))
    return _on_pictures(name, plan, data, given, place)


def _on_pictures(name: str, plan: Recipe, data: Path, given: TrainOptions, place: RunPaths) -> Path:
    """``_learned_of_pictures``, whose errors are told by the option that is to be changed."""
    from extractors.pretrained.errors import WeightsError
    from models.captioners.registry import UnknownCaptioner
    from models.checkpoint import CheckpointError
    from models.feature_sources.stream_checks import StreamMismatch
    from models.feature_sources.stream_sets import UnknownStream, UnknownStreamSet
    from training.batches.archives import CorpusError
    from training.batches.picture_inputs import NeedsVideo
    from training.optimization.network_tuning import NotOnGrid

    try:
        return _learned_of_pictures(name, plan, data, given, place)
    except (FileNotFoundError, CorpusError) as error:  # of a set that is not there, or not as it should be
        raise typer.BadParameter(f"--data: {error}") from error
    except NotOnGrid as error:
        raise typer.BadParameter(f"--recipe {plan.name}: {error}") from error
    except (CheckpointError, WeightsError) as error:  # of the start or of a teacher, which it names
        raise typer.BadParameter(str(error)) from error
    except (UnknownStream, UnknownStreamSet, NeedsVideo) as error:
        raise typer.BadParameter(f"--streams: {error}") from error
    except (UnknownCaptioner, StreamMismatch) as error:
        raise typer.BadParameter(f"--teacher: {error}") from error


def _learned_of_pictures(name: str, plan: Recipe, data: Path, given: TrainOptions, place: RunPaths) -> Path:
    """The embedding, a captioner, or one and the end of its image networks, on pictures and pans."""
    from models.checkpoint import read_card
    from models.feature_sources.stream_sets import find_stream_set
    from training.recipes.recipe_book import CONTINUING, DEMO_STREAMS, TUNING
    from training.sessions.pictures import train_captioner, train_semantic_embedding
    from training.sessions.tuning import tune_network

    out, cache, threads, start = place.out, place.cache, place.threads, given.start
    teachers = given.teachers or ()
    if plan.name in CONTINUING and start is None:
        raise typer.BadParameter(f"--recipe {plan.name} goes on from a captioner: give it as --start")
    if plan.name in TUNING and start is not None:
        return tune_network(name, plan, data, out, cache, threads, start, teachers)
    own = None if start is None else read_card(start).training.get("streams")
    wanted = find_stream_set(given.streams or own or DEMO_STREAMS.get(name, "demo"))
    if name == CaptionerName.semantic_embedding:
        return train_semantic_embedding(plan, data, out, cache, threads, start, wanted)
    return train_captioner(name, plan, data, out, cache, threads, start, wanted, teachers)


def _as_paper(
    name: str, recipe: str, seed: int | None, data: Path, given: TrainOptions, place: RunPaths
) -> Path:
    """A captioner trained as in its paper. Raises UnreadOption."""
    from models.feature_sources.stream_sets import UnknownStream, UnknownStreamSet
    from training.datasets.errors import DataSetError
    from training.optimization.rewards import NoReward
    from training.recipes.option_check import unread_as_paper
    from training.recipes.papers import paper_run
    from training.recipes.recipe_book import UnknownRecipe
    from training.sessions.videos import seeded, train_as_paper

    try:
        run = seeded(paper_run(recipe, name), seed)
        given.refuse(unread_as_paper(run))
        return train_as_paper(name, run, data, place, given.streams, given.self_critical is not False)
    except DataSetError as error:
        raise typer.BadParameter(f"--data: {error.advice}") from error
    except (UnknownStream, UnknownStreamSet) as error:
        raise typer.BadParameter(f"--streams: {error}") from error
    except (UnknownRecipe, NoReward) as error:
        raise typer.BadParameter(f"--recipe {recipe}: {error}") from error


def _on_videos(
    name: str, plan: Recipe, start: Path | None, data: SetFolder, streams: str | None, place: RunPaths
) -> Path:
    """A captioner trained on a captioned set of videos: on from ``start``, or from nothing without one."""
    from models.checkpoint import CheckpointError
    from models.feature_sources.stream_checks import StreamMismatch
    from models.feature_sources.stream_sets import UnknownStream, UnknownStreamSet, find_stream_set
    from training.datasets.errors import DataSetError
    from training.recipes.recipe_book import DEMO_STREAMS, FINETUNE
    from training.sessions.videos import finetune, train_on_videos

    if start is None and plan.name == FINETUNE.name:
        raise typer.BadParameter("--recipe finetune goes on from a captioner: give it as --start")
    try:
        if start is not None:
            return finetune(start, name, plan, data.load(), place)
        wanted = find_stream_set(streams or DEMO_STREAMS.get(name, "demo"))
        return train_on_videos(name, wanted, plan, data.load(), data.rule, place)
    except DataSetError as error:
        raise typer.BadParameter(f"--data: {error.advice}") from error
    except (UnknownStream, UnknownStreamSet) as error:
        raise typer.BadParameter(f"--streams: {error}") from error
    except (CheckpointError, StreamMismatch) as error:
        raise typer.BadParameter(f"--start: {error}") from error


@app.command()
def evaluate(
    captioner: Annotated[str, typer.Argument(help="A captioner's name, or a checkpoint file.")],
    images: Annotated[Path | None, typer.Option(help="Tar or folder of pictures or frames.")] = None,
    captions: Annotated[
        Path | None, typer.Option(help="Their captions: COCO's JSON form, or MSR-VTT's.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Which split; default: val, of --data test where there is one.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder of a captioned set, or of one's own videos; see docs/data.md.")
    ] = None,
    data_set: DataSetName = None,
    paper: Paper = None,
    cache: Annotated[Path, typer.Option(help="Where features of --data are kept.")] = Path("data/cache"),
    clips: Annotated[
        Path | None, typer.Option(help='Video files: a JSON list of {"file", "captions"} beside them.')
    ] = None,
    frames: Annotated[int, typer.Option(help="Frames sampled from a clip.")] = FRAMES,
    beam_size: int = 5,
    length_penalty: float = 0.7,
    streams: Annotated[
        str | None, typer.Option(help="What it is fed with: a stream set; default: its own.")
    ] = None,
    members: Annotated[
        str | None, typer.Option(help="fusion or ensemble only: who takes part, with commas between.")
    ] = None,
    branches: Annotated[Branches | None, typer.Option(help="STaTS only: read one branch alone.")] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first N.")] = None,
    shuffled: Annotated[
        bool, typer.Option(help="Also score the same captions given to other videos.")
    ] = False,
    show: Annotated[bool, typer.Option(help="Print every caption.")] = False,
    record: Annotated[str | None, typer.Option(help="Keep the scores in the checkpoint.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Score a captioner: BLEU, METEOR, ROUGE-L and CIDEr-D with bootstrap intervals."""
    from models.captioners.registry import UnknownCaptioner
    from models.combining.caption_writers import VocabulariesDiffer
    from models.combining.members import WrongMembers
    from models.decoding.decode import DecodingOptions
    from models.feature_sources.stream_checks import StreamMismatch
    from models.feature_sources.stream_sets import UnknownStreamSet
    from training.datasets.errors import DataSetError
    from training.datasets.registry import SetFolder
    from training.evaluation.evaluated_captioner import evaluated_captioner
    from training.evaluation.report import EvaluationSource, evaluate_captioner
    from training.evaluation.report import record as write_scores

    if [images, clips, data].count(None) != 2 or (images is not None and captions is None):
        raise typer.BadParameter("give one of: --images with --captions, --clips, --data")
    videos = None if data is None else SetFolder(data, data_set, paper, split, cache)
    source = EvaluationSource(images, captions, split, clips, frames, limit, videos)
    options = DecodingOptions(beam_size=beam_size, length_penalty=length_penalty, attention=False)
    try:
        named = None if members is None else members.split(",")
        entry = evaluated_captioner(captioner, named, streams, branches, frames)
        result = evaluate_captioner(entry, source, options, shuffled)
    except UnknownCaptioner as error:
        raise typer.BadParameter(str(error)) from error
    except (WrongMembers, VocabulariesDiffer) as error:
        raise typer.BadParameter(f"--members: {error}") from error
    except (UnknownStreamSet, StreamMismatch) as error:
        raise typer.BadParameter(f"--streams: {error}") from error
    except DataSetError as error:
        raise typer.BadParameter(f"--data: {error.advice}") from error
    if record is not None:
        write_scores(captioner, record, result.report)
    if as_json:
        typer.echo(json.dumps(result.to_json()))
    else:
        result.print(show)


@app.command()
def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of training runs.")],
    out: Annotated[Path, typer.Option(help="The picture.")] = Path("curves.png"),
) -> None:
    """Draw loss and held-out CIDEr-D of runs by step, all in one picture."""
    from training.evaluation.plot import NoCurves, draw, read_curves

    try:
        draw([read_curves(run) for run in runs]).savefig(out)
    except NoCurves as error:
        raise typer.BadParameter(str(error)) from error
    typer.echo(out)
