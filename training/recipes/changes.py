"""Changes fields of a recipe and of a captioner's configuration by their names: ``--set``, and recipe files.

    --set learning_rate=2e-4 --set decoding.beam_size=3 --set hidden=768 --set schedule.kind=decay

A file of ``--recipe mine.toml`` has the same names, those of the configuration in its table ``config``, and
with ``extends`` the recipe that it changes.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from extractors.errors import ReelwordError
from models.decoding.options import first_fault
from training.recipes.recipe import Recipe

ModelT = TypeVar("ModelT", bound=BaseModel)


class UnknownField(ReelwordError, ValueError, code="unknown_field"):
    """A recipe or configuration has no field of that name; the message lists those that are near it."""

    hint = "docs/training.md says where all fields are listed."


class FieldRefused(ReelwordError, ValueError, code="field_refused"):
    """A field cannot have that value; the message says why."""

    hint = "Give the field a value of its type."


class RecipeFileDamaged(ReelwordError, ValueError, code="recipe_file_damaged"):
    """A recipe's file cannot be read; the message says what is wrong in it."""

    hint = "Correct the file: docs/training.md, A recipe of your own."


@dataclass(frozen=True)
class Changes:
    """What differs from a recipe and from a configuration: field → value, with dots into nested ones."""

    recipe: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def sort(cls, values: Mapping[str, Any], config_class: type[BaseModel]) -> Changes:
        """Sorts values by whose fields they are.

        Args:
            values: Field → value; ``config.`` may stand before a field of the configuration.
            config_class: The captioner's configuration.

        Raises:
            UnknownField: Neither has a field of that name.
        """
        recipe, config = {}, {}
        for name, value in values.items():
            bare = name.removeprefix("config.")
            if name.partition(".")[0] in Recipe.model_fields:
                recipe[name] = value
            elif bare.partition(".")[0] in config_class.model_fields:
                config[bare] = value
            else:
                raise _unknown(name, [*Recipe.model_fields, *config_class.model_fields])
        return cls(recipe, config)

    def __or__(self, later: Changes) -> Changes:
        """Returns both, of which the later ones count."""
        return Changes({**self.recipe, **later.recipe}, {**self.config, **later.config})


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
    """Returns a model with other values.

    Args:
        model: A recipe or a configuration.
        changes: Field → value; ``decoding.beam_size`` is a field of the field ``decoding``.

    Raises:
        UnknownField: There is no such field; the message lists those that are near it.
        FieldRefused: The value is not of the field's type.
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
        changed = type(model).model_validate(numbers)
    except ValidationError as error:
        raise _refused(error, model) from error
    for name in changes:
        _check_path(changed, name)
    return changed


def _flatten(table: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Returns the values of nested tables by dotted names."""
    return {
        name: value
        for key, each in table.items()
        for name, value in (
            _flatten(each, f"{above}{key}.") if isinstance(each, dict) and each else {f"{above}{key}": each}
        ).items()
    }


def _refused(error: ValidationError, model: BaseModel) -> ReelwordError:
    """Makes the error of a value that a field cannot have, or of a field that is not there."""
    first = error.errors(include_url=False)[0]
    name = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        inner = _follow(model, first["loc"][:-1])
        return _unknown(name, list(type(inner).model_fields) if isinstance(inner, BaseModel) else [])
    return FieldRefused(f"{name}: {first['msg']}." if name else f"{first_fault(error)[1]}.")


def _check_path(model: BaseModel, name: str) -> None:
    """Checks that a changed field is there: some models leave out what they lack. Raises UnknownField."""
    *parents, last = name.split(".")
    inner = _follow(model, parents)
    if isinstance(inner, BaseModel) and last not in type(inner).model_fields:
        raise _unknown(name, list(type(inner).model_fields))


def _follow(model: BaseModel, names: Iterable[str | int]) -> object:
    value: Any = model
    for name in names:
        if isinstance(value, BaseModel):
            value = getattr(value, str(name), value)
    return value


def _unknown(name: str, names: list[str]) -> UnknownField:
    near = get_close_matches(name.rpartition(".")[2], names, 4, 0.5)
    listed = f"near it are: {', '.join(near)}" if near else f"there are: {', '.join(names)}"
    return UnknownField(f"no field is called {name!r}; {listed}")
