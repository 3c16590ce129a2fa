"""Finds the captioners, each in the folder of its paper, and the embedding that chooses among captions.

A folder on the search path of the package ``models.captioners`` that has a captioner.toml is found, whatever
its name: ``network.py`` has the networks, ``streams.py`` has ``fit``, what they read of any stream set, and
captioner.toml what is said of each, how it is trained, and the stream sets of the paper. A folder that lies
elsewhere is found once the folder around it is added to ``models.captioners.__path__``. Checkpoints name
captioners by their metadata, never by a file's name.
"""

import inspect
import pkgutil
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from extractors.errors import PackageMissing, ReelwordError
from extractors.pretrained.errors import WeightsError
from extractors.pretrained.weights_folder import HUB
from extractors.windows import WindowOptions
from models import captioners
from models.captioner import Captioner
from models.captioners.semantic_embedding import SemanticEmbedding
from models.stream_set import (
    DEMO,
    DEMO_SETS,
    StreamInput,
    StreamSet,
    combine_stream_sets,
    make_hub_set,
)

EMBEDDINGS: dict[str, type[SemanticEmbedding]] = {SemanticEmbedding.name: SemanticEmbedding}
DESCRIPTION = "captioner.toml"


class UnknownCaptioner(ReelwordError, ValueError, code="captioner_not_registered"):
    """No captioner of that name; the message lists those there are."""

    hint = "Choose one of those that the message lists."


class UnknownStreamSet(ReelwordError, ValueError, code="unknown_stream_set"):
    """No stream set has that name; the message lists those there are."""

    hint = "Choose one of those that the message lists."


class CaptionerFolderDamaged(ReelwordError, ValueError, code="captioner_folder_damaged"):
    """A captioner's folder cannot be used; the message says what is wrong with which of its files."""

    hint = "Correct the file that the message names: docs/architecture.md, How to add a captioner."


class Description(BaseModel, frozen=True, extra="forbid"):
    """Describes one captioner of a folder."""

    #: A line for ``GET /models`` and ``reelword models``.
    about: str
    #: The same in a visitor's words, for the page.
    plain: str = ""
    #: The members of its configuration at the demo's widths.
    demo: Mapping[str, Any] = {}
    #: Members of its configuration that are None in the demo.
    demo_without: tuple[str, ...] = ()
    #: The stream set of its demo.
    demo_streams: str = DEMO.name
    #: Whether it is a member of fusion and ensemble where none are named.
    joins_unasked: bool = True


class StreamSetTable(BaseModel, frozen=True, extra="forbid"):
    """Holds a stream set as a captioner.toml writes it."""

    #: Whose paper feeds it so; by default the folder's.
    captioner: str = ""
    #: Where the paper says it.
    source: str
    #: A set of the demo whose streams come first, and whose frames all of them are.
    beside: str = ""
    #: The streams, by the fields of ``StreamInput``; an extractor only where its name is not the stream's.
    inputs: tuple[Mapping[str, Any], ...]

    def build(self, name: str, folder: str) -> StreamSet:
        """Builds the set. Raises TypeError for a field that a stream or its windows do not have."""
        beside = next((each for each in DEMO_SETS if each.name == self.beside), None)
        first, spread = ((), None) if beside is None else (beside.inputs, beside.spread)
        return StreamSet(
            name, self.captioner or folder, (*first, *map(_build_input, self.inputs)), self.source, spread
        )


def _build_input(fields: Mapping[str, Any]) -> StreamInput:
    windows = WindowOptions(**fields.get("windows", {}))
    return StreamInput(**{"extractor": fields["stream"], **fields, "windows": windows})


class FolderDescription(BaseModel, frozen=True, extra="forbid"):
    """Holds a captioner.toml. Recipes and the paper's training are read by training/recipes."""

    #: Name → its description.
    captioners: Mapping[str, Description]
    #: Recipes that train what these captioners alone have, by name.
    recipes: Mapping[str, Mapping[str, Any]] = {}
    #: How the paper trained them; None where there is no paper.
    paper: Mapping[str, Any] | None = None
    #: What feeds them, by name.
    stream_sets: Mapping[str, StreamSetTable] = {}


@dataclass(frozen=True)
class CaptionerFolder:
    """Holds what a folder has."""

    name: str
    description: FolderDescription
    stream_sets: tuple[StreamSet, ...]
    #: From a configuration and a stream set to the configuration that reads the set.
    fit: Callable[[Any, StreamSet], BaseModel]
    #: Name → network.
    kinds: Mapping[str, type[Captioner]]


@dataclass(frozen=True)
class RegisteredCaptioner:
    """Holds a captioner as its folder has it."""

    name: str
    folder: CaptionerFolder

    @property
    def kind(self) -> type[Captioner]:
        """Returns its class."""
        return self.folder.kinds[self.name]

    @property
    def description(self) -> Description:
        """Returns its description."""
        return self.folder.description.captioners[self.name]

    def make_demo_config(self) -> BaseModel:
        """Makes its configuration at the demo's widths, for its demo's stream set."""
        without = dict.fromkeys(self.description.demo_without)
        widths = self.kind.config_class.model_validate({**self.description.demo, **without})
        return self.fit(widths, find_stream_set(self.description.demo_streams))

    def fit(self, config: BaseModel, streams: StreamSet) -> BaseModel:
        """Makes a configuration that reads a stream set. Raises StreamsDoNotFit."""
        return self.folder.fit(config, streams)


def list_folders() -> tuple[CaptionerFolder, ...]:
    """Lists the folders on the search path. Raises CaptionerFolderDamaged."""
    return _load_folders(tuple(captioners.__path__))


@cache
def _load_folders(search_path: tuple[str, ...]) -> tuple[CaptionerFolder, ...]:
    folders = [Path(place, each.name) for place in search_path for each in pkgutil.iter_modules([place])]
    return tuple(_load_folder(folder) for folder in folders if (folder / DESCRIPTION).is_file())


def _load_folder(folder: Path) -> CaptionerFolder:
    try:
        text = (folder / DESCRIPTION).read_text(encoding="utf-8")
        description = FolderDescription.model_validate(tomllib.loads(text))
        package = f"{captioners.__name__}.{folder.name}"
        network, streams = import_module(f"{package}.network"), import_module(f"{package}.streams")
        tables, fit = description.stream_sets.items(), streams.fit
        stream_sets = tuple(table.build(name, folder.name) for name, table in tables)
    except (ImportError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise CaptionerFolderDamaged(f"The captioner's folder {folder} cannot be used: {error}") from error
    kinds = {kind.name: kind for kind in vars(network).values() if _is_of(kind, network.__name__)}
    if kinds.keys() != description.captioners.keys():
        raise CaptionerFolderDamaged(
            f"{folder / DESCRIPTION} describes {', '.join(sorted(description.captioners)) or 'none'}, and "
            f"network.py beside it has {', '.join(sorted(kinds)) or 'none'}."
        )
    return CaptionerFolder(folder.name, description, stream_sets, fit, kinds)


def _is_of(value: object, module: str) -> bool:
    """Finds out whether a value is a captioner that a module defines whole."""
    return (
        isinstance(value, type)
        and issubclass(value, Captioner)
        and value.__module__ == module
        and not inspect.isabstract(value)
    )


def list_captioners() -> dict[str, RegisteredCaptioner]:
    """Lists all captioners by their names. Raises CaptionerFolderDamaged."""
    return {name: RegisteredCaptioner(name, folder) for folder in list_folders() for name in folder.kinds}


def find_captioner(name: str) -> RegisteredCaptioner:
    """Finds a captioner by its name. Raises UnknownCaptioner."""
    registered = list_captioners()
    if name not in registered:
        raise UnknownCaptioner(f"no captioner is called {name!r}; there are: {', '.join(sorted(registered))}")
    return registered[name]


def captioner_class(name: str) -> type[Captioner]:
    """Finds the class of a captioner. Raises UnknownCaptioner."""
    return find_captioner(name).kind


def list_stream_sets() -> dict[str, StreamSet]:
    """Lists the demo's stream sets and those of the papers, by their names."""
    sets = (*DEMO_SETS, *(each for folder in list_folders() for each in folder.stream_sets))
    return {each.name: each for each in sets}


def find_stream_set(name: str) -> StreamSet:
    """Finds a stream set by its name, or makes that of encoders ``hub:NAME``, + between several.

    Raises UnknownStreamSet.
    """
    if name.startswith(HUB):
        try:
            return combine_stream_sets([make_hub_set(each) for each in name.split("+")])
        except (WeightsError, PackageMissing) as error:
            raise UnknownStreamSet(f"there is no stream set {name!r}: {error}") from error
    sets = list_stream_sets()
    if name not in sets:
        raise UnknownStreamSet(f"there is no stream set {name!r}; there are: {', '.join(sets)}")
    return sets[name]
