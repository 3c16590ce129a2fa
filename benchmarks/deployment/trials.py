"""Tries what a deployment has to do, one part after another; each yields what it saw."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.deployment.engine import CommandFailed, Engine
from benchmarks.deployment.service import NotInTime, Service

CLIP = "app/api/static/examples/coffee.mp4"
START_SECONDS = 900.0  #: a first start on a busy machine, which converts networks
JOB_SECONDS = 300.0
WORKERS = 2
JOBS = 10  #: of a trial with many
REVISION_LENGTH = 40  #: hexadecimal digits of a commit
BOX = "from extractors.decoder.box import enter_box; print(*enter_box())"
FILMS = "films"  #: the container that a video is fetched from
#: Tells how a scrape went, from inside, where Prometheus is reached.
TARGETS = """
import json, urllib.request
targets = json.load(urllib.request.urlopen("http://prometheus:9090/api/v1/targets"))["data"]["activeTargets"]
print(json.dumps([(target["health"], target["lastError"]) for target in targets]))
"""


@dataclass(frozen=True)
class Outcome:
    """What was seen.

    Attributes:
        what: the question.
        seen: the answer.
        is_right: whether that is as it has to be.
    """

    what: str
    seen: str
    is_right: bool = True


@dataclass
class Deployment:
    """Holds what the trials work on.

    Attributes:
        engine: that runs it.
        service: its API, with a key once there is one.
        version: tag of the images.
        jobs: ids of all that were sent.
    """

    engine: Engine
    service: Service
    version: str
    jobs: list[str]

    @property
    def clip(self) -> bytes:
        return (self.engine.checkout / CLIP).read_bytes()

    def send(self, count: int) -> list[str]:
        jobs = [self.service.send(self.clip) for _ in range(count)]
        self.jobs += jobs
        return jobs

    def container(self, service: str) -> str:
        """Finds the id of the first container of a service."""
        return self.engine.compose("ps", "--quiet", service).split()[0]

    def inspect(self, container: str) -> dict[str, Any]:
        described: dict[str, Any] = json.loads(self.engine.docker("inspect", container))[0]
        return described


def build(deployment: Deployment) -> Iterator[Outcome]:
    """The images of compose and the one with all in it, built as they are."""
    log = deployment.engine.checkout.parent / "build.log"
    for service in ("api", "worker"):
        began = time.monotonic()
        deployment.engine.compose("--progress=plain", "build", service, log=log)
        yield Outcome(f"image of {service}", f"built in {time.monotonic() - began:.0f} s")
    began = time.monotonic()
    deployment.engine.compose("build", "api", "worker", log=log)
    yield Outcome("both again", f"{time.monotonic() - began:.1f} s")


def start(deployment: Deployment) -> Iterator[Outcome]:
    """`up --wait`: all healthy, by their own word."""
    began = time.monotonic()
    deployment.engine.compose("up", "--detach", "--wait", "--no-build")
    yield Outcome("up --wait on an empty data folder", f"healthy in {time.monotonic() - began:.0f} s")
    yield Outcome("/readyz", f"200 after {deployment.service.wait_ready(START_SECONDS):.0f} s more")
    users = {
        service: deployment.engine.compose("exec", "-T", service, "id", "-u")
        for service in ("redis", "api", "worker")
    }
    yield Outcome("users", json.dumps(users), "0" not in users.values())
    refused = deployment.engine.compose("exec", "-T", "redis", "valkey-cli", "ping")
    yield Outcome("Redis without its password", refused, refused.startswith("NOAUTH"))
    lacking = deployment.engine.compose("exec", "-T", "worker", "python", "-c", BOX) or "nothing"
    yield Outcome("layers that the decoder's box lacks in a worker", lacking, lacking == "nothing")
    labels = deployment.inspect(deployment.container("api"))["Config"]["Labels"]
    revision = labels["org.opencontainers.image.revision"]
    yield Outcome("revision in the labels", revision, len(revision) == REVISION_LENGTH)


def keys(deployment: Deployment) -> Iterator[Outcome]:
    """Nobody is served without a key."""
    refused = deployment.service.ask("/jobs").status
    yield Outcome("a request without a key", str(refused), refused == 401)
    add = ("exec", "-T", "api", "reelword", "keys", "add", "trial", "--scope", "admin")
    deployment.service = replace(deployment.service, key=deployment.engine.compose(*add).splitlines()[-1])
    taken = deployment.service.ask("/jobs").status
    yield Outcome("the same with one", str(taken), taken == 200)


def clip(deployment: Deployment) -> Iterator[Outcome]:
    """One clip, its caption and its picture."""
    began = time.monotonic()
    (document,) = deployment.service.wait_for(deployment.send(1), JOB_SECONDS)
    seen = f"{document['state']} in {time.monotonic() - began:.1f} s: {document['caption']!r}"
    yield Outcome("a clip", seen, document["state"] == "succeeded")
    picture = deployment.service.ask(f"/jobs/{document['id']}/attention.png")
    yield Outcome(
        "its attention picture", f"{picture.status}, {len(picture.body):,} bytes", picture.status == 200
    )
    page = deployment.service.ask("/")
    yield Outcome("the page", str(page.status), page.status == 200)


def url(deployment: Deployment) -> Iterator[Outcome]:
    """A video that the worker fetches, from a container on the outer network."""
    films = f"{(deployment.engine.checkout / CLIP).parent}:/films:ro"
    serve = ("python", "-m", "http.server", "8080", "--directory", "/films")
    image = f"reelword-api:{deployment.version}"
    network = ("--network", "reelword_outside", "--volume", films)
    deployment.engine.docker("run", "--detach", "--rm", "--name", FILMS, *network, image, *serve)
    try:
        serves = "until : < /dev/tcp/localhost/8080; do sleep 1; done"
        deployment.engine.docker("exec", FILMS, "bash", "-c", serves)
        deployment.jobs.append(deployment.service.send_url(f"http://{FILMS}:8080/{Path(CLIP).name}"))
        (document,) = deployment.service.wait_for(deployment.jobs[-1:], JOB_SECONDS)
    finally:
        deployment.engine.docker("rm", "--force", FILMS)
    seen = f"{document['state']} {document['error'] or ''}".strip()
    yield Outcome("a video by URL", seen, document["state"] == "succeeded")


def settings(deployment: Deployment) -> Iterator[Outcome]:
    """What stands in .env arrives; a share of the processor is counted."""
    for service in ("api", "worker"):
        seen = deployment.engine.compose("exec", "-T", service, "printenv", "REELWORD_URL_HOSTS")
        yield Outcome(f"a setting of .env in {service}", seen, seen == FILMS)
    count = ("python", "-c", "from app.cores import core_count; print(core_count())")
    image = f"reelword-api:{deployment.version}"
    cores = deployment.engine.docker("run", "--rm", "--cpus", "1", image, *count)
    yield Outcome("cores that a container of `--cpus 1` counts", cores, cores == "1")
    listed = deployment.engine.compose("run", "--rm", "--no-deps", "worker", "reelword", "captioners", "list")
    yield Outcome("captioners list, in a container of its own", listed.splitlines()[-1][:60])


def scale(deployment: Deployment) -> Iterator[Outcome]:
    """Two workers share the queue."""
    began = time.monotonic()
    deployment.engine.compose("up", "--detach", "--wait", "--no-build", "--scale", f"worker={WORKERS}")
    deployment.service.wait_ready(START_SECONDS, WORKERS)
    yield Outcome(f"--scale worker={WORKERS}", f"healthy in {time.monotonic() - began:.0f} s")
    yield from _watch_jobs(deployment, f"{JOBS} jobs", lambda: None)


def worker_killed(deployment: Deployment) -> Iterator[Outcome]:
    """kill -9 of a worker's container under jobs."""
    yield from _kill(deployment, "worker")


def redis_killed(deployment: Deployment) -> Iterator[Outcome]:
    """kill -9 of Redis under jobs."""
    yield from _kill(deployment, "redis")


def api_killed(deployment: Deployment) -> Iterator[Outcome]:
    """kill -9 of the API under jobs."""
    yield from _kill(deployment, "api")


def restarts(deployment: Deployment) -> Iterator[Outcome]:
    """`restart` of each container under jobs."""
    for service in ("worker", "redis", "api"):
        yield from _watch_jobs(
            deployment, f"restart {service}", lambda name=service: deployment.engine.compose("restart", name)
        )


def down_and_up(deployment: Deployment) -> Iterator[Outcome]:
    """`down` and `up`: jobs, results and keys are there."""
    began = time.monotonic()
    deployment.engine.compose("down")
    stopped = time.monotonic()
    yield Outcome("down", f"{stopped - began:.1f} s")
    deployment.engine.compose("up", "--detach", "--wait", "--no-build")
    deployment.service.wait_ready(START_SECONDS)
    yield Outcome("up --wait, networks converted before", f"ready in {time.monotonic() - stopped:.0f} s")
    documents = deployment.service.wait_for(deployment.jobs, JOB_SECONDS)
    states = Counter(document["state"] for document in documents)
    yield Outcome("jobs after it", _tell(states), states["succeeded"] == len(deployment.jobs))
    results = [deployment.service.ask(f"/jobs/{job}/attention").status for job in deployment.jobs]
    yield Outcome("their results", _tell(Counter(results)), set(results) == {200})


def monitoring(deployment: Deployment) -> Iterator[Outcome]:
    """The monitors read /metrics with a key of their own; nobody else does."""
    refused = replace(deployment.service, key="").ask("/metrics").status
    yield Outcome("/metrics without a key", str(refused), refused == 401)
    add = ("exec", "-T", "api", "reelword", "keys", "add", "prometheus", "--scope", "admin")
    secret = deployment.engine.compose(*add).splitlines()[-1]
    (deployment.engine.checkout / "docker/secrets/prometheus_key").write_text(secret)
    deployment.engine.compose("--profile", "monitoring", "up", "--detach", "--no-build")
    targets = _wait_for_scrape(deployment)
    yield Outcome("what Prometheus scrapes", json.dumps(targets), [health for health, _ in targets] == ["up"])
    grafana = deployment.inspect(deployment.container("grafana"))["State"]
    yield Outcome("Grafana's user writes its folder", grafana["Status"], grafana["Status"] == "running")


def health(deployment: Deployment) -> Iterator[Outcome]:
    """The checks of all containers since their start, and what they cost."""
    for service in ("redis", "api", "worker"):
        state = deployment.inspect(deployment.container(service))["State"]["Health"]
        seen = f"{state['Status']}, {state['FailingStreak']} failures in a row"
        yield Outcome(f"health of {service}", seen, state["Status"] == "healthy")
    usage = deployment.engine.docker("stats", "--no-stream", "--format", "{{.Name}} {{.MemUsage}}")
    yield Outcome("memory", "; ".join(sorted(usage.splitlines())))


def everything(deployment: Deployment) -> Iterator[Outcome]:
    """The image with Redis, worker and API in it, by one command."""
    log = deployment.engine.checkout.parent / "build.log"
    began = time.monotonic()
    deployment.engine.docker(
        "build", "--progress=plain", "--file", "docker/worker.Dockerfile", "--target", "all",
        "--tag", "reelword", *_build_arguments(deployment.engine), ".", log=log,
    )  # fmt: skip
    yield Outcome("image `all`", f"built in {time.monotonic() - began:.0f} s")
    began = time.monotonic()
    ways = ("--name", "reelword-all", "--publish", "18001:8000", "--env-file", ".env")
    deployment.engine.docker("run", "--detach", *ways, "reelword")
    try:
        service = Service("http://127.0.0.1:18001")
        service.wait_ready(START_SECONDS)
        yield Outcome("docker run", f"ready in {time.monotonic() - began:.0f} s")
        add = ("exec", "reelword-all", "reelword", "keys", "add", "trial")
        service = replace(service, key=deployment.engine.docker(*add).splitlines()[-1])
        (document,) = service.wait_for([service.send(deployment.clip)], JOB_SECONDS)
        yield Outcome("a clip in it", str(document["state"]), document["state"] == "succeeded")
    finally:
        deployment.engine.docker("rm", "--force", "--volumes", "reelword-all")


def sizes(deployment: Deployment) -> Iterator[Outcome]:
    """Images on the disk."""
    listed = deployment.engine.docker("images", "--format", "{{.Repository}}:{{.Tag}} {{.Size}}")
    for line in sorted(listed.splitlines()):
        name, size = line.split()
        yield Outcome(f"size of {name}", size)


def _kill(deployment: Deployment, service: str) -> Iterator[Outcome]:
    container = deployment.container(service)
    before = deployment.inspect(container)

    def kill() -> None:  # as the machine would: what `docker kill` ends is not started again
        at_host = (
            "--rm",
            "--privileged",
            "--pid",
            "host",
            "--user",
            "0",
            f"reelword-api:{deployment.version}",
        )
        deployment.engine.docker("run", *at_host, "sh", "-c", f"kill -9 {before['State']['Pid']}")

    yield from _watch_jobs(deployment, f"kill -9 of {service}", kill)
    after = deployment.inspect(container)["RestartCount"]
    yield Outcome(f"{service} restarted by Docker", str(after), after > before["RestartCount"])


def _watch_jobs(deployment: Deployment, what: str, disturb: Any) -> Iterator[Outcome]:
    """Sends jobs, disturbs, and waits for all of them."""
    jobs = deployment.send(JOBS)
    began = time.monotonic()
    disturb()
    documents = deployment.service.wait_for(jobs, START_SECONDS)
    states = Counter(document["state"] for document in documents)
    attempts = Counter(document["attempt"] for document in documents)
    seen = f"{_tell(states)} in {time.monotonic() - began:.1f} s; attempts {_tell(attempts)}"
    yield Outcome(what, seen, states["succeeded"] == len(jobs))


def _wait_for_scrape(deployment: Deployment) -> Sequence[tuple[str, str]]:
    until = time.monotonic() + JOB_SECONDS
    targets: Sequence[tuple[str, str]] = []
    while time.monotonic() < until:
        try:
            targets = json.loads(deployment.engine.compose("exec", "-T", "api", "python", "-c", TARGETS))
        except CommandFailed:  # it is not up yet
            targets = []
        if targets and all(health != "unknown" for health, _ in targets):
            return targets
        time.sleep(2)
    raise NotInTime(f"Prometheus has scraped nothing: {targets}")


def _build_arguments(engine: Engine) -> list[str]:
    """Reads the arguments that compose gives to the worker's build."""
    config = json.loads(engine.compose("config", "--format", "json"))
    arguments = config["services"]["worker"]["build"]["args"]
    return [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]


def _tell(counts: Counter[Any]) -> str:
    return ", ".join(
        f"{count} {name}" if isinstance(name, str) else f"{name}: {count}" for name, count in counts.items()
    )


def read_version(checkout: Path) -> str:
    """Reads the tag that compose gives to the images unless another is asked for."""
    text = (checkout / "app/__init__.py").read_text()
    return text.partition('__version__ = "')[2].partition('"')[0]
