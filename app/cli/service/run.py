"""Declares the commands that run the service: ``serve`` all its processes, ``worker`` and ``api`` one."""

import os
from typing import Annotated

import typer

from app.cli.model_options import Streams, settings_with

NICENESS = 5  #: of workers and their children: on a machine that they share with the API, requests go first


Port = Annotated[int | None, typer.Option(help="Port to listen on; default: REELWORD_PORT or PORT.")]


def serve(streams: Streams = None, port: Port = None) -> None:
    """Starts Redis, workers and the API, until Ctrl-C."""
    from app.serve import supervisor

    supervisor.serve(settings_with(streams=streams, port=port))


def worker(streams: Streams = None) -> None:
    """Runs one worker until it is stopped."""
    from app import logs
    from app.worker.engine.process import EngineProcess

    settings = settings_with(streams=streams)
    logs.configure_logs(settings, process="worker")
    os.nice(max(0, NICENESS - os.nice(0)))
    engine = EngineProcess(settings)
    engine.begin()  # it loads its models while this process imports the rest and speaks to Redis
    from app.worker.worker import work

    work(settings, engine)


def api(
    host: Annotated[str | None, typer.Option(help="Address to listen on; default: REELWORD_HOST.")] = None,
    port: Port = None,
) -> None:
    """Runs the API until it is stopped."""
    from app import logs
    from app.api.application import run
    from app.serve.supervisor import free_port

    settings = settings_with(host=host, port=port)
    settings = settings.model_copy(update={"port": free_port(settings.host, settings.port)})
    logs.configure_logs(settings, process="api")
    run(settings)
