"""Chooses the session that trains what is asked for: as in a paper, or on a set of videos.

Options that the session would not read are refused before it begins.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import BaseModel

from extractors.errors import ReelwordError
from models.captioners.registry import EMBEDDINGS, captioner_class, find_captioner, list_captioners
from training.datasets.registry import SetFolder
from training.optimization.run_folder import RunSettings
from training.recipes.changes import (
    NoSuchField,
    RecipeFileDamaged,
    change_fields,
    read_recipe_file,
    sort_changes,
)
from training.recipes.demo_recipes import FINETUNE, FINETUNE_LORA, find_recipe, read_recipes
from training.recipes.paper_recipes import PaperRun, find_paper_run, list_paper_names
from training.recipes.recipe import Recipe
from training.recipes.train_options import StartMissing, TrainOptions, Unread
from training.sessions.videos import choose_stream_set, finetune, train_as_paper, train_on_videos

#: Trained like a captioner: the embedding that picks among captions.
EMBEDDING = "semantic_embedding"
#: Options that training adapters does not read.
NOT_OF_ADAPTERS = ("--start", "--teacher", "--streams", "--features")
#: Trains what has that name by a recipe on the pictures in a folder, as the demo's captioners are.
PictureSession: TypeAlias = Callable[[str, Recipe, Path, TrainOptions, RunSettings], Path]


class NeedsDataSet(ReelwordError, ValueError, code="needs_data_set"):
    """The recipe is for archives of pictures, which the laboratory trains on."""

    hint = "Name the captioned set that lies in --data (--data-set), or a paper's recipe (--recipe)."


def train(
    name: str,
    recipe: str | None,
    seed: int | None,
    data: Path,
    options: TrainOptions,
    settings: RunSettings,
    on_pictures: PictureSession | None = None,
) -> Path:
    """Trains a captioner, or the embedding, by the recipe of a name.

    Args:
        name: of the captioner, or EMBEDDING.
        recipe: its name; None for the captioner's demo.
        seed: another one than the recipe's.
        data: the folder of the pictures or videos with their captions.
        options: what else is asked for.
        settings: of the run.
        on_pictures: trains on pictures, where that can be done.

    Raises:
        NeedsDataSet: the recipe is for pictures, and nothing here trains on them.
        UnreadOption, StartMissing: the recipe does not go with an option, or needs one.
        UnknownRecipe: no recipe has that name.
        NoSuchField, FieldRefused, RecipeFileDamaged: what is changed of a recipe cannot be.
        Exception: what the session raises.
    """
    base, numbers, config = _read_changes(name, recipe, seed, options)
    settings = replace(settings, config=config)
    if base in list_paper_names():
        run = find_paper_run(base, name)
        options.refuse(list_unread_as_paper(run))
        plan = _change(run.recipe, numbers, options)
        plan = plan.without_rewards() if options.self_critical is False else plan
        return train_as_paper(name, replace(run, recipe=plan), data, settings, options.streams)
    plan = _change(find_recipe(base, name), numbers, options)
    if options.self_critical is False and plan.self_critical_steps and name != EMBEDDING:
        # It has been read; of a recipe without rewards it is left to be refused.
        plan, options = plan.without_rewards(), options.model_copy(update={"self_critical": None})
    if plan.name == FINETUNE_LORA.name:
        why = f"{plan.name} begins at the captioner itself, and reads frames; leave it out"
        options.refuse({**dict.fromkeys(NOT_OF_ADAPTERS, why), **explain_no_reward(plan.name)})
        from training.sessions.pretrained import finetune_pretrained  # transformers takes seconds

        captions = SetFolder(data, options.data_set, options.paper).load()
        return finetune_pretrained(name, plan, captions, settings)
    is_on_videos = plan.name == FINETUNE.name or options.data_set is not None
    if is_on_videos and name != EMBEDDING:
        return _train_on_videos(name, plan, data, options, settings)
    if on_pictures is None:
        raise NeedsDataSet(
            f"{plan.name} is for archives of pictures, on which the demo is trained by python -m lab train"
        )
    return on_pictures(name, plan, data, options, settings)


def _read_changes(
    name: str, recipe: str | None, seed: int | None, options: TrainOptions
) -> tuple[str | None, dict[str, Any], dict[str, Any]]:
    """Reads what is changed: by a recipe's file first, then by options.

    Returns the recipe's name, None for the demo's, its changed fields, and those of the configuration. Raises
    NoSuchField, FieldRefused, RecipeFileDamaged.
    """
    config_class: type[BaseModel] = BaseModel  # pretrained ones have none of ours
    if name in EMBEDDINGS:
        config_class = EMBEDDINGS[name].config_class
    elif name in list_captioners():
        config_class = captioner_class(name).config_class
    base, table = recipe, dict[str, Any]()
    if Path(recipe or "").suffix == ".toml":
        base, table = read_recipe_file(Path(recipe or ""))
        try:
            sort_changes(table, config_class)
        except NoSuchField as error:
            raise RecipeFileDamaged(f"{recipe}: {error}") from error
    seeded = {} if seed is None else {"seed": seed}
    return base, *sort_changes({**table, **options.values, **seeded}, config_class)


def _change(recipe: Recipe, numbers: Mapping[str, Any], options: TrainOptions) -> Recipe:
    """Changes a recipe as options say. Raises NoSuchField, FieldRefused."""
    lengths = {f"epochs.{next(iter(recipe.epochs), 'cross_entropy')}": options.epochs}
    changed = change_fields(recipe, {**(lengths if options.epochs else {}), **numbers})
    return changed if options.steps is None else changed.with_steps(options.steps)


def _train_on_videos(
    name: str, plan: Recipe, data: Path, options: TrainOptions, settings: RunSettings
) -> Path:
    """Trains a captioner on a captioned set of videos: on from ``start``, or from nothing without one."""
    options.refuse(list_unread_on_videos(plan, options.start))
    if options.start is None and plan.name == FINETUNE.name:
        raise StartMissing("--recipe finetune goes on from a captioner: give it as --start")
    folder = SetFolder(data, options.data_set, options.paper)
    if options.start is not None:
        return finetune(options.start, name, plan, folder.load(), settings)
    streams = choose_stream_set(
        options.streams, find_captioner(name).description.demo_streams, settings.features
    )
    return train_on_videos(name, streams, plan, folder.load(), folder.rule, settings)


def list_unread_as_paper(run: PaperRun) -> Unread:
    """Lists the options that training as in a paper does not read."""
    name = run.recipe.name
    unread = {
        "--start": f"{name} trains from nothing, as the paper does; recipe finetune goes on from a captioner",
        "--teacher": explain_no_teacher(name),
        "--data-set": f"{name} is for {run.data_set}, which --data has to hold; leave it out",
        "--paper": f"{name} has the splits and words of {run.paper}'s paper; leave it out",
    }
    return {**unread, **({} if "self_critical" in run.recipe.epochs else explain_no_reward(name))}


def list_unread_on_videos(recipe: Recipe, start: Path | None) -> Unread:
    """Lists the options that training on videos, on from ``start`` or from nothing, does not read."""
    unread = {
        "--teacher": "teachers read pictures, not a set of videos; "
        f"with {_name_taught_recipes()} and no --data-set"
    }
    if start is not None:
        unread["--streams"] = f"{start} is fed with the streams that it was trained on; leave it out"
    if recipe.only:
        unread["--data-set"] = f"{recipe.name} learns from shots of pictures, not from a set of videos"
    if recipe.ids:
        unread["--data-set"] = f"{recipe.name} learns from the pictures of {recipe.ids.rstrip('/')} alone"
    return {**unread, **({} if recipe.self_critical_steps else explain_no_reward(recipe.name))}


def explain_no_teacher(recipe: str) -> str:
    return f"{recipe} has no teacher; with one: {_name_taught_recipes()}"


def _name_taught_recipes() -> str:
    """Names the recipes that learn from teachers."""
    names = [name for name, recipe in read_recipes().recipes.items() if recipe.soft_weight]
    return f"--recipe {' or '.join(names)}"


def explain_no_reward(name: str) -> Unread:
    why = f"{name} has no self-critical steps; leave it out"
    return {"--self-critical": why, "--no-self-critical": why}
