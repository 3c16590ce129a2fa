"""A store that speaks as much of S3 as pyarrow asks for: objects in memory, one server a test."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.http_server import serving_in_thread

NAMESPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


class ObjectStore:
    """Holds objects by ``bucket/key``. address: for AWS_ENDPOINT_URL."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.fetched: list[str] = []
        self.parts: dict[str, dict[int, bytes]] = {}
        self.address = ""

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.address,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @contextmanager
    def serving(self) -> Iterator[ObjectStore]:
        with serving_in_thread(_handler(self)) as port:
            self.address = f"http://127.0.0.1:{port}"
            yield self

    def listing(self, bucket: str, prefix: str, delimiter: str) -> str:
        """The answer of ListObjectsV2."""
        keys, folders = [], set()
        for name, data in sorted(self.objects.items()):
            key = name.removeprefix(f"{bucket}/")
            if name == key or not key.startswith(prefix):
                continue
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.split(delimiter)[0] + delimiter)
            else:
                keys.append(
                    f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size>"
                    "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
                )
        prefixes = "".join(f"<CommonPrefixes><Prefix>{each}</Prefix></CommonPrefixes>" for each in folders)
        return (
            f"<ListBucketResult {NAMESPACE}><Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix>"
            f"<KeyCount>{len(keys)}</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>"
            f"{''.join(keys)}{prefixes}</ListBucketResult>"
        )


def _handler(store: ObjectStore) -> type[BaseHTTPRequestHandler]:
    class S3Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            del format, args

        def _ask(self) -> tuple[str, dict[str, str], bytes]:
            address = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(address.query, True).items()}
            return unquote(address.path).strip("/"), query, self._body()

        def _body(self) -> bytes:
            body = self._transferred()
            if "aws-chunked" not in self.headers.get("Content-Encoding", ""):
                return body
            found, rest = b"", body
            while match := re.match(rb"([0-9a-fA-F]+)[^\r]*\r\n", rest):
                size = int(match[1], 16)
                found, rest = found + rest[match.end() :][:size], rest[match.end() + size + 2 :]
                if not size:
                    break
            return found

        def _transferred(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def _answer(self, status: int, body: bytes | str = b"", **headers: str) -> None:
            data = body.encode() if isinstance(body, str) else body
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", headers.pop("length", str(len(data))))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def do_GET(self) -> None:
            name, query, _ = self._ask()
            if "list-type" in query:
                prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
                self._answer(200, store.listing(name, prefix, delimiter), Content_Type="application/xml")
            elif name not in store.objects:
                self._answer(404, "<Error><Code>NoSuchKey</Code></Error>")
            else:
                data = store.objects[name]
                store.fetched.append(name)
                span = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
                first, last = (int(span[1]), int(span[2] or len(data) - 1)) if span else (0, len(data) - 1)
                place = f"bytes {first}-{last}/{len(data)}"
                self._answer(206 if span else 200, data[first : last + 1], ETag='"1"', Content_Range=place)

        def do_HEAD(self) -> None:
            name, _, _ = self._ask()
            is_bucket = "/" not in name
            if is_bucket or name in store.objects:
                self.send_response(200)
                size = 0 if is_bucket else len(store.objects[name])
                self.send_header("Content-Length", str(size))
                self.send_header("ETag", '"1"')
                self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
                self.end_headers()
            else:
                self._answer(404)

        def do_PUT(self) -> None:
            name, query, body = self._ask()
            if "uploadId" in query:
                store.parts[query["uploadId"]][int(query["partNumber"])] = body
            else:
                store.objects[name] = body
            self._answer(200, ETag='"1"')

        def do_POST(self) -> None:
            name, query, _ = self._ask()
            if "uploads" in query:
                upload = uuid.uuid4().hex
                store.parts[upload] = {}
                inside = f"<UploadId>{upload}</UploadId>"
                self._answer(200, f"<InitiateMultipartUploadResult>{inside}</InitiateMultipartUploadResult>")
            else:
                parts = store.parts.pop(query["uploadId"])
                store.objects[name] = b"".join(parts[number] for number in sorted(parts))
                inside = '<ETag>"1"</ETag>'
                self._answer(200, f"<CompleteMultipartUploadResult>{inside}</CompleteMultipartUploadResult>")

        def do_DELETE(self) -> None:
            name, _, _ = self._ask()
            store.objects.pop(name, None)
            self._answer(204)

    return S3Handler
