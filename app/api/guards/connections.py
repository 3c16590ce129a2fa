"""Connections to the API, with an end to everything that a client can leave undone.

uvicorn closes a connection that is idle between two requests, and no other. Here a request's headers have a
time and a size, a body has a pace whatever route reads it (its size is the routes' concern), what a client
still sends of a body that no route reads has a time, as has an answer that it does not take, and only so many
clients are connected at once, and of those only so many from one address.
"""

import asyncio
from asyncio import TimerHandle
from collections.abc import Sequence
from functools import partial
from typing import Any

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.api import problems, refusals
from app.api.receiving.upload import PACE, STALL_SECONDS

HEADER_SECONDS = 10.0  #: from a connection's begin, or a request's first byte, to the end of its headers
HEADER_BYTES = 64 * 1024  #: of a request's line and headers
#: For the next PACE bytes of a body. Routes that read one refuse it after STALL_SECONDS with an answer, and
#: have five seconds more to write it before the connection is cut.
BODY_SECONDS = STALL_SECONDS + 5.0
LEAVE_SECONDS = 5.0  #: for the rest of a request that is answered already, and for its answer to be taken
STUCK_SECONDS = 30.0  #: longest time in which a client takes nothing of an answer
PROBE_SECONDS = 2.0  #: until a client that sends no more is first probed; doubled each time
ALWAYS_ANSWERED = b"/livez"
LOOPBACK = ("127.0.0.1", "::1")
PIPELINED = 8  #: requests that may wait behind one on its connection


def limited(max_connections: int, proxies: Sequence[str] = ()) -> type[HttpToolsProtocol]:
    """Makes the protocol for uvicorn's ``http=``, one for each connection.

    Args:
        max_connections: at once; from one address a quarter of them.
        proxies: addresses behind which are many clients.
    """

    class Limited(LimitedProtocol):
        limit = max_connections
        unbounded = frozenset((*LOOPBACK, *proxies))

    return Limited


class LimitedProtocol(HttpToolsProtocol):
    """Speaks HTTP on one connection. ``_deadline`` ends what the client has to do next, one at a time."""

    limit = 500
    unbounded: frozenset[str] = frozenset()  # addresses from which all connections may come
    _deadline: TimerHandle | None = None
    _stuck: TimerHandle | None = None
    _header_bytes = _chunk_bytes = _unread_bytes = 0
    _missing_bytes = 0  # of the body's pace
    _has_begun = False  # a byte of the request has come
    _is_in_request = False  # its headers are complete, its body is not

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._served = self.app
        if len(self.connections) > self.limit * 3 // 2:  # no time for more than a word
            self._refuse(refusals.TooManyConnections())
        elif self._count_of_address() > self.limit // 4:
            self._refuse(refusals.TooManyConnections("They come from your address."))
        else:
            self._end_in(HEADER_SECONDS, self._headers_late)

    def _count_of_address(self) -> int:
        """Counts the connections of this one's address, 0 where it may have all."""
        host = self.client[0] if self.client else ""
        if host in self.unbounded:
            return 0
        clients = [getattr(other, "client", None) for other in self.connections]
        return sum(client is not None and client[0] == host for client in clients)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._deadline, self._stuck):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._chunk_bytes = len(data)
        if not self._is_in_request and not self._has_begun:  # line breaks before a request count as its begin
            self._begin()
        self._unread_bytes += len(data)
        super().data_received(data)
        if self._is_in_request and self._unread_bytes > HEADER_BYTES:  # trailers, or what chunks say beside
            most = refusals.in_units(HEADER_BYTES)
            self._end_body(refusals.HeadersTooLarge(f"Its trailers have more than {most}."))
        if self._has_begun and not self._is_in_request:
            self._header_bytes += len(data)
            if self._header_bytes > HEADER_BYTES:
                self._refuse(
                    refusals.HeadersTooLarge(f"They have more than {refusals.in_units(HEADER_BYTES)}.")
                )

    def eof_received(self) -> bool:  # type: ignore[override]
        """Returns whether a client that sends no more has answers to come, for which the connection stays.

        One that does so in the middle of an answer without a length, as events have, has left.
        """
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and self._is_in_request and not (self.pipeline or cycle.response_started):
            self._refuse(refusals.RequestCutOff())
        is_due = not (
            cycle is None or self._is_in_request or cycle.response_complete or cycle.chunked_encoding
        )
        if is_due:
            self.cycle.keep_alive = False
            self._end_in(PROBE_SECONDS, partial(self._probe, PROBE_SECONDS))
        return is_due

    def _probe(self, seconds: float) -> None:
        """Writes an interim answer, which clients skip: one that closed its side wholly resets the connection
        at the first, and the next one's writing fails. A client of HTTP/1.0 knows none.
        """
        is_mute = self.pipeline or self.cycle.response_started or self.cycle.scope["http_version"] == "1.0"
        if not is_mute:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._end_in(2 * seconds, partial(self._probe, 2 * seconds))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._has_begun:  # it follows the last one in the same chunk
            self._begin()

    def _begin(self) -> None:
        self._has_begun = True
        self._header_bytes = -self._chunk_bytes  # the first chunk may be another request's as well
        if self.cycle is not None:  # the first request's time runs from the connection's begin
            self._end_in(HEADER_SECONDS, self._headers_late)

    def on_body(self, body: bytes) -> None:
        self._unread_bytes = 0
        self._missing_bytes -= len(body)
        if self._missing_bytes <= 0 and not self.cycle.response_complete:
            self._await_body()
        super().on_body(body)

    def _await_body(self) -> None:
        self._missing_bytes = PACE
        self._end_in(BODY_SECONDS, self._body_late)

    def _body_late(self) -> None:
        if self.flow.read_paused:  # the route has not used what has come: the client is not late
            self._await_body()
        else:
            least = refusals.in_units(PACE)
            fault = f"Fewer than {least} have come in {BODY_SECONDS:g} seconds."
            self._end_body(refusals.UploadStalled(fault))

    def _end_body(self, error: refusals.RequestError) -> None:
        if self.cycle.response_started:
            self.transport.abort()
        else:
            self._refuse(error)

    def on_headers_complete(self) -> None:
        self._unread_bytes = 0
        if self.transport.is_closing():  # the parser reads to the end of its chunk
            return
        if len(self.pipeline) >= PIPELINED:
            self.transport.abort()
            return
        self._clear_deadline()
        self._is_in_request = True
        is_one_too_many = len(self.connections) > self.limit and self.url != ALWAYS_ANSWERED
        self.app = _too_many if is_one_too_many else self._served
        super().on_headers_complete()
        if self.scope["http_version"] == "1.0":
            self.cycle.send = partial(_send_unchunked, self.cycle, self.cycle.send)  # type: ignore[method-assign]
        self._await_body()

    def on_message_complete(self) -> None:
        self._is_in_request = self._has_begun = False
        self._clear_deadline()
        if self.cycle.response_complete:  # the last of a body that no route read: the connection is idle now
            self._end_in(self.timeout_keep_alive, self.timeout_keep_alive_handler)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        is_body_open = self._is_in_request and self.cycle.response_complete
        if self.transport.is_closing() or is_body_open:
            self._end_in(LEAVE_SECONDS, self.transport.abort)

    def timeout_keep_alive_handler(self) -> None:
        """Ends an idle connection; what the client has not taken of the last answer dies with it."""
        super().timeout_keep_alive_handler()
        self._end_in(LEAVE_SECONDS, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        super().send_400_response(msg)
        self._end_in(LEAVE_SECONDS, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(STUCK_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _headers_late(self) -> None:
        if self._has_begun:
            self._refuse(refusals.RequestStalled(f"Its headers took longer than {HEADER_SECONDS:g} seconds."))
        else:
            self.transport.abort()

    def _refuse(self, error: refusals.RequestError) -> None:
        """Answers outside of the application, which has seen no request, and hangs up."""
        answer = problems.response(error, "")
        answer.headers["Connection"] = "close"
        lines = [f"HTTP/1.1 {int(error.status)} {error.status.phrase}".encode()]
        lines += [name + b": " + value for name, value in answer.raw_headers]
        self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n" + bytes(answer.body))
        self.transport.close()
        self._end_in(LEAVE_SECONDS, self.transport.abort)

    def _end_in(self, seconds: float, end: Any) -> None:
        self._clear_deadline()
        self._deadline = self.loop.call_later(seconds, end)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


async def _send_unchunked(cycle: RequestResponseCycle, send: Any, message: Any) -> None:
    """Sends an answer as it is to a client of HTTP/1.0, which knows no chunks: the connection ends it."""
    cycle.chunked_encoding, cycle.expected_content_length = False, len(message.get("body", b""))
    await send(message)


async def _too_many(scope: Scope, receive: Receive, send: Send) -> None:
    answer = problems.response(refusals.TooManyConnections(), scope["path"])
    answer.raw_headers.append(CLOSE_HEADER)
    await answer(scope, receive, send)
