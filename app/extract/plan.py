"""Holds what an ``extract`` command was asked for, and what became of each video: what its parts exchange."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from app.settings import Settings
from app.terminal import FailedFile
from extractors.engines.engine import Precision
from extractors.errors import ReelwordError, name_missing_packages
from extractors.media.request import Limits
from extractors.pretrained.load import WeightsChoice
from extractors.video_features.feature_files import FileFormat, SafetensorsForm, name_extractor_folder
from extractors.video_features.npy_hdf5 import Hdf5Form, NpyForm
from extractors.windows import WindowOptions
from models.stream_set import StreamSet

FormName = Literal["safetensors", "npy", "hdf5"]


class ExtractError(ReelwordError, code="extract_error"):
    """Is raised where no features came of a video, though it could be read.

    ├── ExtractorFault       extractor_error
    ├── ExtractionCrashed    extraction_crashed
    └── CannotWrite          cannot_write
    """


class ExtractorFault(ExtractError, code="extractor_error"):
    hint = "Run it again with fewer extractors or with --precision fp32; if it fails too, report the file."


class ExtractionCrashed(ExtractError, code="extraction_crashed"):
    hint = "The usual cause is too little memory: run it again with fewer --jobs."


class CannotWrite(ExtractError, code="cannot_write"):
    hint = "Free space on the disk of --out, or choose another folder."


class ExtractorsMissing(ReelwordError, code="extractors_missing"):
    """Is raised where an extractor cannot be loaded; the message says what to do."""

    hint = "reelword weights list shows all weights, and docs/extractors.md what each extractor needs."


@dataclass(frozen=True)
class ExtractionPlan:
    """Holds everything a process needs to extract features; it travels to worker processes."""

    extractors: tuple[str, ...]
    out: Path
    form: FormName
    windows: WindowOptions
    weights: WeightsChoice
    device: str
    precision: Precision | None
    predictions: bool
    settings: Settings
    #: Whose extractors they are, each with the set's windows in the place of ``windows``.
    streams: StreamSet | None = None

    @property
    def limits(self) -> Limits:
        return Limits(seconds=self.settings.decode_seconds, memory=self.settings.decode_memory)

    def folder(self, extractor: str) -> Path:
        """Names where an extractor's features go; those of random weights lie apart, and say so."""
        return self.out / name_extractor_folder(extractor, seeded=self.weights == "seeded")


@dataclass(frozen=True)
class ExtractionOutcome:
    """Holds what became of one video."""

    file: str  #: or its address
    written: tuple[str, ...] = ()  #: extractors whose features were written
    renewed: tuple[str, ...] = ()  #: a sentence for each whose features were there and were made anew
    predictions: tuple[str, ...] = ()  #: a line for each classifier
    error: FailedFile | None = None  #: why it has none

    @classmethod
    def failed(cls, file: str, error: ReelwordError) -> Self:
        """Makes that of a video without features."""
        return cls(file, error=FailedFile.by(file, error))


def choose_format(name: FormName) -> FileFormat:
    """Finds a form by its name. Raises PackageMissing where its library is absent."""
    if name == "hdf5":
        with name_missing_packages():
            import h5py  # noqa: F401
        return Hdf5Form()
    return NpyForm() if name == "npy" else SafetensorsForm()
