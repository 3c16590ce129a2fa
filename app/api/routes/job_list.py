"""Answers ``GET /jobs``: a page of jobs, newest first, by state, captioner, batch and time."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    Field,
    WithJsonSchema,
)

from app.api import problems, refusals
from app.api.dependencies import CallerDep, ServiceDep
from app.api.receiving.option_body import check_names
from app.documents.job_list import JobList, summary_of
from app.errors import InvalidCursor
from app.jobs.job import STATES, State
from app.jobs.job_index import JobFilter
from app.jobs.options import NAME_LENGTH

STATES_PATTERN = rf"^({'|'.join(STATES)})(,({'|'.join(STATES)}))*$"
RFC3339 = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})$"
MOST, USUAL = 200, 50  #: jobs of a page

router = APIRouter(tags=["jobs"])


def _rfc3339(value: object) -> object:
    """Takes a time as RFC 3339 has it, and no other that pydantic would read. Raises ValueError."""
    if isinstance(value, str) and not re.match(RFC3339, value):
        raise ValueError("a time is written as RFC 3339 has it: 2026-11-29T09:00:00Z")
    return value


def _in_utc(value: datetime) -> datetime:
    """Raises ValueError where the moment is in no year of UTC's calendar."""
    try:
        return value.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("a time lies within the years 1 to 9999") from error


Time = Annotated[AwareDatetime, BeforeValidator(_rfc3339), AfterValidator(_in_utc)]
#: Described by a pattern and checked by hand: pydantic would answer with the pattern.
States = Annotated[str, WithJsonSchema({"type": "string", "pattern": STATES_PATTERN})]


class JobListQuery(BaseModel, extra="forbid", frozen=True):
    """Holds the query of the address; anything else there is refused."""

    state: list[States] = Field(
        [],
        description="Those in one of these states, with commas between them or each by itself.",
        examples=[["queued,running"]],
    )
    captioner: str | None = Field(
        None, min_length=1, max_length=NAME_LENGTH, description="Those that this captioner writes, or wrote."
    )
    batch: str | None = Field(None, pattern=r"^[0-9a-f]{32}$", description="Those of this batch.")
    created_after: Time | None = Field(
        None, description="Those accepted later than this (RFC 3339).", examples=["2026-11-29T09:00:00Z"]
    )
    created_before: Time | None = Field(None, description="Those accepted earlier than this.")
    limit: int = Field(USUAL, ge=1, le=MOST, description="Most jobs of the page.")
    cursor: str | None = Field(
        None, min_length=1, max_length=256, description="`next` of the page before, as it is."
    )

    def filter_for(self, owner: str | None) -> JobFilter:
        """Makes the filter of the index. owner: whose jobs alone are shown; None shows all.

        Raises InvalidOption where a state is none.
        """
        after, before = self.created_after, self.created_before
        return JobFilter(
            states=_read_states(self.state),
            captioner=self.captioner,
            batch=self.batch,
            owner=owner,
            created_after=None if after is None else after.timestamp(),
            created_before=None if before is None else before.timestamp(),
        )

    def link_to(self, cursor: str, root: str) -> str:
        """Makes the Link header (RFC 8288) of the page that begins at this cursor, below a path ``root``."""
        query = self.model_dump(exclude_unset=True, exclude_none=True) | {"cursor": cursor}
        for name in {"created_after", "created_before"} & query.keys():
            query[name] = query[name].isoformat().replace("+00:00", "Z")
        return f'<{root}/jobs?{urlencode(query, doseq=True)}>; rel="next"'


def _read_states(values: Sequence[str]) -> list[State]:
    """Reads states with commas between them; none for all. Raises InvalidOption."""
    names = [name for value in values for name in value.split(",")]
    if wrong := next((name for name in names if name not in STATES), None):
        raise refusals.InvalidOption(f"state: there is no state called {wrong[:64]}.", known=STATES)
    if "" in names:
        raise refusals.InvalidOption("state: a name is missing before or behind a comma.", known=STATES)
    return [state for state in STATES if state in names]


@router.get(
    "/jobs",
    response_model=JobList,
    responses={
        200: {"headers": problems.header("Link", 'The next page, as `rel="next"`, where there is one.')},
        **problems.openapi_responses(InvalidCursor, refusals.InvalidOption),
    },
)
def list_jobs(
    query: Annotated[JobListQuery, Query()], request: Request, service: ServiceDep, caller: CallerDep
) -> Response:
    """Lists jobs, newest first, a page at a time: continue with `next` as `cursor` until it is null.

    A job that was there when the first page was read comes exactly once, however many are sent meanwhile.
    With a key that is no administrator's, the jobs of that key alone are listed.
    """
    names = [name for name, _ in request.query_params.multi_items() if name != "state"]
    check_names(names, names)  # pydantic would take the last of two
    page = service.jobs.index.page(query.filter_for(caller.only), query.limit, query.cursor)
    listed = JobList(jobs=[summary_of(job) for job in page.jobs], next=page.next)
    headers = {"Cache-Control": "no-store"}
    if page.next is not None:
        headers["Link"] = query.link_to(page.next, service.root)
    return JSONResponse(listed.model_dump(mode="json"), headers=headers)
