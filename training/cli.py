"""Defines ``python -m app train``, ``evaluate`` and ``plot``: options, and errors by the option to change.

What is heavy to import is imported where it is used, so that help comes at once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from extractors.windows import FRAMES

if TYPE_CHECKING:
    from training.datasets.registry import SetFolder
    from training.optimization.run_folder import RunSettings
    from training.recipes.option_check import TrainOptions
    from training.recipes.recipe import Recipe
    from training.saved_features.feature_folder import FeatureFolder

app = typer.Typer(add_completion=False, no_args_is_help=True)


#: Trained like a captioner: the embedding that picks among captions.
EMBEDDING = "semantic_embedding"
Branches = Literal["st", "ts"]
Method = Literal["beam", "greedy", "sample"]
FusionRule = Literal["merit", "relevance"]
BeamSize = Annotated[
    int | None, typer.Option(help="Beams; what is not said of the search is the checkpoint's recipe's, or 5.")
]
LengthPenalties = Annotated[
    str | None,
    typer.Option(
        help="A, or wu_A or avg_A, see docs/models.md; default: the recipe's, or 0.7.",
        parser=lambda text: text if text.startswith(("wu_", "avg_")) else float(text),
        metavar="TEXT",
    ),
]
DataSetName = Annotated[
    str | None, typer.Option(help="The captioned set that lies in --data: msvd, msrvtt … see docs/data.md.")
]
Paper = Annotated[str | None, typer.Option(help="Whose splits and words the set has; see data check.")]
SavedFeatures = Annotated[
    Path | None,
    typer.Option(
        "--features", help="Folder of features that extract or others made; see docs/data.md, Saved features."
    ),
]
MapFile = Annotated[
    Path | None, typer.Option("--feature-map", help="What names --features; default: its features.yaml.")
]
Device = Annotated[
    str, typer.Option(help="What computes: auto takes a GPU where there is one; cpu, cuda, cuda:1 …")
]
Data = Annotated[
    Path,
    typer.Option(
        help="Folder with the archives and captions that docs/training.md lists, of a captioned set, or of "
        "your own videos (docs/data.md)."
    ),
]


def _toggle(name: str, said: str) -> Any:
    """Makes an option that is on, off, or not given."""
    return typer.Option(f"--{name}/--no-{name}", help=said)


def _check_name(captioner: str) -> str:
    """Returns the name of a captioner or of the embedding; refuses others before anything else is asked."""
    from models.captioners.registry import UnknownCaptioner, captioner_class

    try:
        if captioner != EMBEDDING:
            captioner_class(captioner)
    except UnknownCaptioner as error:
        raise typer.BadParameter(f"{error}, {EMBEDDING}") from error
    return captioner


@app.command()
def train(
    captioner: Annotated[
        str,
        typer.Argument(
            callback=_check_name,
            help="stats, g2l, refocus, dual_afr, vanilla, temporal, spatial, another name of "
            f"models/captioners/registry.py, or {EMBEDDING}.",
        ),
    ],
    data: Data,
    recipe: Annotated[
        str | None,
        typer.Option(help="How it is trained; default: its demo. As in its paper: paper-msvd …"),
    ] = None,
    streams: Annotated[
        str | None,
        typer.Option(
            help="What it is fed with: a stream set; default: --start's own, the paper "
            "recipe's, the feature map's, or the demo's."
        ),
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
    features: SavedFeatures = None,
    feature_map: MapFile = None,
    device: Device = "auto",
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
    from extractors.engines.engine_choice import DeviceUnavailable
    from training.optimization.processes import NotShared, join_processes
    from training.optimization.run_folder import RunSettings
    from training.recipes.option_check import TrainOptions, UnreadOption

    saved = _open_features(features, feature_map)
    given = TrainOptions(start, streams, teacher, data_set, paper, steps, self_critical, features)
    try:
        with join_processes(device) as (processes, opened):
            notify = typer.echo if processes.is_first else _say_nothing
            folder = out or Path("runs", captioner)
            settings = RunSettings(folder, cache, notify, threads, opened, processes, saved)
            best = _train(captioner, recipe, seed, data, given, settings)
            notify(f"best checkpoint: {best}")
    except DeviceUnavailable as error:
        raise typer.BadParameter(f"--device: {error.advice}") from error
    except NotShared as error:
        raise typer.BadParameter(error.advice) from error
    except UnreadOption as error:
        raise typer.BadParameter(str(error)) from error


def _say_nothing(_: str) -> None:
    """Stands in the place of what the first process says for all."""


def _train(
    name: str, recipe: str | None, seed: int | None, data: Path, given: TrainOptions, settings: RunSettings
) -> Path:
    """Trains by the recipe of that name. Raises UnreadOption."""
    from training.recipes.paper_recipes import PAPER_NAMES

    if recipe in PAPER_NAMES:
        return _train_as_paper(name, recipe, seed, data, given, settings)
    return _train_by_recipe(name, _find_recipe(recipe, name), seed, data, given, settings)


def _open_features(folder: Path | None, map_file: Path | None) -> FeatureFolder | None:
    """Names the folder of saved features, where there is one. Raises BadParameter."""
    from training.saved_features.feature_folder import FeatureFolder

    if folder is None and map_file is not None:
        raise typer.BadParameter("--feature-map says what lies in --features, which is not given")
    if folder is not None and not folder.is_dir():
        raise typer.BadParameter(f"--features: there is no folder {folder}")
    return None if folder is None else FeatureFolder(folder, map_file)


def _find_recipe(recipe: str | None, name: str) -> Recipe:
    from training.recipes.demo_recipes import UnknownRecipe, find_recipe

    try:
        return find_recipe(recipe, name)
    except UnknownRecipe as error:
        raise typer.BadParameter(f"--recipe: {error}") from error


def _train_by_recipe(
    name: str, recipe: Recipe, seed: int | None, data: Path, given: TrainOptions, settings: RunSettings
) -> Path:
    """Trains the embedding, or a captioner on videos or pictures, as the options say. Raises UnreadOption."""
    from training.datasets.registry import SetFolder
    from training.recipes.demo_recipes import FINETUNE, TUNING
    from training.recipes.option_check import (
        list_unread_by_embedding,
        list_unread_on_pictures,
        list_unread_on_videos,
        list_unread_with_network,
    )

    changed = {"seed": seed, "steps": given.steps}
    changed["self_critical_steps"] = 0 if given.self_critical is False else None
    plan = recipe.model_copy(update={field: value for field, value in changed.items() if value is not None})
    if recipe.name in TUNING:
        given.refuse(list_unread_with_network(recipe))
        return _train_on_pictures(name, plan, data, given, settings)
    is_embedding = name == EMBEDDING
    if not is_embedding and (recipe.name == FINETUNE.name or given.data_set is not None):
        given.refuse(list_unread_on_videos(recipe, given.start))
        folder = SetFolder(data, given.data_set, given.paper)
        return _train_on_videos(name, plan, given.start, folder, given.streams, settings)
    given.refuse(list_unread_by_embedding(recipe) if is_embedding else list_unread_on_pictures(recipe))
    return _train_on_pictures(name, plan, data, given, settings)


def _train_on_pictures(
    name: str, plan: Recipe, data: Path, given: TrainOptions, settings: RunSettings
) -> Path:
    """Trains on pictures; says of an error which option is to be changed."""
    from extractors.pretrained.errors import WeightsError
    from models.captioners.registry import UnknownCaptioner
    from models.checkpoint import CheckpointError
    from models.feature_sources.stream_checks import StreamMismatch
    from models.stream_set import UnknownStream, UnknownStreamSet
    from training.batches.archives import CorpusError
    from training.batches.picture_inputs import NeedsVideo
    from training.optimization.network_tuning import NotOnGrid

    try:
        return _choose_picture_training(name, plan, data, given, settings)
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


def _choose_picture_training(
    name: str, plan: Recipe, data: Path, given: TrainOptions, settings: RunSettings
) -> Path:
    """Trains the embedding, a captioner, or one and the end of its image networks."""
    from models.checkpoint import read_card
    from models.stream_set import find_stream_set
    from training.recipes.demo_recipes import CONTINUING, DEMO_STREAMS, TUNING
    from training.sessions.pictures import train_captioner, train_semantic_embedding
    from training.sessions.tuning import tune_network

    start, teachers = given.start, given.teachers or ()
    if plan.name in CONTINUING and start is None:
        raise typer.BadParameter(f"--recipe {plan.name} goes on from a captioner: give it as --start")
    if plan.name in TUNING and start is not None:
        return tune_network(name, plan, data, settings, start, teachers)
    own = None if start is None else read_card(start).training.get("streams")
    wanted = find_stream_set(given.streams or own or DEMO_STREAMS.get(name, "demo"))
    if name == EMBEDDING:
        return train_semantic_embedding(plan, data, settings, start, wanted)
    return train_captioner(name, plan, data, settings, start, wanted, teachers)


def _train_as_paper(
    name: str, recipe: str, seed: int | None, data: Path, given: TrainOptions, settings: RunSettings
) -> Path:
    """Trains a captioner as its paper did. Raises UnreadOption."""
    from models.stream_set import UnknownStream, UnknownStreamSet
    from training.datasets.errors import DataSetError
    from training.optimization.rewards import NoReward
    from training.recipes.demo_recipes import UnknownRecipe
    from training.recipes.fitted_configs import StreamsDoNotFit
    from training.recipes.option_check import list_unread_as_paper
    from training.recipes.paper_recipes import find_paper_run
    from training.saved_features.clock_checks import FeaturesDoNotFit
    from training.saved_features.feature_map import FeatureMapDamaged
    from training.sessions.videos import train_as_paper

    try:
        run = find_paper_run(recipe, name).with_seed(seed)
        given.refuse(list_unread_as_paper(run))
        return train_as_paper(name, run, data, settings, given.streams, given.self_critical is not False)
    except DataSetError as error:
        raise typer.BadParameter(f"--data: {error.advice}") from error
    except (UnknownStream, UnknownStreamSet, StreamsDoNotFit) as error:
        raise typer.BadParameter(f"--streams: {error}") from error
    except (FeatureMapDamaged, FeaturesDoNotFit, ImportError) as error:
        raise typer.BadParameter(f"--features: {error}") from error
    except (UnknownRecipe, NoReward) as error:
        raise typer.BadParameter(f"--recipe {recipe}: {error}") from error


def _train_on_videos(
    name: str, plan: Recipe, start: Path | None, data: SetFolder, streams: str | None, settings: RunSettings
) -> Path:
    """Trains a captioner on a captioned set of videos: on from ``start``, or from nothing without one."""
    from models.checkpoint import CheckpointError
    from models.feature_sources.stream_checks import StreamMismatch
    from models.stream_set import UnknownStream, UnknownStreamSet
    from training.datasets.errors import DataSetError
    from training.recipes.demo_recipes import DEMO_STREAMS, FINETUNE
    from training.recipes.fitted_configs import StreamsDoNotFit
    from training.saved_features.clock_checks import FeaturesDoNotFit
    from training.saved_features.feature_map import FeatureMapDamaged
    from training.sessions.videos import choose_stream_set, finetune, train_on_videos

    if start is None and plan.name == FINETUNE.name:
        raise typer.BadParameter("--recipe finetune goes on from a captioner: give it as --start")
    try:
        if start is not None:
            return finetune(start, name, plan, data.load(), settings)
        wanted = choose_stream_set(streams, DEMO_STREAMS.get(name, "demo"), settings.features)
        return train_on_videos(name, wanted, plan, data.load(), data.rule, settings)
    except DataSetError as error:
        raise typer.BadParameter(f"--data: {error.advice}") from error
    except (UnknownStream, UnknownStreamSet, StreamsDoNotFit) as error:
        raise typer.BadParameter(f"--streams: {error}") from error
    except (FeatureMapDamaged, FeaturesDoNotFit, ImportError) as error:
        raise typer.BadParameter(f"--features: {error}") from error
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
    features: SavedFeatures = None,
    feature_map: MapFile = None,
    clips: Annotated[
        Path | None, typer.Option(help='Video files: a JSON list of {"file", "captions"} beside them.')
    ] = None,
    frames: Annotated[int, typer.Option(help="Frames sampled from a clip.")] = FRAMES,
    device: Device = "auto",
    method: Annotated[Method | None, typer.Option(help="How words are chosen; default: beam.")] = None,
    beam_size: BeamSize = None,
    length_penalty: LengthPenalties = None,
    max_length: Annotated[int | None, typer.Option(help="Tokens of a caption, at most.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Divides log-probabilities.")] = None,
    top_k: Annotated[int | None, typer.Option(help="sample: among the k likeliest words.")] = None,
    top_p: Annotated[float | None, typer.Option(help="sample: among words of this probability.")] = None,
    seed: Annotated[int | None, typer.Option(help="sample: makes the draws repeatable.")] = None,
    suppress_unk: Annotated[bool | None, _toggle("suppress-unk", "Never write <unk>.")] = None,
    block_trigrams: Annotated[
        bool | None, _toggle("block-trigrams", "No three words in a row twice.")
    ] = None,
    decoding_constraint: Annotated[
        bool | None, _toggle("decoding-constraint", "No word twice in a row.")
    ] = None,
    name_once: Annotated[bool | None, _toggle("name-once", "No word twice that names something.")] = None,
    remove_bad_endings: Annotated[
        bool | None, _toggle("remove-bad-endings", "No end after an article or a preposition.")
    ] = None,
    group_size: Annotated[int | None, typer.Option(help="Groups of diverse beam search.")] = None,
    diversity_lambda: Annotated[float | None, typer.Option(help="How much groups are to differ.")] = None,
    fusion_rule: Annotated[
        FusionRule | None,
        typer.Option(help="fusion: rank by merit, or by relevance alone as the paper; default: merit."),
    ] = None,
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
    from extractors.engines.engine_choice import DeviceUnavailable, open_device
    from models.captioners.registry import UnknownCaptioner
    from models.combining.caption_writers import VocabulariesDiffer
    from models.combining.members import WrongMembers
    from models.feature_sources.stream_checks import StreamMismatch
    from models.stream_set import UnknownStream, UnknownStreamSet
    from training.datasets.errors import DataSetError
    from training.datasets.registry import SetFolder
    from training.evaluation.evaluated_captioner import WrongSearch, load_evaluated_captioner
    from training.evaluation.report import EvaluationSource, evaluate_captioner, record_scores
    from training.saved_features.clock_checks import FeaturesDoNotFit
    from training.saved_features.feature_map import FeatureMapDamaged

    if [images, clips, data].count(None) != 2 or (images is not None and captions is None):
        raise typer.BadParameter("give one of: --images with --captions, --clips, --data")
    if features is not None and data is None:
        raise typer.BadParameter("--features are of a set's videos: give the set as --data")
    videos = None if data is None else SetFolder(data, data_set, paper, split, cache)
    source = EvaluationSource(images, captions, split, clips, frames, limit, videos)
    said: dict[str, Any] = {
        "method": method,
        "beam_size": beam_size,
        "length_penalty": length_penalty,
        "max_length": max_length,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
        "suppress_unk": suppress_unk,
        "block_trigrams": block_trigrams,
        "decoding_constraint": decoding_constraint,
        "name_once": name_once,
        "remove_bad_endings": remove_bad_endings,
        "group_size": group_size,
        "diversity_lambda": diversity_lambda,
        "fusion_rule": fusion_rule,
    }
    try:
        named = None if members is None else members.split(",")
        saved = _open_features(features, feature_map)
        opened = open_device(device)
        entry = load_evaluated_captioner(captioner, named, streams, branches, frames, opened, saved)
        result = evaluate_captioner(entry, source, entry.choose_search(said), shuffled)
    except DeviceUnavailable as error:
        raise typer.BadParameter(f"--device: {error.advice}") from error
    except UnknownCaptioner as error:
        raise typer.BadParameter(str(error)) from error
    except WrongSearch as error:
        raise typer.BadParameter(str(error)) from error
    except (WrongMembers, VocabulariesDiffer) as error:
        raise typer.BadParameter(f"--members: {error}") from error
    except (UnknownStreamSet, StreamMismatch) as error:
        raise typer.BadParameter(f"--streams: {error}") from error
    except (FeatureMapDamaged, FeaturesDoNotFit, UnknownStream, ImportError) as error:
        raise typer.BadParameter(f"--features: {error}") from error
    except DataSetError as error:
        raise typer.BadParameter(f"--data: {error.advice}") from error
    if record is not None:
        record_scores(captioner, record, result.report)
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
