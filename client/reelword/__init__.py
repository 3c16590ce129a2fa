"""Client of a Reelword service, for programs: ``Client`` blocks, ``AsyncClient`` is awaited.

from reelword import Client

with Client("http://127.0.0.1:8000") as client:
    job = client.caption("clip.mp4")
    print(job.caption)
"""

from reelword.async_client import AsyncClient
from reelword.calls import Options
from reelword.client import Client
from reelword.documents import (
    Attention,
    Batch,
    Captioner,
    Delivery,
    Event,
    Fault,
    FoundMoment,
    Job,
    JobPage,
    JobSummary,
    Media,
    Models,
    Note,
    ScoredCaption,
    ScoredWord,
    Segment,
)
from reelword.errors import ClientError, JobFailed, NotFinished, Refused, Unreachable

__all__ = [
    "AsyncClient",
    "Attention",
    "Batch",
    "Captioner",
    "Client",
    "ClientError",
    "Delivery",
    "Event",
    "Fault",
    "FoundMoment",
    "Job",
    "JobFailed",
    "JobPage",
    "JobSummary",
    "Media",
    "Models",
    "NotFinished",
    "Note",
    "Options",
    "Refused",
    "ScoredCaption",
    "ScoredWord",
    "Segment",
    "Unreachable",
]
