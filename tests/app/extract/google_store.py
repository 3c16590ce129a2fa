"""A store that speaks as much of Google Cloud Storage as pyarrow asks for: objects in memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote, urlsplit

from tests.http_server import serving_in_thread

WHEN = "2026-01-01T00:00:00Z"


class GoogleStore:
    """Holds objects by ``bucket/key``. address: for STORAGE_EMULATOR_HOST."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.fetched: list[str] = []
        self.address = ""

    @contextmanager
    def serving(self) -> Iterator[GoogleStore]:
        with serving_in_thread(_handler(self)) as port:
            self.address = f"http://127.0.0.1:{port}"
            yield self

    def describe(self, name: str) -> dict[str, str]:
        bucket, _, key = name.partition("/")
        size = str(len(self.objects[name]))
        times = {"timeCreated": WHEN, "updated": WHEN}
        return {
            "kind": "storage#object", "bucket": bucket, "name": key, "size": size, "generation": "1", **times,
        }  # fmt: skip


def _handler(store: GoogleStore) -> type[BaseHTTPRequestHandler]:
    class GoogleHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            del format, args

        def do_GET(self) -> None:
            address = urlsplit(self.path)
            query = parse_qs(address.query)
            place = re.fullmatch(r"/storage/v1/b/([^/]+)(/o)?(?:/(.*))?", address.path)
            assert place is not None, self.path
            bucket, name = place[1], f"{place[1]}/{unquote(place[3] or '')}"
            if place[3] is not None:
                self._give(name, content=query.get("alt") == ["media"])
            elif place[2]:
                below = f"{bucket}/{query.get('prefix', [''])[0]}"
                items = [store.describe(each) for each in sorted(store.objects) if each.startswith(below)]
                self._answer({"kind": "storage#objects", "items": items})
            else:
                self._answer({"kind": "storage#bucket", "name": bucket, "timeCreated": WHEN})

        def _give(self, name: str, *, content: bool) -> None:
            if name not in store.objects:
                self._answer({"error": {"code": 404, "message": "not found"}}, 404)
            elif content:
                store.fetched.append(name)
                self._send(store.objects[name])
            else:
                self._answer(store.describe(name))

        def _answer(self, document: Mapping[str, object], status: int = 200) -> None:
            self._send(json.dumps(document).encode(), status)

        def _send(self, data: bytes, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return GoogleHandler
