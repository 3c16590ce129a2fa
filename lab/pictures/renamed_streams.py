"""Renames the streams that a captioner's config reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

ConfigT = TypeVar("ConfigT", bound=BaseModel)


def rename_streams(config: ConfigT, names: Mapping[str, str]) -> ConfigT:
    """Copies a config with other names of inputs; what ``names`` (old → new) lacks keeps its own."""
    return config.model_copy(update={field: _renamed(value, names) for field, value in config})


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, tuple):
        return tuple(_renamed(each, names) for each in value)
    if holds_inputs(value):
        return value.model_copy(update={"name": names.get(value.name, value.name)})
    return value


def holds_inputs(value: Any) -> bool:
    """Finds out whether a member of a config is an input, of whichever captioner, or several."""
    if isinstance(value, tuple):
        return any(holds_inputs(each) for each in value)
    return isinstance(value, BaseModel) and {"name", "width"} <= type(value).model_fields.keys()
