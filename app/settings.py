"""Declares every setting: an environment variable, a default that works on a laptop, and a sentence for
``doctor``.

``REELWORD_`` is the prefix; ``REDIS_URL`` and ``PORT`` are read plain, as every host sets them.
"""

import math
import os
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.cores import core_count
from app.errors import UsageError
from app.setting_types import (
    BlobPlace,
    EngineName,
    HostNames,
    KeptTime,
    Names,
    Networks,
    Origins,
    PathFromHere,
    PrivateHosts,
    RootPath,
    Secrets,
    WebAddress,
)

MIB = 2**20
#: Addresses that stand for all of a machine's, and are no name that a request has.
EVERYWHERE = ("0.0.0.0", "::", "")
#: A lease lasts this many beats at least: one that is late, or lost, must not cost a worker its jobs.
BEATS_OF_A_LEASE = 3
MOST_DECODERS = 4  #: of a worker where no setting says how many
WEIGHTS = Path(__file__).resolve().parent.parent / "weights"
#: Folders of secrets in containers, each file named as the variable that it holds; the latter goes first.
SECRETS = (Path("/run/reelword"), Path("/run/secrets"))


class Settings(BaseSettings):
    """Read once by an entry point and passed on; nothing else looks at the environment."""

    model_config = SettingsConfigDict(
        env_prefix="REELWORD_",
        frozen=True,
        extra="ignore",
        populate_by_name=True,
        env_ignore_empty=True,
        secrets_dir=[folder for folder in SECRETS if folder.is_dir()],
    )

    # where things are
    data: PathFromHere = Field(
        Path("data"), description="Folder of blobs, the embedded Redis's file and features."
    )
    cache: PathFromHere | None = Field(
        None, description="Folder of converted networks, for all data folders; default: reelword in ~/.cache."
    )
    cache_bytes: int = Field(
        4096 * MIB, ge=0, description="Room for converted networks; those that were not used longest go."
    )
    blobs: BlobPlace | None = Field(
        None, description="Directory or fsspec URL (s3://…) of blobs; default: in the data folder."
    )
    redis_url: str | None = Field(
        None,
        validation_alias=AliasChoices("REDIS_URL", "REELWORD_REDIS_URL"),
        description="Redis 7.2 or Valkey to use; without it an embedded one is started in the data folder.",
    )
    namespace: str = Field(
        "reelword", description="First part of every key in Redis; services may share a server."
    )
    host: str = Field("127.0.0.1", description="Address that the API listens on.")
    port: int = Field(
        8000,
        ge=0,
        le=65535,
        validation_alias=AliasChoices("REELWORD_PORT", "PORT"),
        description="Port that the API listens on.",
    )
    url: WebAddress | None = Field(
        None, description="Address of a running service that the command line asks, as https://reel.example."
    )
    key: str | None = Field(None, repr=False, description="API key that the command line asks it with.")
    allowed_hosts: HostNames = Field(
        (),
        description="Names beside localhost that the API may be asked for by, with commas between; * is any.",
    )
    access: Literal["auto", "keys", "open"] = Field(
        "auto",
        description="keys: only requests with an API key; open: all; auto: open on loopback, keys elsewhere.",
    )
    metrics_access: Literal["admin", "open"] = Field(
        "admin", description="Who reads /metrics where keys are needed: admin keys, or everybody."
    )
    peer_hosts: HostNames = Field(
        (), description="Names that other containers ask the API by; those of allowed_hosts are for people."
    )
    cors_origins: Origins = Field(
        (),
        description="Sites whose pages may ask from a browser, as https://app.example, with commas between.",
    )
    trusted_proxies: Networks = Field(
        (), description="Addresses of proxies whose X-Forwarded-* headers are believed, with commas between."
    )
    root_path: RootPath = Field(
        "", description="Path that a proxy serves the API below, as /reel, where it does not say so itself."
    )
    max_connections: int = Field(
        500, ge=1, description="Clients that may be connected to the API; more are answered with 503."
    )
    max_followed: int = Field(
        20, ge=1, description="Jobs that one key may follow or wait for at once; more are answered with 429."
    )
    max_kept_jobs: int = Field(
        10_000,
        ge=100,
        description="Jobs that are kept of one key; beyond it those that are over go, oldest first.",
    )
    redis_bytes: int = Field(
        1024 * MIB, ge=64 * MIB, description="Memory of the embedded Redis; full, it takes no more jobs."
    )

    workers: int = Field(1, ge=0, le=64, description="Workers that serve starts.")

    # what is accepted
    max_upload_bytes: int = Field(
        512 * MIB, gt=0, description="Largest video, in bytes; more is answered with 413."
    )
    max_batch_bytes: int = Field(
        2048 * MIB, gt=0, description="Largest batch, all its videos together, in bytes."
    )
    max_backlog: int = Field(1000, gt=0, description="Jobs that may wait; more are answered with 503.")
    min_free_bytes: int = Field(256 * MIB, ge=0, description="Room that uploads must leave on the disk.")

    # videos that are fetched
    urls: Literal["on", "off"] = Field("on", description="off: videos are not fetched from addresses.")
    url_hosts: PrivateHosts = Field(
        (),
        description="Private hosts that videos may be fetched from: names, addresses, networks, with commas.",
    )
    url_seconds: float = Field(300.0, gt=0, description="Longest time for fetching one video.")

    # webhooks
    webhook_secrets: Secrets = Field(
        (),
        repr=False,
        description="Secrets (whsec_…) that sign webhooks, with commas; all sign. Without one none are sent.",
    )
    webhook_hosts: Names = Field(
        (), description="Private hosts that webhooks may be sent to: names, addresses, networks, with commas."
    )

    # how a job runs
    attempts: int = Field(
        3, ge=1, le=20, description="Times that a job may kill what runs it before it has failed."
    )
    lease_seconds: float = Field(
        10.0, ge=0.5, description="A job runs again this long after its worker fell silent."
    )
    beat_seconds: float = Field(
        0.5, gt=0, description="How often a worker renews its lease and asks for cancellation."
    )
    job_seconds: float = Field(900.0, gt=0, description="Longest run of a job; then it has failed.")
    cancel_grace: float = Field(
        5.0, ge=0, description="Seconds until an engine is killed that does not leave a canceled job."
    )
    drain_seconds: float = Field(
        5.0, ge=0, description="Time for finishing jobs before a stopped worker hands them back."
    )
    batch_jobs: int = Field(4, ge=1, le=64, description="Jobs captioned together where as many wait.")
    result_ttl: float = Field(
        7 * 86400.0, gt=0, description="Seconds that a result is kept; then the job is expired."
    )
    max_results_bytes: int = Field(
        10 * 1024 * MIB,
        gt=0,
        description="Room for results and kept uploads; beyond it uploads go first, then results.",
    )
    feature_cache_bytes: int = Field(
        2 * 1024 * MIB,
        ge=0,
        description="Room for features, by which a video is captioned again without being read; 0: off.",
    )
    keep_uploads: KeptTime = Field(
        "result",
        description="How long uploads are kept once captioned: result (as long as that), off, or seconds.",
    )
    sweep_seconds: float = Field(
        60.0, ge=5, description="How often files that belong to no job any more are looked for."
    )

    # decoding
    max_segments: int = Field(5000, ge=1, description="Segments of a film; with more it has failed.")
    max_film_pixels: int = Field(
        4 * 10**12, gt=0, description="Pixels of a film that is cut, of all its frames together."
    )
    decode_seconds: float = Field(300.0, gt=0, description="Longest time for reading one video.")
    decode_memory: int = Field(
        3072 * MIB, gt=0, description="Address space of the process that reads videos, in bytes."
    )
    decoder: Literal["pyav", "decord"] = Field(
        "pyav", description="Video reader; docs/decoding.md compares them."
    )
    decoders: int | None = Field(
        None,
        ge=1,
        le=64,
        description="Videos that a worker reads side by side; default: one core less than it has, 4 at most.",
    )
    read_ahead_bytes: int = Field(
        1024 * MIB,
        gt=0,
        description="Frames that a worker's decoders hold ready, in bytes; one job is always read.",
    )

    # the engine
    weights: PathFromHere = Field(
        WEIGHTS, description="Folder of captioners, each a file NAME.safetensors, and fusion's embedding."
    )
    captioner: str | None = Field(
        None, description="Captioner of jobs that name none; default: the best on real clips within a minute."
    )
    captioners: Names = Field(
        (),
        description="Captioners that are loaded, with commas between them; default: all that are installed.",
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="Of pretrained captioners; bfloat16 halves memory, and seconds where hardware has it.",
    )
    streams: str | None = Field(
        None, description="Stream set that captioners are fed with; default: the one each was trained on."
    )
    frames: int = Field(8, ge=1, le=64, description="Frames of a video that are looked at.")
    engine: EngineName = Field(
        "app.pipeline.engine:Engine", description="What the engine process runs, as module:name."
    )
    device: str = Field("auto", description="cpu, cuda, cuda:1 …; auto takes a GPU where there is one.")
    engine_start_seconds: float = Field(300.0, gt=0, description="Longest time for loading the models.")
    manifest: PathFromHere = Field(
        WEIGHTS / "manifest.toml", description="List of the networks' weights; another may name your mirror."
    )
    offline: bool = Field(False, description="Download nothing; weights get then says what to bring by hand.")
    threads: int = Field(
        1, ge=1, description="Threads of torch on the CPU; two on busy cores can be slower than one."
    )
    network_threads: int = Field(
        0,
        ge=0,
        le=64,
        description="Frames that image networks look at side by side on the CPU; 0: one a core, divided by "
        "the workers of serve.",
    )

    ready_file: Path | None = Field(
        None,
        description="File that a worker touches at each beat once its models are loaded, for health checks.",
    )
    command: str = Field(
        "", description="How commands are given to this process from outside its container, for its hints."
    )
    traces: WebAddress | None = Field(
        None, description="OTLP endpoint (http://collector:4318) that traces are sent to; unset: none."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe line logged."
    )
    log_format: Literal["auto", "json", "text"] = Field(
        "auto", description="auto: text on a terminal, else JSON."
    )

    @field_validator("beat_seconds")
    @classmethod
    def _is_well_below_the_lease(cls, beat: float, info: ValidationInfo) -> float:
        lease = info.data.get("lease_seconds")  # absent where it is wrong itself
        if lease is not None and beat * BEATS_OF_A_LEASE > lease:
            raise ValueError(
                f"a beat every {beat:g} s does not keep a lease of {lease:g} s: set REELWORD_BEAT_SECONDS to "
                f"{lease / BEATS_OF_A_LEASE:.3g} at most, or raise REELWORD_LEASE_SECONDS"
            )
        return beat

    @property
    def cache_folder(self) -> Path:
        """Returns the folder of converted networks; in the data folder where the user's cannot be written."""
        if self.cache is not None:
            return self.cache
        try:
            users = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "reelword"
            nearest = next(folder for folder in (users, *users.parents) if folder.exists())
        except (RuntimeError, OSError):  # a user without a home, or one that cannot be looked into
            return self.data / "cache"
        return users if os.access(nearest, os.W_OK) else self.data / "cache"

    @property
    def is_nameless(self) -> bool:
        """Returns whether the API listens everywhere and answers to loopback's names alone."""
        return self.host in EVERYWHERE and not self.allowed_hosts

    @property
    def needs_key(self) -> bool:
        """Returns whether the API needs a key.

        A proxy on this machine makes loopback the whole world's, so that naming one needs keys as well, and
        so does a name by which others ask.
        """
        if self.access == "auto":
            names = [self.host, *self.allowed_hosts, *self.peer_hosts]
            return bool(self.trusted_proxies) or not all(map(_is_loopback, names))
        return self.access == "keys"

    @property
    def is_open_by_default(self) -> bool:
        """Returns whether no key is asked for since no setting says that others than this machine ask."""
        return self.access == "auto" and not self.needs_key

    @property
    def rows_side_by_side(self) -> int:
        """Counts the rows that an image network computes at the same time on a CPU."""
        return self.network_threads or max(1, core_count() // max(1, self.workers))

    @property
    def upload_seconds(self) -> float:
        """Seconds that an upload is kept once its job has succeeded; infinite: as long as the result."""
        named = {"result": math.inf, "off": 0.0}
        return named[self.keep_uploads] if self.keep_uploads in named else float(self.keep_uploads)

    @property
    def decoder_count(self) -> int:
        """Counts the decoders of a worker: as many as are set, or what leaves the engine a core."""
        return self.decoders or max(1, min(MOST_DECODERS, core_count() - 1))

    @property
    def blob_url(self) -> str:
        return self.blobs or str(self.data / "blobs")

    @property
    def staging(self) -> Path:
        """Returns the folder of files being written; on the file system of blobs that are in a directory."""
        return self.data / "staging"

    @property
    def redis_folder(self) -> Path:
        return self.data / "redis"

    @classmethod
    def variables(cls, name: str) -> tuple[str, ...]:
        """The environment variables that a setting is read from; the first that is there counts."""
        choices = getattr(cls.model_fields[name].validation_alias, "choices", None)
        return (f"REELWORD_{name.upper()}",) if choices is None else tuple(map(str, choices))

    @classmethod
    def named(cls, where: str) -> str:
        """All names of the setting that an error is about, by its own or by any of its variables."""
        every = {name: cls.variables(name) for name in cls.model_fields}
        return next((" or ".join(v) for name, v in every.items() if where in (name, *v)), where)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # a name, which may stand for any address
        return False


def load_settings() -> Settings:
    """Reads the settings from the environment. Raises UsageError, which names the one that is wrong."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        message = first["msg"].removeprefix("Value error, ")
        named = Settings.named(str(first["loc"][0]))
        raise UsageError(f"The setting {named} has a wrong value: {message}.") from error
