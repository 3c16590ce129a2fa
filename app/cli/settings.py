"""Reads the settings for a command; a wrong value ends it as wrong usage."""

from __future__ import annotations

from typing import NoReturn

import typer
from pydantic import ValidationError

from app.settings import Settings
from app.terminal import complain


def load_settings() -> Settings:
    """Settings from the environment; a value that is not accepted is wrong usage."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        exit_for_usage(
            f"The setting {Settings.named(str(first['loc'][0]))} has a wrong value: {first['msg']}."
        )


def exit_for_usage(sentence: str) -> NoReturn:
    complain(sentence)
    raise typer.Exit(2)
