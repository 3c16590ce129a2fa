"""Answers what people say of captions: kept with each job, and exported for judging and for training."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.responses import Response

from app.api import problems, refusals
from app.api.accepting.repeated_request import IdempotencyKey
from app.api.dependencies import CallerDep, ServiceDep
from app.api.routes.jobs import JobId, find, how_it_ended
from app.documents.verdict import NewVerdict, Verdict, keep_verdict, verdicts_of
from app.jobs.job_index import JobFilter

LINES = "application/x-ndjson"

router = APIRouter(tags=["jobs"])
Shape = Annotated[
    Literal["lines", "captions"],
    Query(description="`captions`: what people hold for right, as `captions.json` of a folder for training."),
]


@router.post(
    "/jobs/{job_id}/verdicts",
    status_code=201,
    response_model=Verdict,
    responses=problems.openapi_responses(
        refusals.UnknownJob, refusals.JobNotFinished, refusals.IdempotencyMismatch
    ),
)
def add_verdict(
    job_id: JobId,
    judgement: NewVerdict,
    service: ServiceDep,
    caller: CallerDep,
    idempotency_key: IdempotencyKey = None,
) -> Verdict:
    """Keeps what a person says of the job's caption: right, partly or wrong, and what it should be."""
    job = find(service, job_id, caller)
    if job.state != "succeeded":
        raise refusals.JobNotFinished(f"The job has {how_it_ended(job)}: there is no caption to judge.")
    verdict = keep_verdict(job, judgement, service.blobs, idempotency_key)
    if (verdict.verdict, verdict.correction) != (judgement.verdict, judgement.correction):
        raise refusals.IdempotencyMismatch("The first request with this key had another verdict.")
    return verdict


@router.get(
    "/verdicts",
    response_class=Response,
    responses={200: {"content": {LINES: {}, "application/json": {}}, "description": "All that was said."}},
)
def list_verdicts(service: ServiceDep, caller: CallerDep, shape: Shape = "lines") -> Response:
    """Lists what was said of all captions that the caller may see, a JSON object a line, for `lab judge`; or
    as a list of files with their right captions, which `train` reads.
    """
    succeeded = service.jobs.index.all(JobFilter(states=["succeeded"], owner=caller.only))
    verdicts = (verdict for job in succeeded for verdict in verdicts_of(job, service.blobs))
    if shape == "lines":
        return StreamingResponse((f"{each.model_dump_json()}\n" for each in verdicts), media_type=LINES)
    pairs = ((each.file, each.true_caption) for each in verdicts)
    return JSONResponse([{"file": file, "caption": text} for file, text in pairs if text])
