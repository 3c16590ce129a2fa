"""The image files without an engine: linted, and each step checked against the checkout it would run in."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from redis import AuthenticationError, Redis
from ruamel.yaml import YAML

from app import __version__
from app.serve.embedded_redis import find_server
from app.settings import SECRETS, Settings

DOCKERFILES = ("api.Dockerfile", "worker.Dockerfile")
#: Settings that are not the containers' operators' to choose, or not by their plain names.
FIXED = {"REELWORD_DATA", "REELWORD_HOST", "REELWORD_PORT", "PORT", "REELWORD_REDIS_URL", "REELWORD_WORKERS",
         "REELWORD_DEVICE", "REELWORD_READY_FILE", "REELWORD_COMMAND", "REELWORD_PEER_HOSTS",
         "REELWORD_CACHE", "REELWORD_URL", "REELWORD_KEY"}  # fmt: skip
FETCHING = ("api", "worker", "worker-gpu")  #: services that ask hosts outside: videos by URL, webhooks
#: Folders that images make for the user that writes them: a volume elsewhere would belong to root.
WRITABLE = {"redis": ["/data", "/var/tmp"], "api": ["/data"], "worker": ["/data"], "worker-gpu": ["/data"],
            "prometheus": ["/prometheus"], "grafana": ["/var/lib/grafana"]}  # fmt: skip


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


def _redis_options(root: Path) -> dict[str, str]:
    """What compose's Redis is started with, beside the script that starts it and its name."""
    words = _compose(root)["services"]["redis"]["command"]
    return dict(zip(words[4::2], words[5::2], strict=True))


def test_compose_s_redis_refuses_writes_before_it_is_killed(root: Path) -> None:
    redis = _compose(root)["services"]["redis"]
    options = _redis_options(root)
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
    assert targets
    for target in [*targets, "setup-detectron2", "setup-tracing"]:
        make = subprocess.run(["make", "--dry-run", "--always-make", target], cwd=root, capture_output=True)
        assert make.returncode == 0, make.stderr
        assert b"--constraint constraints.txt" in make.stdout


@pytest.mark.parametrize("name", DOCKERFILES)
def test_downloads_are_kept_and_code_is_compiled(root: Path, name: str) -> None:
    runs = [rest for step, rest in _steps(root / "docker" / name) if step == "RUN"]
    downloads = [run for run in runs if "set_up.sh" in run]
    assert downloads
    assert all(run.startswith("--mount=type=cache,target=/root/.cache ") for run in downloads)
    assert "PIP_NO_CACHE_DIR" not in (root / "docker" / name).read_text()
    assert any("python -m compileall -q ." in run for run in runs), "else each start compiles it"


@pytest.mark.parametrize("name", DOCKERFILES)
def test_images_say_what_they_are(root: Path, name: str) -> None:
    text = (root / "docker" / name).read_text()
    for label in ("title", "description", "version", "revision", "source"):
        assert f"org.opencontainers.image.{label}=" in text
    assert f"ARG VERSION={__version__}\n" in text
    assert "# syntax=" not in text, "a registry would be asked before each build"


@pytest.mark.parametrize("name", DOCKERFILES)
def test_checks_of_health_start_no_python(root: Path, name: str) -> None:
    (check,) = [rest for step, rest in _steps(root / "docker" / name) if step == "HEALTHCHECK"]
    assert "python" not in check
    seconds = {key: int(value) for key, value in re.findall(r"--([a-z-]+)=(\d+)s", check)}
    assert seconds["timeout"] >= 10, "a busy machine is no sick one"
    assert seconds["interval"] >= 30
    assert seconds["start-interval"] <= 2


def _health_command(root: Path, name: str) -> list[str]:
    (check,) = [rest for step, rest in _steps(root / "docker" / name) if step == "HEALTHCHECK"]
    command: list[str] = json.loads(check.partition(" CMD ")[2])
    return command


def test_the_worker_is_healthy_while_its_file_is_young(root: Path, tmp_path: Path) -> None:
    command = [
        word.replace("/tmp/ready", str(tmp_path / "ready")) for word in _health_command(root, DOCKERFILES[1])
    ]

    def is_healthy() -> bool:
        return subprocess.run(command, capture_output=True).returncode == 0

    assert not is_healthy(), "its models are not loaded yet"
    (tmp_path / "ready").touch()
    assert is_healthy()
    minute_ago = time.time() - 60
    os.utime(tmp_path / "ready", (minute_ago, minute_ago))
    assert not is_healthy(), "it has fallen silent"


@pytest.mark.parametrize(("status", "is_healthy"), [(200, True), (503, False), (None, False)])
def test_the_api_is_healthy_while_it_answers(root: Path, status: int | None, is_healthy: bool) -> None:
    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if status and self.path == "/livez" else 404)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Says nothing."""

    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        port = server.server_address[1]
        if status is not None:
            Thread(target=server.serve_forever, daemon=True).start()
        else:
            server.socket.close()
            server.socket = socket.socket()
        command = [word.replace("/8000", f"/{port}") for word in _health_command(root, DOCKERFILES[0])]
        assert (subprocess.run(command, capture_output=True, timeout=20).returncode == 0) == is_healthy
        if status is not None:
            server.shutdown()


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
    settings = _redis_options(root)
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


def test_who_fetches_has_a_network_outwards_and_redis_has_none(root: Path) -> None:
    compose = _compose(root)
    outwards = {name for name, network in compose["networks"].items() if not network.get("internal")}
    for name in FETCHING:
        assert outwards & set(compose["services"][name]["networks"]), name
    assert not outwards & set(compose["services"]["redis"]["networks"])


def test_volumes_are_mounted_where_their_writer_may_write(root: Path) -> None:
    compose = _compose(root)
    for name, service in compose["services"].items():
        mounts = [volume.split(":") for volume in service["volumes"]]
        written = [(source, place) for source, place, *mode in mounts if mode != ["ro"]]
        assert [place for _, place in written] == WRITABLE[name]
        assert {source for source, _ in written} <= set(compose["volumes"])


def test_redis_makes_a_password_once_and_lets_nobody_in_without_it(root: Path, tmp_path: Path) -> None:
    """Runs the script of compose as it is, but for folders and port."""
    redis = _compose(root)["services"]["redis"]
    shell, flag, script, *_ = redis["command"]
    script = script.replace("$$", "$").replace("/var/tmp", str(tmp_path)).replace("/data", str(tmp_path))
    (tmp_path / "valkey-server").symlink_to(find_server())
    path = f"{tmp_path}:{os.environ['PATH']}"
    options = ["--port", "0", "--unixsocket", str(tmp_path / "socket")]
    addresses = []
    for _ in range(2):
        with subprocess.Popen([shell, flag, script, "redis", *options], env={"PATH": path}) as server:
            try:
                addresses.append(_ask_redis(tmp_path))
            finally:
                server.terminate()
    assert addresses[0] == addresses[1], "made once"
    assert oct((tmp_path / "redis.conf").stat().st_mode)[-3:] == "600"
    (volume,) = [each for each in redis["volumes"] if each.endswith(":/var/tmp")]
    for name in FETCHING:
        assert f"{volume.partition(':')[0]}:{SECRETS[0]}:ro" in _compose(root)["services"][name]["volumes"]


def _ask_redis(folder: Path) -> str:
    """Waits for the server, asks it without and with its password, and returns the address that has it."""
    until = time.monotonic() + 60
    while not (folder / "socket").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    address = (folder / "REDIS_URL").read_text().strip()
    assert re.fullmatch(r"redis://default:[0-9a-f]{48}@redis:6379/0", address)
    password = address.split(":")[2].partition("@")[0]
    with Redis(unix_socket_path=str(folder / "socket")) as stranger, pytest.raises(AuthenticationError):
        stranger.ping()
    with Redis(unix_socket_path=str(folder / "socket"), password=password) as friend:
        assert friend.ping()
    return address


def test_no_limit_is_above_what_a_small_machine_has(root: Path) -> None:
    for name, service in _compose(root)["services"].items():
        assert "cpus" not in service["deploy"]["resources"]["limits"], f"{name} starts on fewer cores"


def test_logs_end_somewhere(root: Path) -> None:
    for name, service in _compose(root)["services"].items():
        assert set(service["logging"]["options"]) == {"max-size", "max-file"}, name


def test_each_setting_reaches_the_containers(root: Path) -> None:
    """By its own name, from the shell and from .env: compose passes what has no value where it is set."""
    settable = {name for field in Settings.model_fields for name in Settings.variables(field)} - FIXED
    services = _compose(root)["services"]
    for service in FETCHING:
        assert settable <= set(services[service]["environment"]), service
        assert services[service]["env_file"] == [{"path": ".env", "required": False}]
    example = re.findall(r"^#([A-Z_]+)=", (root / ".env.example").read_text(), re.MULTILINE)
    assert settable <= set(example)
    named = set(re.findall(r"\$\{([A-Z_]+)", (root / "docker-compose.yml").read_text()))
    assert set(example) <= settable | named
    assert subprocess.run(["git", "check-ignore", "-q", ".env"], cwd=root).returncode == 0


def test_images_have_the_version_and_bases_can_be_named_by_digest(root: Path) -> None:
    for name, service in _compose(root)["services"].items():
        if "build" in service:
            assert f":${{IMAGE_VERSION:-{__version__}}}" in service["image"], name
            assert service["build"]["args"]["PYTHON"].startswith("${PYTHON_IMAGE:-python:3.11-slim-")
        else:
            assert re.fullmatch(r"\$\{[A-Z]+_IMAGE:-[\w./-]+:v?\d[\w.-]+\}", service["image"]), name


def test_kubernetes_asks_for_the_health_of_workers_as_docker_does(root: Path) -> None:
    worker = (root / "docker/kubernetes/worker.yaml").read_text()
    assert _health_command(root, DOCKERFILES[1])[-1] in worker


def test_the_published_port_serves_nobody_without_a_key(root: Path) -> None:
    given = _compose(root)["services"]["api"]["environment"]["REELWORD_ACCESS"]
    assert given == "${REELWORD_ACCESS:-keys}"
    command = [
        shlex.split(rest) for step, rest in _steps(root / "docker" / "api.Dockerfile") if step == "CMD"
    ]
    assert Settings(host=re.sub(r"[^\d.]", "", command[-1][-3])).needs_key
    header = (root / "docker-compose.yml").read_text().partition("name: reelword")[0]
    assert "docker compose exec api reelword keys add" in header


def test_targets_of_compose_are_stages(root: Path) -> None:
    for service in _compose(root)["services"].values():
        if "build" in service and "target" in service["build"]:
            steps = _steps(root / service["build"]["dockerfile"])
            stages = [rest.split()[-1] for step, rest in steps if step == "FROM"]
            assert service["build"]["target"] in stages
