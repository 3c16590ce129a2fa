"""Declares ``reelword api``; app/api/application.py serves."""

from __future__ import annotations

from typing import Annotated

import typer


def api(
    host: Annotated[str | None, typer.Option(help="Address to listen on; default REELWORD_HOST.")] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on; default REELWORD_PORT or PORT.")
    ] = None,
) -> None:
    """Runs the API until it is stopped."""
    from app import logs
    from app.api.application import run
    from app.serve.supervisor import free_port
    from app.settings import load_settings

    changes = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings = load_settings().model_copy(update=changes)
    settings = settings.model_copy(update={"port": free_port(settings.host, settings.port)})
    logs.configure_logs(settings, process="api")
    run(settings)
