"""Describes the API as OpenAPI 3.1: what FastAPI finds of the routes, and what it cannot know of them."""

import re
import tomllib
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from app.api.guards.access import COOKIE
from app.api.problems import Problem
from app.api.receiving.option_body import JSON
from app.documents.deliveries import EVENTS, ToldJob, WebhookMessage
from app.documents.job import Accepted, JobDocument

WORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
#: How a request carries its key.
SECURITY = {
    "key": {"type": "http", "scheme": "bearer"},
    "session": {"type": "apiKey", "in": "cookie", "name": COOKIE},
}
#: Where the first sentence of a description ends, as far as it is a summary.
CLAUSE_END = re.compile(r"[.:;](?:\s|$)")
SCHEMAS = "#/components/schemas/"


def describe_api(app: FastAPI) -> dict[str, Any]:
    """Describes the API as FastAPI does, with what no route returns by itself (problems, webhooks), with
    examples, and with how a key is sent, which may be left out where none is needed.
    """
    if app.openapi_schema:  # FastAPI keeps it, with what is added below
        return app.openapi_schema
    document = FastAPI.openapi(app)
    document["servers"] = WORDS["servers"]
    document["tags"] = [{"name": name, "description": text} for name, text in WORDS["tags"].items()]
    document["security"] = [{name: []} for name in SECURITY] + [{}]
    document["webhooks"] = {kind: _webhook(kind, text) for kind, text in EVENTS.items()}
    components = document["components"]
    components["securitySchemes"] = SECURITY
    modes: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        (Problem, "validation"), (WebhookMessage, "serialization"), (ToldJob, "serialization"),
    ]  # fmt: skip
    _, described = models_json_schema(modes, ref_template=SCHEMAS + "{model}")
    components["schemas"].update(described["$defs"])
    for example in _examples():
        components["schemas"][type(example).__name__]["examples"] = [example.model_dump(mode="json")]
    for path in document["paths"].values():
        for operation in path.values():
            operation["summary"] = CLAUSE_END.split(operation["description"].replace("\n", " "))[0]
    post = document["paths"]["/caption"]["post"]
    post["x-codeSamples"] = [{"lang": name, "source": text} for name, text in WORDS["code"].items()]
    post["requestBody"]["content"][JSON]["example"] = {"url": "https://example.org/clip.mp4", "beam_size": 8}
    return document


def _webhook(kind: str, text: str) -> dict[str, Any]:
    """Describes the request that a webhook gets."""
    members = {"type": {"const": kind}, "data": {"$ref": f"{SCHEMAS}ToldJob"}}
    schema = {"$ref": f"{SCHEMAS}WebhookMessage", "type": "object", "properties": members}
    operation = {
        "operationId": to_camel(kind.replace(".", "_")),
        "tags": ["webhooks"],
        "summary": text,
        "description": "Sent to the `webhook` of a job, signed as Standard Webhooks has it.",
        "security": [],
        "requestBody": {"required": True, "content": {JSON: {"schema": schema}}},
        "responses": {
            "2XX": {"description": "It has come."},
            "410": {"description": "It is not sent again."},
            "default": {"description": "It is sent again later."},
        },
    }
    return {"post": operation}


def _examples() -> tuple[BaseModel, ...]:
    """Makes an example of each of the documents that are met most."""
    job = JobDocument.model_validate(WORDS["job"])
    assert job.urls is not None
    none_yet = dict.fromkeys(("attention", "attention_png", "captions_vtt"))
    accepted = Accepted(id=job.id, state="queued", urls=job.urls.model_copy(update=none_yet))
    data = ToldJob.model_validate(job.model_dump(include=set(ToldJob.model_fields))).model_dump()
    return job, accepted, WebhookMessage(type="job.succeeded", timestamp=job.ended_at, data=data)
