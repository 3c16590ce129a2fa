"""Declares ``--streams``, which names what captioners are fed with, and reads the settings with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from app.settings import Settings

Streams = Annotated[
    str | None,
    typer.Option(help="Stream set, see models --sets; default: the one each captioner was trained on."),
]


def settings_with(streams: str | None) -> Settings:
    """Reads the settings, with the stream set that the command line names. Raises UsageError."""
    from app.settings import load_settings

    settings = load_settings()
    return settings if streams is None else settings.model_copy(update={"streams": streams})
