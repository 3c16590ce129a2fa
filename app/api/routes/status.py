"""Reports how the service is: what it can do, whether it lives, whether it can work, and its numbers."""

import gzip
from contextlib import suppress
from typing import Any, Self

import structlog
from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from app.api import metrics, problems, refusals
from app.api.dependencies import ServiceDep
from app.api.etags import answer_compressed
from app.errors import QueueError
from app.jobs.captioner_info import CaptionerInfo
from app.jobs.options import form_schema
from app.operations.service_figures import ServiceFigures, read_figures
from app.operations.service_health import examine_service

log = structlog.get_logger(__name__)
router = APIRouter(tags=["status"])


class CaptionerDocument(CaptionerInfo, json_schema_serialization_defaults_required=True):
    """A captioner that some live worker has loaded; null stands for what it has nothing of."""

    members: list[str] | None = Field(description="Of fusion and ensemble: those by default.")  # type: ignore[assignment]
    vocabulary: str | None = Field(description="A digest: members of an ensemble must share it.")  # type: ignore[assignment]
    source: str | None = Field(description="Of a pretrained one: the hub's id and revision, or a folder.")  # type: ignore[assignment]
    licence: str | None = Field(description="Of a pretrained one: the terms that its card names.")  # type: ignore[assignment]
    member_of: list[str] = Field(description="Combinations that it may be named as a member of.")
    workers: int = Field(description="Live workers that have it.")

    @classmethod
    def of(cls, info: CaptionerInfo, workers: int) -> Self:
        names = ("members", "vocabulary", "source", "licence")
        nullable = {name: getattr(info, name) or None for name in names}
        facts = {**info.model_dump(), **nullable, "member_of": info.joins, "workers": workers}
        return cls.model_validate(facts)


class ModelsDocument(BaseModel):
    captioners: list[CaptionerDocument]
    default: str | None = Field(description="Who writes where a job names no captioner.")
    options: dict[str, Any] = Field(description="JSON Schema of each form field of POST /caption.")


class Alive(BaseModel):
    status: str = "alive"


class Ready(BaseModel):
    status: str = "ready"
    workers: int = Field(description="Live workers with loaded models.")
    warnings: list[problems.Cause] = Field(description="What may cost the service later.")


@router.get("/models", response_model=ModelsDocument)
def list_models(request: Request, service: ServiceDep) -> Response:
    """Lists the captioners that live workers have, and the options they take."""
    workers = service.registry.workers()
    names = [info.name for worker in workers for info in worker.captioners]
    captioners = [
        CaptionerDocument.of(info, names.count(name))
        for name, info in sorted(service.registry.captioners().items())
    ]
    document = ModelsDocument(
        captioners=captioners, default=service.registry.captioner_choices().default, options=form_schema()
    )
    data = gzip.compress(document.model_dump_json().encode(), 5, mtime=0)
    return answer_compressed(request, data, "application/json", {"Cache-Control": "no-cache"})


@router.get("/livez")
async def check_live() -> Alive:
    """Reports that this process answers.

    Reports nothing of Redis or workers: restarting the API would not help them.
    """
    return Alive()


@router.get("/readyz", responses=problems.openapi_responses(refusals.NotReady))
def check_ready(service: ServiceDep) -> Ready:
    """Reports whether jobs can be taken and run, and if not what is wrong with Redis or the workers."""
    health = examine_service(service.jobs.server, service.registry)
    if health.blocking:
        log.warning("not ready", causes=[f"{trouble.code}: {trouble.advice}" for trouble in health.blocking])
        raise refusals.NotReady(causes=health.blocking)
    return Ready(
        workers=health.ready, warnings=[problems.Cause.model_validate(each) for each in health.warnings]
    )


@router.get("/metrics", response_class=Response)
def get_metrics(service: ServiceDep) -> Response:
    """Reports all numbers in Prometheus's text format."""
    figures: ServiceFigures | None = None
    with suppress(QueueError):
        figures = read_figures(service.jobs.server, service.jobs.keys, service.registry)
    return Response(service.metrics.exposition(figures), media_type=metrics.MEDIA_TYPE)
