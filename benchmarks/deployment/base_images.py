"""Provides the base images: from their registry, or, where it does not answer, stand-ins."""

from __future__ import annotations

import json
from collections.abc import Sequence

from benchmarks.deployment.engine import CommandFailed, Engine
from benchmarks.deployment.stand_ins import STAND_INS, Bootstrap, import_image


def provide_base_images(engine: Engine, bootstrap: Bootstrap, pip_settings: Sequence[str]) -> None:
    """Pulls what docker-compose.yml names and does not build, and what that is built from.

    Args:
        engine: that gets them.
        bootstrap: makes what cannot be pulled.
        pip_settings: lines of pip's configuration in the stand-in for Python.

    Raises:
        CommandFailed: a stand-in cannot be made either.
    """
    for image in list_base_images(engine):
        try:
            engine.docker("image", "inspect", image)
        except CommandFailed:
            if not _is_pulled(engine, image):
                kind = next(kind for kind in STAND_INS if kind in image)
                print(f"{image}: a stand-in, as it cannot be pulled", flush=True)
                root = bootstrap.make_image(kind, pip_settings)
                import_image(engine, image, root, STAND_INS[kind].settings)


def list_base_images(engine: Engine) -> list[str]:
    """Lists the images that compose takes from elsewhere, and that of Python below its own."""
    config = json.loads(engine.compose("--profile", "monitoring", "config", "--format", "json"))
    services = config["services"].values()
    foreign = [service["image"] for service in services if "build" not in service]
    return [*foreign, *{service["build"]["args"]["PYTHON"] for service in services if "build" in service}]


def _is_pulled(engine: Engine, image: str) -> bool:
    try:
        engine.run("timeout", "600", "docker", "pull", "--quiet", image)
    except CommandFailed:
        return False
    return True
