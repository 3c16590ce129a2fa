"""Sends one webhook request, and reads what its answer means."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import anyio
import httpx

from app.fetching.addresses import AllowedHosts, read_web_address
from app.fetching.guarded_client import HostRefused, guarded_client
from app.webhooks.messages import signed_headers

SECONDS = 15.0  #: for a whole attempt
HIDDEN = "not sent: the host is not there, or lies in a private network"


@dataclass(frozen=True)
class SendResult:
    """Describes how an attempt went."""

    seconds: float  #: that it took
    status: int | None = None  #: of the answer; None where none came
    error: str | None = None  #: why it does not count
    is_final: bool = False  #: no other attempt is to follow
    retry_after: float | None = None  #: seconds that the receiver asks for

    @property
    def is_delivered(self) -> bool:
        return self.error is None


class Sender:
    """Sends signed requests to hosts that are allowed. Redirects are not followed, answers not read."""

    def __init__(self, secrets: Sequence[str], hosts: AllowedHosts) -> None:
        self._secrets = secrets
        self._client = guarded_client(hosts, SECONDS)

    async def send(self, url: str, message_id: str, body: str, secret: str | None = None) -> SendResult:
        """Sends a message once.

        Args:
            url: the receiver's.
            message_id: the same for each attempt at one message.
            body: JSON.
            secret: signs it; the operator's where there is none.

        Returns:
            What came of it.
        """
        began = time.monotonic()
        headers = signed_headers([secret] if secret else self._secrets, message_id, body, time.time())
        try:
            with anyio.fail_after(SECONDS):
                to = read_web_address(url)
                request = self._client.build_request("POST", to, content=body, headers=headers)
                response = await self._client.send(request, stream=True)
                await response.aclose()
        except HostRefused:  # tried again as what is not there is, or its attempts would tell which it is
            return SendResult(_since(began), error=HIDDEN)
        except TimeoutError:
            return SendResult(_since(began), error=f"no answer within {SECONDS:g} seconds")
        except (httpx.HTTPError, OSError, ValueError) as error:
            return SendResult(_since(began), error=f"{type(error).__name__}: {error}"[:200])
        return _judged(response.status_code, response.headers, _since(began))

    async def close(self) -> None:
        await self._client.aclose()


def _judged(status: int, headers: Mapping[str, str], seconds: float) -> SendResult:
    if HTTPStatus(200) <= status < HTTPStatus(300):
        return SendResult(seconds, status)
    if status == HTTPStatus.GONE:
        return SendResult(seconds, status, "the receiver wants no more (410)", is_final=True)
    if 300 <= status < 400:
        return SendResult(seconds, status, f"redirects are not followed ({status})")
    wait = read_retry_after(headers.get("retry-after", ""), time.time())
    return SendResult(seconds, status, f"the receiver answered with {status}", retry_after=wait)


def read_retry_after(text: str, now: float) -> float | None:
    """Reads Retry-After, a number or a date, as seconds from ``now`` (since 1970); None if unreadable."""
    if text.strip().isdecimal():
        return float(text.strip()[:9])
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError):
        return None


def _since(began: float) -> float:
    return round(time.monotonic() - began, 3)
