"""Opens folders and addresses: disks, S3 and Google Cloud through pyarrow, others through fsspec.

Machines of a cluster open them for themselves: what is needed beside the address (keys, and AWS_ENDPOINT_URL
for a store that is not Amazon's) is in their environment.
"""

import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import fsspec
import pyarrow as pa
import pyarrow.fs

from app.errors import UploadMissing, UsageError

PIECE = 1 << 20
EMULATOR = timedelta(seconds=20)  #: of trying again
STORES = ("s3", "gs")  #: schemes that pyarrow itself reads and writes


@dataclass(frozen=True)
class Location:
    """Holds a folder or a file: the file system, its path there, and what its address begins with."""

    files: pyarrow.fs.FileSystem
    path: str
    scheme: str = ""

    @property
    def is_local(self) -> bool:
        return not self.scheme

    def address_of(self, path: str) -> str:
        """Returns the address by which a path of this file system is opened again."""
        return f"{self.scheme}://{path}" if self.scheme else path

    def look(self) -> pyarrow.fs.FileInfo:
        """Looks whether the address is a file's, of which size and time. Raises OSError."""
        [entry] = self.files.get_file_info([self.path])
        return entry

    def list_files(self) -> Iterator[str]:
        """Yields the paths of all files below, sorted; none where nothing is there. Raises OSError."""
        selector = pyarrow.fs.FileSelector(self.path, recursive=True, allow_not_found=True)
        entries = self.files.get_file_info(selector)
        yield from sorted(each.path for each in entries if each.type == pyarrow.fs.FileType.File)

    def copy_to(self, file: Path) -> None:
        """Copies the file here, a piece at a time. Raises UploadMissing."""
        try:
            with self.files.open_input_stream(self.path) as remote, file.open("wb") as local:
                while piece := remote.read(PIECE):
                    local.write(piece)
        except (OSError, pa.ArrowException) as error:
            raise UploadMissing(f"The file cannot be read: {error}.") from error


def open_location(address: str) -> Location:
    """Opens a path of this machine, or an address with a scheme. Raises UsageError."""
    scheme, is_address, rest = address.partition("://")
    if not is_address:
        return Location(pyarrow.fs.LocalFileSystem(), os.path.abspath(address))
    path = rest.strip("/")
    try:
        return Location(_file_system(scheme, PurePosixPath(path or "/").parts[0]), path, scheme)
    except (OSError, ValueError, ImportError, pa.ArrowException) as error:
        raise UsageError(f"{address} cannot be opened: {error}.") from error


@functools.lru_cache(maxsize=32)
def _file_system(scheme: str, bucket: str) -> pyarrow.fs.FileSystem:
    """Opens a store once, since each new one looks for keys and makes connections."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if scheme == "s3" and endpoint:
        return pyarrow.fs.S3FileSystem(endpoint_override=endpoint)
    if scheme == "gs" and (emulator := os.environ.get("STORAGE_EMULATOR_HOST")):
        place = urlsplit(emulator)
        return pyarrow.fs.GcsFileSystem(
            anonymous=True, scheme=place.scheme, endpoint_override=place.netloc, retry_time_limit=EMULATOR
        )
    if scheme in STORES:
        return pyarrow.fs.FileSystem.from_uri(f"{scheme}://{bucket}")[0]  # finds the bucket's region
    return pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fsspec.filesystem(scheme)))
