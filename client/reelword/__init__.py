"""Client of a Reelword service, for programs: ``Client`` blocks, ``AsyncClient`` is awaited.

from reelword import Client

with Client() as client:
    job = client.caption("clip.mp4")
    for word in job.words:
        print(word.text, word.start, word.end, word.box)
"""

from reelword.async_client import AsyncClient
from reelword.async_job import AsyncJob
from reelword.calls import Filters, Options
from reelword.client import Client
from reelword.documents import (
    Access,
    Attention,
    Batch,
    Captioner,
    Delivery,
    Event,
    Fault,
    FoundMoment,
    JobDocument,
    JobPage,
    JobSummary,
    KeptVerdict,
    Label,
    Media,
    Models,
    Note,
    ScoredCaption,
    ScoredWord,
    Segment,
    TestedWebhook,
    WebhookMessage,
    Word,
)
from reelword.errors import (
    ClientError,
    Invalid,
    JobFailed,
    NotAllowed,
    NotFinished,
    NotFound,
    RateLimited,
    Refused,
    TooLarge,
    Unreachable,
)
from reelword.job import Job
from reelword.webhooks import verify_webhook

__all__ = [
    "Access",
    "AsyncClient",
    "AsyncJob",
    "Attention",
    "Batch",
    "Captioner",
    "Client",
    "ClientError",
    "Delivery",
    "Event",
    "Fault",
    "Filters",
    "FoundMoment",
    "Invalid",
    "Job",
    "JobDocument",
    "JobFailed",
    "JobPage",
    "JobSummary",
    "KeptVerdict",
    "Label",
    "Media",
    "Models",
    "NotAllowed",
    "NotFinished",
    "NotFound",
    "Note",
    "Options",
    "RateLimited",
    "Refused",
    "ScoredCaption",
    "ScoredWord",
    "Segment",
    "TestedWebhook",
    "TooLarge",
    "Unreachable",
    "WebhookMessage",
    "Word",
    "verify_webhook",
]
