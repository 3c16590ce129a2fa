"""Takes a job's features from the cache, so that its video is not opened, and puts those of others there.

What decides is known before anything is read: the digest of the file, which the API has computed while it
arrived, and what the engine says of the streams that feed the job's captioner. A film that is cut into
segments, and a captioner that looks at frames itself, are read from the file each time.
"""

import math
from dataclasses import replace

import structlog

from app.documents.job import Media, Timings
from app.feature_cache.feature_cache import FeatureCache, KeptFeatures
from app.jobs.blobs import Blobs
from app.jobs.job import Job, JobLimits
from app.jobs.options import CaptionOptions
from app.pipeline.engine_protocol import EngineAnswer, EngineInfo
from app.settings import Settings
from app.worker.attempt import Attempt, Clip
from extractors.files import sha256_of
from extractors.shots.segment import LONG_FILM

log = structlog.get_logger(__name__)


class FeatureReuse:
    """Finds and keeps the features of a worker's jobs."""

    def __init__(self, settings: Settings, blobs: Blobs) -> None:
        self._cache, self._blobs, self._decoder = FeatureCache(settings, blobs), blobs, settings.decoder

    def key_of(self, job: Job, options: CaptionOptions, engine: EngineInfo) -> tuple[str, str] | None:
        """Names a video's features by its digest and all else; None for none. Raises BlobMissingError.

        Its owner is part of it: else a key would learn by its job's timings that another has sent the file.

        Args:
            options: the job's, with who writes filled in.
        """
        basis = engine.feature_basis(options) if self._cache.is_on else None
        if basis is None:
            return None
        sha256 = job.submission.sha256 or self._digest(job)
        owner = job.submission.owner or ""
        return None if sha256 is None else (sha256, f"{owner}\n{self._decoder}\n{basis}")

    def find(self, job: Job, options: CaptionOptions, key: tuple[str, str]) -> KeptFeatures | None:
        """Finds what a job can be captioned from as it is; None where its file has to be read.

        Args:
            key: of ``key_of``.
        """
        features = self._cache.find(*key)
        if features is None or not _fits(job, options, features):
            return None
        log.info("features found in the cache", job=job.id)
        facts = features.facts.model_copy(update={"timings": Timings(decode=0.0)})
        return replace(features, facts=facts)

    def distrust(self, attempt: Attempt) -> None:
        """Forgets the features that an attempt failed with, so that the next one reads the file."""
        clip = attempt.contents
        if isinstance(clip, Clip) and clip.is_cached and clip.feature_key is not None:
            self._cache.forget(clip.feature_key[0])
            attempt.contents = None

    def keep(self, clip: Clip, answer: EngineAnswer) -> None:
        """Keeps what an answer was written from, where it has the packed streams."""
        if clip.feature_key is not None and answer.packed_streams is not None:
            facts = clip.facts.model_copy(update={"timings": None})
            self._cache.keep(*clip.feature_key, KeptFeatures(facts, clip.stills, answer.packed_streams))

    def _digest(self, job: Job) -> str | None:
        """Reads the file, where it lies on a disk: from an object store it would come twice."""
        if not self._blobs.is_local:
            return None
        with self._blobs.local(job.upload) as path:
            return sha256_of(path)


def _fits(job: Job, options: CaptionOptions, features: KeptFeatures) -> bool:
    """Returns whether a job may be answered from what is kept: of a clip, or a film that is not to be cut.

    What the limits of its sender's key refuse is left to the decoder, which says why.
    """
    allowed, media = job.submission.limits or JobLimits(), features.facts.media or Media()
    is_allowed = features.duration <= (allowed.seconds or math.inf)
    pixels = (media.width or 0) * (media.height or 0)
    if not is_allowed or pixels > (allowed.pixels or math.inf):
        return False
    return options.segments == "none" or features.duration < LONG_FILM
