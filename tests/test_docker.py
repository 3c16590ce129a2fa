"""The image files without an engine: linted, and each step checked against the checkout it would run in."""

from __future__ import annotations

import fnmatch
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from app.jobs.redis_client import connect
from app.jobs.worker_registry import WorkerInfo, WorkerRegistry
from app.serve.embedded_redis import RedisServer
from app.settings import Settings
from docker.worker_health import is_healthy

DOCKERFILES = ("api.Dockerfile", "worker.Dockerfile")


def _compose(root: Path) -> dict[str, Any]:
    compose: dict[str, Any] = YAML(typ="safe").load((root / "docker-compose.yml").read_text())
    return compose


def _steps(dockerfile: Path) -> list[tuple[str, str]]:
    """(instruction, arguments), continuation lines joined, comments gone."""
    lines = [line for line in dockerfile.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in joined.splitlines() if line.strip()]


def _copied(dockerfile: Path) -> list[str]:
    """What the build takes from the checkout."""
    copies = [shlex.split(rest) for step, rest in _steps(dockerfile) if step == "COPY"]
    return [source for words in copies if not words[0].startswith("--from") for source in words[:-1]]


def _ignored(path: str, rules: list[str]) -> bool:
    ignored = False
    for rule in rules:
        pattern = rule.removeprefix("!")
        if fnmatch.fnmatch(path, pattern) or path.startswith(pattern + "/"):
            ignored = not rule.startswith("!")
    return ignored


def test_compose_s_redis_refuses_writes_before_it_is_killed(root: Path) -> None:
    redis = _compose(root)["services"]["redis"]
    options = dict(zip(redis["command"][1::2], redis["command"][2::2], strict=True))
    assert options["--maxmemory-policy"] == "noeviction"
    limit = redis["deploy"]["resources"]["limits"]["memory"]
    assert limit.endswith("M")
    assert options["--maxmemory"].endswith("mb")
    # a quarter at least is left for buffers and for pages copied while the file is rewritten
    assert int(options["--maxmemory"].removesuffix("mb")) <= 0.75 * int(limit.removesuffix("M"))


@pytest.mark.parametrize("name", DOCKERFILES)
def test_dockerfiles_are_clean(root: Path, name: str) -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    run = subprocess.run([hadolint, root / "docker" / name], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout


def test_compose_file_follows_its_schema(root: Path) -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    run = subprocess.run([*check, root / "docker-compose.yml"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("name", DOCKERFILES)
def test_what_is_copied_exists_and_is_not_ignored(root: Path, name: str) -> None:
    rules = [rule for rule in (root / ".dockerignore").read_text().splitlines() if rule]
    sources = _copied(root / "docker" / name)
    assert sources
    for source in sources:
        assert (root / source).exists(), source
        assert not _ignored(source, rules), source


@pytest.mark.parametrize("name", DOCKERFILES)
def test_set_up_is_the_makefiles(root: Path, name: str) -> None:
    runs = [rest for step, rest in _steps(root / "docker" / name) if step == "RUN"]
    targets = [word for run in runs for word in shlex.split(run) if word.startswith("setup-")]
    assert len(targets) == 1
    make = subprocess.run(["make", "--dry-run", "--always-make", *targets], cwd=root, capture_output=True)
    assert make.returncode == 0, make.stderr
    assert b"--constraint constraints.txt" in make.stdout


@pytest.mark.parametrize("name", DOCKERFILES)
def test_images_do_not_run_as_root(root: Path, name: str) -> None:
    users = [rest for step, rest in _steps(root / "docker" / name) if step == "USER"]
    assert users
    assert not any(user.startswith(("0", "root")) for user in users)


def test_services_restart_are_read_only_and_have_limits(root: Path) -> None:
    for name, service in _compose(root)["services"].items():
        assert service["restart"] == "unless-stopped", name
        assert service["read_only"], name
        assert service["stop_grace_period"], name
        assert service["deploy"]["resources"]["limits"]["memory"], name


def test_accepted_jobs_are_on_disk(root: Path) -> None:
    services = _compose(root)["services"]
    words = services["redis"]["command"]
    settings = dict(zip(words[1::2], words[2::2], strict=True))
    assert settings["--appendonly"] == "yes"
    assert settings["--appendfsync"] == "always"
    assert settings["--maxmemory-policy"] == "noeviction"
    assert services["api"]["volumes"] == services["worker"]["volumes"], "uploads must reach the worker"


def test_only_the_api_is_reached_from_outside(root: Path) -> None:
    compose = _compose(root)
    reached = {name: service["ports"] for name, service in compose["services"].items() if "ports" in service}
    assert set(reached) == {"api", "grafana"}
    assert all(port.startswith("127.0.0.1:") for port in reached["grafana"])
    assert compose["networks"]["inside"]["internal"]


def test_the_published_port_serves_nobody_without_a_key(root: Path) -> None:
    given = _compose(root)["services"]["api"]["environment"]["REELWORD_ACCESS"]
    assert given == "${REELWORD_ACCESS:-keys}"
    command = [
        shlex.split(rest) for step, rest in _steps(root / "docker" / "api.Dockerfile") if step == "CMD"
    ]
    assert Settings(host=re.sub(r"[^\d.]", "", command[-1][-3])).needs_key
    header = (root / "docker-compose.yml").read_text().partition("name: reelword")[0]
    assert "docker compose exec api python -m app keys add" in header


def test_targets_of_compose_are_stages(root: Path) -> None:
    for service in _compose(root)["services"].values():
        if "build" in service and "target" in service["build"]:
            steps = _steps(root / service["build"]["dockerfile"])
            stages = [rest.split()[-1] for step, rest in steps if step == "FROM"]
            assert service["build"]["target"] in stages


def test_worker_is_healthy_once_its_models_are_loaded(tmp_path: Path) -> None:
    about = {"pid": 7, "version": "0", "device": "cpu", "started_at": 0.0, "captioners": []}
    with RedisServer(tmp_path) as running, connect(running.url, patience=5) as server:
        settings = Settings(redis_url=running.url)
        registry = WorkerRegistry(server)
        assert not is_healthy(settings, "container-a"), "nobody has said anything"
        registry.advertise(WorkerInfo(name="a", host="container-a", is_ready=False, **about))
        assert not is_healthy(settings, "container-a"), "still loading"
        registry.advertise(WorkerInfo(name="a", host="container-a", is_ready=True, **about))
        assert is_healthy(settings, "container-a")
        assert not is_healthy(settings, "container-b"), "another container's worker"
