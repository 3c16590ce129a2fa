"""Names states of what is answered (RFC 9110, section 8.8.3), and answers with what clients lack of them."""

import gzip
import hashlib

from fastapi import Request
from starlette.responses import Response


def weak_etag(data: bytes) -> str:
    """Names data whose bytes may differ without being another state."""
    return f'W/"{hashlib.sha256(data).hexdigest()[:32]}"'


def split_etags(if_none_match: str | None) -> list[str]:
    """Lists the names in an If-None-Match header."""
    return [tag.strip() for tag in (if_none_match or "").split(",") if tag.strip()]


def answer_compressed(
    request: Request, data: bytes, kind: str | None, headers: dict[str, str] | None = None
) -> Response:
    """Answers gzipped data.

    Args:
        request: what is answered; its Accept-Encoding says whether it takes gzip.
        data: gzip of the body.
        kind: the body's media type.

    Returns:
        The answer, with ``Vary`` and ``ETag``; plain where gzip is not taken, 304 where the client has it.
    """
    tag = weak_etag(data)
    headers = {**(headers or {}), "Vary": "Accept-Encoding", "ETag": tag}
    if tag in split_etags(request.headers.get("if-none-match")):
        return Response(None, 304, headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(data, headers={**headers, "Content-Encoding": "gzip"}, media_type=kind)
    return Response(gzip.decompress(data), headers=headers, media_type=kind)
