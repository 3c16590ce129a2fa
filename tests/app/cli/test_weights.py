"""``reelword weights`` as its users run it, against a real server and a manifest of small networks."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from app.cli.main import cli
from app.terminal import PROGRAM
from extractors.files import sha256_of
from tests.extractors.manifests import small_checkpoint, write_manifest
from tests.file_server import FileServer, serving

URL = "http://127.0.0.1:9/small.pth"


@dataclass
class Shell:
    """Runs the command in this process, with a data folder and a manifest of its own."""

    folder: Path
    server: FileServer
    published: Path

    @property
    def environment(self) -> dict[str, str]:
        return {
            "REELWORD_DATA": str(self.folder / "data"),
            "REELWORD_MANIFEST": str(self.folder / "manifest.toml"),
            "NO_PROXY": "127.0.0.1",
            "COLUMNS": "200",
        }

    def run(self, *arguments: str | Path, **environment: str) -> Result:
        given = ["weights", *(str(argument) for argument in arguments)]
        return CliRunner().invoke(cli, given, env={**self.environment, **environment}, prog_name=PROGRAM)

    def place(self, name: str) -> Path:
        return self.folder / "data" / "weights" / name / "small.pth"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    published = small_checkpoint(tmp_path / "published.pth")
    digest = sha256_of(published)
    with serving(FileServer(published.read_bytes())) as server:
        write_manifest(
            tmp_path / "manifest.toml",
            net={"source": "url", "url": server.url, "sha256": digest, "bytes": len(server.content)},
            short={"source": "url", "url": server.url, "sha256": digest[:8]},
            unknown={"source": "url", "url": server.url},
            gone={"source": "url", "url": server.url.replace("/file", "/gone")},
            mine={"source": "file", "where": "your own training makes it"},
            packed={"source": "package", "requirement": "no-such==1", "module": "no_such"},
            ours={"source": "repository", "path": "nets/net.pth", "sha256": digest},
        )
        yield Shell(tmp_path, server, published)


def test_list_says_what_there_is_and_what_is_here(shell: Shell) -> None:
    shell.run("get", "net")
    listed = shell.run("list")
    assert listed.exit_code == 0
    rows = {row.split()[0]: row for row in listed.stdout.splitlines() if "│" in row}
    assert rows.keys() == {"net", "short", "unknown", "gone", "mine", "packed", "ours"}
    assert "yes" in rows["net"]
    assert "no" in rows["short"]
    assert "you bring it" in rows["mine"]
    assert "CC0-1.0" in rows["net"]


def test_list_as_json_says_all_that_the_manifest_does(shell: Shell) -> None:
    documents = {entry["name"]: entry for entry in json.loads(shell.run("list", "--json").stdout)}
    assert documents["net"]["url"] == shell.server.url
    assert documents["net"]["sha256"] == sha256_of(shell.published)
    assert documents["net"]["file"] is None
    assert documents["mine"]["where"] == "your own training makes it"


def test_a_file_of_the_repository_is_listed_and_verified(shell: Shell) -> None:
    missing = shell.run("verify", "ours")
    assert missing.exit_code == 1
    assert "weights/nets/net.pth, which comes with Reelword, is not here" in missing.stderr
    assert "not_for_download" in shell.run("get", "ours").stderr
    beside = small_checkpoint(shell.folder / "nets" / "net.pth")
    assert shell.run("verify").stdout == f"ours: {beside} (sha256 {sha256_of(beside)[:12]}…)\n"
    (row,) = [line for line in shell.run("list").stdout.splitlines() if line.split()[:1] == ["ours"]]
    assert "repository" in row
    assert "yes" in row
    beside.write_bytes(b"damaged")
    assert "get the repository, or the image, again" in shell.run("verify").stderr


def test_get_brings_a_file_once(shell: Shell) -> None:
    first = shell.run("get", "net")
    assert first.exit_code == 0
    assert first.stdout.startswith(f"net: {shell.place('net')} (sha256 ")
    assert shell.place("net").read_bytes() == shell.server.content
    assert shell.run("get", "net").stdout == first.stdout
    assert len(shell.server.requests) == 1


def test_get_says_what_nobody_vouches_for(shell: Shell) -> None:
    said = shell.run("get", "unknown", "short").stdout.splitlines()
    digest = sha256_of(shell.published)
    assert said[0].endswith(f"(sha256 {digest}, published nowhere; pinned here as seen first)")
    assert said[1].endswith(f"(sha256 {digest}, of which {digest[:8]} is published; pinned here)")


def test_get_goes_on_with_the_others_where_one_fails(shell: Shell) -> None:
    run = shell.run("get", "gone", "net", "packed", "mine")
    assert run.exit_code == 1
    assert run.stdout.startswith("net: ")
    failures = {line.partition(":")[0]: line for line in run.stderr.splitlines()}
    assert failures.keys() == {"gone", "packed", "mine"}
    assert "404 Not Found. Get the file by a browser" in failures["gone"]
    assert failures["gone"].endswith("[download_refused]")
    assert "pip install --no-deps no-such==1" in failures["packed"]
    assert "your own training makes it; then run `reelword weights add FILE --as mine`" in failures["mine"]


def test_get_brings_a_damaged_file_again(shell: Shell) -> None:
    shell.run("get", "unknown")
    shell.place("unknown").write_bytes(b"damaged")
    assert shell.run("verify").exit_code == 1
    assert shell.run("get", "unknown").exit_code == 0
    assert shell.run("verify").exit_code == 0


def test_get_refuses_what_the_network_cannot_be_built_from(shell: Shell) -> None:
    shell.server.content = b"\x80\x02}q\x00."
    run = shell.run("get", "unknown")
    assert run.exit_code == 1
    assert "holds no parameters" in run.stderr
    assert not shell.place("unknown").exists()


def test_offline_says_which_file_to_put_where(shell: Shell) -> None:
    run = shell.run("get", "net", REELWORD_OFFLINE="1")
    assert run.exit_code == 1
    assert shell.server.url in run.stderr
    assert str(shell.place("net")) in run.stderr
    assert "weights add FILE --as net" in run.stderr
    assert shell.server.requests == []


def test_offline_is_no_trouble_for_what_is_here(shell: Shell) -> None:
    shell.run("add", shell.published, "--as", "net")
    assert shell.run("get", "net", REELWORD_OFFLINE="1").exit_code == 0


def test_add_takes_a_file_in(shell: Shell) -> None:
    run = shell.run("add", shell.published, "--as", "mine")
    assert run.exit_code == 0
    assert run.stdout.startswith(f"mine: {shell.place('mine')} (")
    assert shell.place("mine").read_bytes() == shell.published.read_bytes()


def test_add_refuses_another_networks_checkpoint(shell: Shell, tmp_path: Path) -> None:
    torch.save({"conv1.weight": torch.zeros(1)}, tmp_path / "other.pth")
    run = shell.run("add", tmp_path / "other.pth", "--as", "mine")
    assert run.exit_code == 1
    assert "conv1.weight is left over" in run.stderr
    assert run.stderr.rstrip().endswith("[wrong_checkpoint]")
    assert not shell.place("mine").exists()


def test_add_refuses_another_file_than_the_published(shell: Shell, tmp_path: Path) -> None:
    run = shell.run("add", small_checkpoint(tmp_path / "other.pth", seed=1), "--as", "short")
    assert run.exit_code == 1
    assert "not what is published as short" in run.stderr


def test_add_of_a_file_that_is_not_there(shell: Shell, tmp_path: Path) -> None:
    run = shell.run("add", tmp_path / "absent.pth", "--as", "mine")
    assert run.exit_code == 1
    assert "There is no file" in run.stderr


def test_verify_looks_at_all_that_is_here(shell: Shell) -> None:
    nothing = shell.run("verify")
    assert nothing.exit_code == 0
    assert "no weights here" in nothing.stdout
    shell.run("get", "net", "short")
    assert [line.partition(":")[0] for line in shell.run("verify").stdout.splitlines()] == ["net", "short"]
    assert shell.run("verify", "mine").exit_code == 1


@pytest.mark.parametrize(
    "arguments",
    [("get", "nothing"), ("verify", "nothing"), ("add", "FILE", "--as", "nothing"), ("get",), ("fetch",), ()],
)
def test_wrong_usage(shell: Shell, arguments: tuple[str, ...]) -> None:
    (shell.folder / "FILE").touch()
    places = {"FILE": str(shell.folder / "FILE")}
    assert shell.run(*(places.get(each, each) for each in arguments)).exit_code == 2


@pytest.mark.parametrize("content", ["[net", '[net]\nsource = "url"\n', "net = 1\n", None])
def test_a_manifest_that_cannot_be_read(shell: Shell, content: str | None) -> None:
    other = shell.folder / "other.toml"
    if content is not None:
        other.write_text(content)
    for arguments in (["list"], ["get", "net"], ["verify"]):
        run = shell.run(*arguments, REELWORD_MANIFEST=str(other))
        assert run.exit_code == 2
        assert run.stderr.startswith(str(other))


def test_a_terminal_gets_a_progress_bar(shell: Shell, root: Path) -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "app", "weights", "get", "net"]
    environment = {**os.environ, **shell.environment, "TERM": "xterm"}
    process = subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=slave)
    os.close(slave)
    shown = b""
    while True:
        try:
            shown += os.read(master, 4096)
        except OSError:  # the other end is closed
            break
    assert process.wait() == 0
    os.close(master)
    assert b"net" in shown
    assert process.stdout is not None
    assert process.stdout.read().startswith(b"net: ")
    process.stdout.close()
