"""Changes fields of a recipe and of a captioner's configuration by their names: ``--set``, and recipe files.

    --set learning_rate=2e-4 --set decoding.beam_size=3 --set hidden=768 --set schedule.kind=decay

A file of ``--recipe mine.toml`` has the same names, those of the configuration in its table ``config``, and
with ``extends`` the recipe that it changes.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from extractors.errors import ReelwordError
from models.decoding.options import first_fault
from training.recipes.recipe import Recipe

ModelT = TypeVar("ModelT", bound=BaseModel)


class NoSuchField(ReelwordError, ValueError, code="no_such_field"):
    """A recipe or configuration has no field of that name; the message lists those that are near it."""

    hint = "docs/training.md says where all fields are listed."


class FieldRefused(ReelwordError, ValueError, code="field_refused"):
    """A field cannot have that value; the message says why."""

    hint = "Give the field a value of its type."


class RecipeFileDamaged(ReelwordError, ValueError, code="recipe_file_damaged"):
    """A recipe's file cannot be read; the message says what is wrong in it."""

    hint = "Correct the file: docs/training.md, A recipe of your own."


def sort_changes(
    values: Mapping[str, Any], config_class: type[BaseModel]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Sorts values by whose fields they are: those of a recipe, and those of a captioner's configuration.

    values: field → value; ``config.`` may stand before a field of the configuration. Raises NoSuchField.
    """
    recipe, config = {}, {}
    for name, value in values.items():
        bare = name.removeprefix("config.")
        if name.partition(".")[0] in Recipe.model_fields:
            recipe[name] = value
        elif bare.partition(".")[0] in config_class.model_fields:
            config[bare] = value
        else:
            of_recipe = [] if bare != name else list(Recipe.model_fields)
            raise _unknown(name, [*of_recipe, *config_class.model_fields])
    return recipe, config


def parse_changes(pairs: Iterable[str]) -> dict[str, Any]:
    """Reads ``field=value`` pairs; values are JSON (``0.1``, ``true``, ``null``, ``[1, 2]``), or else text.

    Raises FieldRefused.
    """
    values: dict[str, Any] = {}
    for pair in pairs:
        name, is_pair, text = pair.partition("=")
        if not is_pair:
            raise FieldRefused(f"{pair!r} is no field=value.")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        values |= _flatten({name.strip(): value})
    return values


def read_recipe_file(path: Path) -> tuple[str | None, dict[str, Any]]:
    """Reads the name of the recipe that a file extends, None for the demo's, and what it changes.

    Raises RecipeFileDamaged.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecipeFileDamaged(f"{path} cannot be read ({error}).") from error
    return table.pop("extends", None), dict(_flatten(table))


def change_fields(model: ModelT, changes: Mapping[str, Any]) -> ModelT:
    """Returns a recipe or a configuration with other values.

    changes: field → value; ``decoding.beam_size`` is a field of the field ``decoding``. Raises NoSuchField,
    whose message lists those that are near it, and FieldRefused where a value is not of the field's type.
    """
    if not changes:
        return model
    numbers = model.model_dump()
    for name, value in changes.items():
        *parents, last = name.split(".")
        place = numbers
        for parent in parents:
            if not isinstance(place.setdefault(parent, {}), dict):
                place[parent] = {}
            place = place[parent]
        place[last] = value
    try:
        changed, fault = type(model).model_validate(numbers), ""
    except ValidationError as error:
        changed, fault = model, ": ".join(filter(None, first_fault(error)))
    for name in changes:
        _check_name(changed, name)
    if fault:
        raise FieldRefused(f"{fault}.")
    return changed


def _flatten(table: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Returns the values of nested tables by dotted names."""
    values: dict[str, Any] = {}
    for key, value in table.items():
        is_table = isinstance(value, dict) and value
        values |= _flatten(value, f"{above}{key}.") if is_table else {f"{above}{key}": value}
    return values


def _check_name(model: BaseModel, name: str) -> None:
    """Checks that a model has a field, since not all refuse what they do not know. Raises NoSuchField."""
    value: Any = model
    for part in name.split("."):
        if isinstance(value, BaseModel):
            if part not in type(value).model_fields:
                raise _unknown(name, list(type(value).model_fields))
            value = getattr(value, part)


def _unknown(name: str, names: list[str]) -> NoSuchField:
    near = get_close_matches(name.rpartition(".")[2], names, 4, 0.5)
    listed = f"near it are: {', '.join(near)}" if near else f"there are: {', '.join(names)}"
    return NoSuchField(f"no field is called {name!r}; {listed}")
