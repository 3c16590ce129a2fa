"""Decides which requests are sent again, and after how long."""

from __future__ import annotations

import httpx
from tenacity import RetryCallState, retry_if_exception, stop_after_attempt, wait_random_exponential

from reelword.errors import name_refusal

LONGEST_PAUSE = 30.0  #: seconds, whatever a service asks for
#: The service is busy, restarts, or still receives the first request of the same key.
AGAIN = frozenset({408, 409, 425, 429, 502, 503, 504})


class TryAgain(Exception):
    """Carries an answer that is worth another try."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__(response.status_code)
        self.response = response


def check(response: httpx.Response) -> httpx.Response:
    """Passes an answer on. Raises TryAgain for one that a later try may better."""
    if response.status_code not in AGAIN:
        return response
    if response.status_code == 409 and "idempotency_in_progress" not in response.text:
        return response
    raise TryAgain(response)


def refuse(response: httpx.Response) -> httpx.Response:
    """Passes an answer on. Raises Refused for one that refuses."""
    if response.is_error:
        raise name_refusal(response)
    return response


def _is_worth_it(error: BaseException) -> bool:
    return isinstance(error, TryAgain | httpx.TransportError)


def _pause(state: RetryCallState) -> float:
    """Returns the seconds that the service asks for by Retry-After, else a growing, random pause."""
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, TryAgain):
        pause = error.response.headers.get("Retry-After", "")
        if pause.isdecimal():
            return min(float(pause), LONGEST_PAUSE)
    return wait_random_exponential(multiplier=0.2, max=LONGEST_PAUSE)(state)


def policy(attempts: int) -> dict[str, object]:
    """Makes the arguments of tenacity's ``Retrying`` and ``AsyncRetrying``."""
    return {
        "stop": stop_after_attempt(attempts),
        "wait": _pause,
        "retry": retry_if_exception(_is_worth_it),
        "reraise": True,
    }
