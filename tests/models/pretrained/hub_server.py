"""A hub of models on this machine: its answers about a repository, its files, and the faults of real ones."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.http_server import serving_in_thread

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = 1000  #: bytes from which a file is one of LFS, of which sha256 is published


@dataclass
class HubServer:
    """Serves one repository ``owner/name`` at one commit.

    cuts: after how many bytes the next bodies break off. elsewhere: whether large files are on another path,
    as those of real hubs are on another host. gated: whether it wants an account's token. lies: name → the
    bytes that are sent in place of the file's. sizes: name → the size that is published of it. tokens: the
    host and the authorization of each request.
    """

    files: Mapping[str, bytes]
    repository: str = "owner/name"
    cuts: list[int] = field(default_factory=list)
    elsewhere: bool = False
    gated: bool = False
    lies: Mapping[str, bytes] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    tokens: list[tuple[str | None, str | None]] = field(default_factory=list)
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ranges(self, name: str) -> list[str | None]:
        """The Range of each request for a file's bytes."""
        return [ranged for method, path, ranged in self.requests if method == "GET" and path.endswith(name)]

    def info(self) -> dict[str, Any]:
        siblings = [_sibling(name, content) for name, content in self.files.items()]
        for each in siblings:
            size = self.sizes.get(each["rfilename"], each["size"])
            each["size"] = size
            if "lfs" in each:
                each["lfs"]["size"] = size
        return {"id": self.repository, "modelId": self.repository, "sha": COMMIT, "siblings": siblings}


def _sibling(name: str, content: bytes) -> dict[str, Any]:
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    known: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": blob}
    if len(content) >= LARGE:
        digest = hashlib.sha256(content).hexdigest()
        known["lfs"] = {"size": len(content), "sha256": digest, "pointerSize": 134}
    return known


@contextmanager
def serving(hub: HubServer) -> Iterator[HubServer]:
    """Runs it in a thread of its own on a free port of this machine."""

    class Handler(_Handler):
        server_state = hub

    with serving_in_thread(Handler) as hub.port:
        yield hub


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_state: HubServer

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_POST(self) -> None:
        """Takes what the library sends to push: a repository, which files it has, and their content."""
        hub, path = self.server_state, self.path.partition("?")[0]
        hub.tokens.append((self.headers.get("Host"), self.headers.get("Authorization")))
        body = self._read_body().decode()
        answer: dict[str, Any] = {}
        if path.endswith("/preupload/main"):
            sent = json.loads(body)["files"]
            answer["files"] = [
                {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False} for each in sent
            ]
        elif path.endswith("/commit/main"):
            lines = [json.loads(line) for line in body.splitlines()]
            contents = [line["value"] for line in lines if line["key"] == "file"]
            hub.files = {each["path"]: base64.b64decode(each["content"]) for each in contents}
            answer = {"commitUrl": f"{hub.url}/{hub.repository}/commit/{COMMIT}", "commitOid": COMMIT}
        elif path == "/api/repos/create":
            answer = {"url": f"{hub.url}/{hub.repository}", "id": hub.repository}
        if hub.gated and self.headers.get("Authorization") is None:
            self._send(401, b"", {})
        else:
            self._send(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _read_body(self) -> bytes:
        """Reads a body of either kind: of a length, or in chunks."""
        if (length := self.headers.get("Content-Length")) is not None:
            return self.rfile.read(int(length))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Says nothing."""

    def _answer(self, *, body: bool) -> None:
        hub, path = self.server_state, self.path.partition("?")[0]
        hub.requests.append((self.command, path, self.headers.get("Range")))
        hub.tokens.append((self.headers.get("Host"), self.headers.get("Authorization")))
        found = re.fullmatch(rf"/{hub.repository}/(?:resolve|cdn)/([^/]+)/(.+)", path)
        if re.fullmatch(rf"/api/models/{hub.repository}(/revision/(main|{COMMIT}))?", path):
            self._send(200, json.dumps(hub.info()).encode(), {"Content-Type": "application/json"})
        elif hub.repository not in path:
            self._send(401, b"", {"X-Error-Code": "RepoNotFound"})
        elif found is None:
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
        elif hub.gated and self.headers.get("Authorization") is None:
            self._send(401, b"", {"X-Error-Code": "GatedRepo"})
        else:
            self._file(found[2], body=body, direct="/cdn/" in path)

    def _file(self, name: str, *, body: bool, direct: bool) -> None:
        hub = self.server_state
        published, content = hub.files[name], hub.lies.get(name, hub.files[name])
        tag = (
            hashlib.sha256(published).hexdigest()
            if len(published) >= LARGE
            else _sibling(name, published)["blobId"]
        )
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{tag}"', "Accept-Ranges": "bytes"}
        if hub.elsewhere and len(published) >= LARGE and not direct:
            where = {"Location": f"http://localhost:{hub.port}/{hub.repository}/cdn/{COMMIT}/{name}"}
            linked = {"X-Linked-Etag": f'"{tag}"', "X-Linked-Size": str(len(published))}
            self._send(302, b"", headers | where | linked)
            return
        begin = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").partition("-")[0])
        if begin and body:
            headers["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
            self._send(206, content[begin:], headers)
        else:
            self._send(200, content, headers, body=body)

    def _send(self, status: int, content: bytes, headers: Mapping[str, str], *, body: bool = True) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if not body or self.command == "HEAD":
            return
        if self.server_state.cuts and len(content) > self.server_state.cuts[0]:
            content, self.close_connection = content[: self.server_state.cuts.pop(0)], True
        self.wfile.write(content)
