"""Answers ``GET /search``: the moments of a caller's films that fit some words best."""

import time
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import StringConstraints

from app.api import problems, refusals
from app.api.dependencies import CallerDep, ServiceDep
from app.documents.search import FoundMoments
from app.search.searches import Search, Searches

MOST, USUAL = 100, 12  #: moments of an answer; jobs that may be named
PATIENCE = 20.0  #: seconds until a worker has answered
LONGEST = 300  #: characters of what is looked for

router = APIRouter(tags=["jobs"])
Words = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=LONGEST),
    Query(description="What is looked for, as a caption would say it.", examples=["a dog in the snow"]),
]
JobId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
Ids = Annotated[
    list[JobId],
    Query(default_factory=list, max_length=MOST, description="Jobs that alone are searched; none for all."),
]
Limit = Annotated[int, Query(ge=1, le=MOST, description="Moments at most.")]


@router.get(
    "/search", response_model=FoundMoments, responses=problems.openapi_responses(refusals.SearchUnanswered)
)
def search_moments(
    q: Words, service: ServiceDep, caller: CallerDep, job: Ids, limit: Limit = USUAL
) -> Response:
    """Finds the moments of jobs that fit some words best: by their captions' words, and by what captions and
    pictures mean. With a key that is no administrator's, the jobs of that key alone are searched.
    """
    if not service.registry.is_ready():
        raise refusals.SearchUnanswered("No worker is ready.")
    until = time.time() + PATIENCE
    search = Search(words=q, count=limit, owner=caller.only, jobs=job or None, until=until, root=service.root)
    answer = Searches(service.jobs.server, service.jobs.keys).ask(search)
    if answer is None:
        raise refusals.SearchUnanswered("No worker has answered in time.")
    return Response(answer, media_type="application/json", headers={"Cache-Control": "no-store"})
