"""Brings the files of a pretrained captioner into a folder: from a model hub, or from a folder on this disk.

Weights come as safetensors alone, and code never: nothing that is brought can run. Where a hub publishes what
a file must be (sha256 of large files, git's blob id of small ones), every byte is checked against it.
"""

import errno
import resource
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from httpx2 import HTTPError
from huggingface_hub import CommitOperationAdd, HfApi, hf_hub_download
from huggingface_hub.constants import ENDPOINT
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import ModelInfo

from extractors.files import git_blob_of, sha256_of
from models.pretrained.adapters.card import CHECKPOINT
from models.pretrained.adapters.card import CONFIG as ADAPTER
from models.pretrained.errors import (
    DiskTooSmall,
    FilesDiffer,
    GatedCaptioner,
    HubUnreachable,
    NoSuchCaptioner,
    NotACaptioner,
    PickledWeightsOnly,
)

#: What processors, tokenizers and configurations are read from; README.md has the licence.
READ = (".json", ".txt", ".model", ".jinja", ".safetensors")
WEIGHTS = ".safetensors"
#: How files of weights end that can run code when they are loaded, or that nothing here reads.
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".msgpack", ".h5")
CARD = "README.md"
MARGIN = 256 << 20  #: bytes of the disk that stay free
MOST_FILES = 200  #: of a captioner
TIMEOUT = 20.0  #: seconds for an answer about a repository


@dataclass(frozen=True)
class Published:
    """A file of a repository. sha256, blob: what it must be; None where the hub does not say."""

    name: str
    bytes: int
    sha256: str | None = None
    blob: str | None = None

    def check(self, file: Path) -> None:
        """Raises FilesDiffer where the file is another than was published."""
        if self.sha256 is not None:
            right = sha256_of(file) == self.sha256
        else:
            right = file.stat().st_size == self.bytes and self.blob in (None, git_blob_of(file))
        if not right:
            raise FilesDiffer(f"{self.name} is not the file that its repository publishes.")


def wanted_files(names: Iterable[str], origin: str) -> list[str]:
    """Returns the files that a captioner is read from: configuration, tokenizer, processor and safetensors.

    Sub-folders are left out, and shards follow from their index. Raises NotACaptioner where there is no
    config.json, no weights or far too much else, PickledWeightsOnly where there are no safetensors.
    """
    top = [name for name in names if "/" not in name and not name.startswith(".")]
    if CHECKPOINT in top:
        return [name for name in (CHECKPOINT, CARD) if name in top]
    if "config.json" not in top and ADAPTER not in top:
        raise NotACaptioner(f"{origin} has no config.json, so it is not in the Hugging Face format.")
    if not any(name.endswith(WEIGHTS) for name in top):
        if any(name.endswith(PICKLES) for name in top):
            raise PickledWeightsOnly(
                f"{origin} has its weights as pickles alone, which can run code when loaded."
            )
        raise NotACaptioner(f"{origin} has no weights.")
    read = sorted(name for name in top if name == CARD or name.endswith(READ))
    if len(read) > MOST_FILES:
        raise NotACaptioner(f"{origin} has {len(read)} files to be read, and {MOST_FILES} are the most.")
    return read


def copy_folder(source: Path, target: Path) -> None:
    """Copies the files of a captioner from a folder. Raises PretrainedError, OSError."""
    names = wanted_files((file.name for file in source.iterdir() if file.is_file()), str(source))
    if outside := [name for name in names if not _is_within(source.resolve(), source / name)]:
        raise NotACaptioner(f"{outside[0]} of {source} is a link to a file outside of it.")
    _check_room(sum((source / name).stat().st_size for name in names), target)
    _clear_others(target, names)
    for name in names:
        shutil.copyfile(source / name, target / name)


def _is_within(folder: Path, file: Path) -> bool:
    """Returns whether a file lies in a folder, or is one of a hub's cache, whose links lead to its blobs."""
    target = file.resolve()
    blobs = folder.parent.parent / "blobs"
    return target.parent == folder or (folder.parent.name == "snapshots" and target.parent == blobs)


def download(repository: str, revision: str | None, target: Path, *, endpoint: str | None = None) -> str:
    """Downloads the files of a captioner, continues where an earlier call broke off, and checks every file.

    Args:
        repository: ``owner/name`` on the hub.
        revision: a branch, tag or commit; None for the newest.
        target: the folder that they come into; what an earlier call left there is used.
        endpoint: the hub's address, where it is not the public one's or HF_ENDPOINT's.

    Returns:
        The commit that was downloaded.

    Raises:
        PretrainedError: what went wrong, with what to do.
    """
    with _named_errors(repository, endpoint):
        info = HfApi(endpoint=endpoint).model_info(
            repository, revision=revision, files_metadata=True, timeout=TIMEOUT
        )
    published = {each.name: each for each in _published(info)}
    files = [published[name] for name in wanted_files(published, repository)]
    _check_room(sum(file.bytes for file in files if not (target / file.name).exists()), target)
    _clear_others(target, [file.name for file in files])
    commit = str(info.sha)
    for file in files:
        _download_file(repository, commit, file, target, endpoint)
    shutil.rmtree(target / ".cache", ignore_errors=True)
    return commit


def upload(files: Mapping[str, Path | bytes], repository: str) -> str:
    """Uploads files as one commit, with the token that the hub's library finds (HF_TOKEN).

    Args:
        files: name → file or content.
        repository: ``owner/name``, made where it is not there.

    Returns:
        The commit.

    Raises:
        PretrainedError: what went wrong, with what to do.
    """
    operations = [CommitOperationAdd(name, file) for name, file in files.items()]
    with _named_errors(repository):
        hub = HfApi()
        hub.create_repo(repository, exist_ok=True)
        commit = hub.create_commit(repository, operations, commit_message="Pushed by Reelword")
    return str(commit.oid)


def _download_file(repository: str, commit: str, file: Published, target: Path, endpoint: str | None) -> None:
    """Raises PretrainedError. A file that is not the one that was published does not stay."""
    with _named_errors(repository, endpoint), _no_file_above(file.bytes + MARGIN):
        hf_hub_download(
            repository, file.name, revision=commit, local_dir=target, endpoint=endpoint, etag_timeout=TIMEOUT
        )
    try:
        file.check(target / file.name)
    except FilesDiffer:
        (target / file.name).unlink(missing_ok=True)
        raise


@contextmanager
def _no_file_above(size: int) -> Iterator[None]:
    """Fails what is written beyond ``size`` bytes of a file, with EFBIG: a server may send without an end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size if hard < 0 else min(size, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _published(info: ModelInfo) -> Iterator[Published]:
    for each in info.siblings or ():
        size, sha256 = (each.size, None) if each.lfs is None else (each.lfs.size, each.lfs.sha256)
        yield Published(each.rfilename, max(0, size or 0), sha256, each.blob_id)


def _clear_others(folder: Path, names: Sequence[str]) -> None:
    """Deletes what an earlier call for another source left there."""
    for file in folder.iterdir():
        if file.is_file() and file.name not in names:
            file.unlink()


def _check_room(needed: int, target: Path) -> None:
    free = shutil.disk_usage(target).free
    if free < needed + MARGIN:
        raise DiskTooSmall(f"{needed / 1e6:.0f} MB are needed and {free / 1e6:.0f} MB are free.")


@contextmanager
def _named_errors(repository: str, endpoint: str | None = None) -> Iterator[None]:
    """Turns what the hub's library raises into PretrainedError. endpoint: None for the default."""
    hub = endpoint or ENDPOINT
    try:
        yield
    except GatedRepoError as error:
        raise GatedCaptioner(f"{repository} is gated: its owner grants access to each account.") from error
    except RevisionNotFoundError as error:
        raise NoSuchCaptioner(f"{repository} has no such revision.") from error
    except RepositoryNotFoundError as error:
        raise NoSuchCaptioner(f"The hub has no model {repository}, or not for this account.") from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        raise HubUnreachable(f"{hub} answered {status} for {repository}.") from error
    except (LocalEntryNotFoundError, HTTPError) as error:
        fault = f"{hub} does not answer for {repository}, or broke off: {type(error).__name__}."
        raise HubUnreachable(fault) from error
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise FilesDiffer(f"A file of {repository} is larger than its repository publishes.") from error
        if error.errno == errno.ENOSPC:
            raise DiskTooSmall(f"The disk is full, and {repository} is not whole.") from error
        raise HubUnreachable(f"The transfer of {repository} with {hub} broke off: {error}.") from error
