"""Problem documents: every leaf has its own code, a status, and a sentence that says what to do."""

from __future__ import annotations

import pytest

from app.api import problems, refusals
from app.api.refusals import RequestError
from app.errors import CaptionerUnknown, NotOnDisk, QueueError, QueueUnavailable

LEAVES = RequestError.__subclasses__()


def test_codes_are_unique() -> None:
    assert len({leaf.code for leaf in LEAVES}) == len(LEAVES)


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.code)
def test_a_leaf_says_what_is_wrong_and_what_to_do(leaf: type[RequestError]) -> None:
    document = problems.describe(leaf(), "/caption")
    assert document.type == f"urn:reelword:problem:{leaf.code}"
    assert 400 <= document.status < 600
    assert document.detail.endswith(".")
    assert document.hint.endswith((".", "…"))
    assert document.instance == "/caption"


def test_known_values_are_listed_or_left_out() -> None:
    listed = problems.describe(CaptionerUnknown("No.", known=("g2l", "stats")), "/caption")
    assert listed.known == ["g2l", "stats"]
    assert "known" not in problems.describe(refusals.VideoEmpty(), "/caption").model_dump(exclude_none=True)


@pytest.mark.parametrize("error", [QueueUnavailable("Redis does not answer."), NotOnDisk("Not kept.")])
def test_queue_errors_are_told_the_same_way(error: QueueError) -> None:
    document = problems.describe(error, "/jobs/1")
    assert (document.status, document.code, document.detail) == (503, error.code, error.public)
    assert document.hint == error.hint


def test_a_wait_is_said_in_the_headers() -> None:
    assert problems.headers_of(refusals.BacklogFull()) == {"Retry-After": "30"}
    assert problems.headers_of(refusals.VideoEmpty()) == {}


def test_openapi_lists_problems_of_one_status_together() -> None:
    responses = problems.openapi_responses(refusals.VideoMissing, refusals.VideoEmpty, refusals.BacklogFull)
    assert set(responses) == {422, 503}
    content = responses[422]["content"]["application/problem+json"]
    assert set(content["examples"]) == {"video_missing", "video_empty"}


@pytest.mark.parametrize(
    ("size", "words"),
    [(300, "300 bytes"), (8 * 1024, "8 KiB"), (512 * 2**20, "512 MiB"), (3 * 2**29, "1.5 GiB")],
)
def test_sizes_are_said_in_units(size: int, words: str) -> None:
    assert refusals.in_units(size) == words


def test_a_queue_s_trouble_is_the_operator_s_to_read() -> None:
    error = QueueUnavailable("Redis does not answer (Error 111 connecting to /srv/reel/redis.sock).")
    text = problems.describe(error, "/jobs/1").model_dump_json()
    assert "redis.sock" not in text
    assert "REDIS_URL" not in text
    assert "REDIS_URL" in error.advice
