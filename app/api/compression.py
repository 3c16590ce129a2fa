"""Answers what was compressed before, as it is to those who take gzip."""

import gzip

from fastapi import Request
from starlette.responses import Response

from app.api.etags import split_etags, weak_etag


def answer_compressed(
    request: Request, data: bytes, kind: str | None, headers: dict[str, str] | None = None
) -> Response:
    """Answers gzipped data.

    Args:
        request: what is answered; its Accept-Encoding says whether it takes gzip.
        data: gzip of the body.
        kind: the body's media type.
        headers: that the answer has besides.

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
