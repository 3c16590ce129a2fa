"""Answers ``/jobs/{id}/events``: a job's events as they happen, as a stream of server-sent events."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from sse_starlette import EventSourceResponse

from app.api import problems, refusals
from app.api.dependencies import CallerDep, ServiceDep
from app.api.following.job_events import JobEvents
from app.api.guards.connections import STUCK_SECONDS
from app.api.routes.jobs import JOB_ID, JobId
from app.documents.events import EVENT_ID, EventId

MEDIA_TYPE = "text/event-stream"
DRAIN_SECONDS = 2.0  #: for the last events once the server is stopped
PING_SECONDS = 15  #: between two comments that keep a quiet connection open
PATTERN = f"^{EVENT_ID}$"

LastEventId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", pattern=PATTERN, description="As a browser sends it; see `after`."),
]
After = Annotated[
    str | None,
    Query(pattern=PATTERN, description="Id of the last event that is known; 0 begins with the first."),
]

router = APIRouter(prefix="/jobs/{job_id}", tags=["jobs"])


@router.get(
    "/events",
    response_class=EventSourceResponse,
    responses={
        200: {"content": {MEDIA_TYPE: {}}, "description": "Events `state`, `segment`, `end`, `lost`."},
        204: {"description": "The event named is the job's end: nothing follows, do not connect again."},
        **problems.openapi_responses(
            refusals.UnknownJob, refusals.TooManyFollowers, refusals.KeyFollowsEnough
        ),
    },
)
async def follow_job(
    request: Request,
    job_id: JobId,
    service: ServiceDep,
    caller: CallerDep,
    last_event_id: LastEventId = None,
    after: After = None,
) -> Response:
    """Sends the job's events as they happen, to its end: how it stands, each segment of a film that is done,
    and how it ended. With the id of the last known event, resumes after it.
    """
    job, last = await service.events.now(job_id) if JOB_ID.fullmatch(job_id) else (None, "")
    if job is None or not caller.sees(job):
        raise refusals.UnknownJob(f"There is no job {job_id[:64]}.")
    last_seen = last_event_id or after
    begin = EventId.parse(last_seen) if last_seen else None
    if job.is_over and begin == EventId(last):
        return Response(status_code=204)
    if "without_body" in request.scope:
        return Response(media_type=MEDIA_TYPE)
    if service.events.is_full:
        raise refusals.TooManyFollowers()
    if service.events.is_full_for(caller.owner):
        raise refusals.KeyFollowsEnough()
    stream = JobEvents(
        service.events, service.positions, service.blobs, job, last, caller.owner, begin
    ).stream()
    response = EventSourceResponse(
        stream,
        ping=PING_SECONDS,
        send_timeout=STUCK_SECONDS,
        shutdown_event=service.events.closing,
        shutdown_grace_period=DRAIN_SECONDS,
    )
    del response.headers["Connection"]  # uvicorn's to say: one of HTTP/1.0 is not kept
    return response
