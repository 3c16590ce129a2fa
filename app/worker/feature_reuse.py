"""Takes a job's features from the cache, so that its video is not opened, and puts those of others there.

What decides is known before anything is read: the digest of the file, which the API has computed while it
arrived, and what the engine says of the streams that feed the job's captioner. A film that is cut into
segments, and a captioner that looks at frames itself, are read from the file each time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import structlog

from app.documents.job import Media, Timings
from app.feature_cache.feature_cache import FeatureCache
from app.feature_cache.kept_features import KeptFeatures
from app.jobs.blobs import Blobs
from app.jobs.job import Job, JobLimits
from app.pipeline.engine_protocol import EngineAnswer, EngineInfo
from app.settings import Settings
from app.worker.attempt import Attempt
from extractors.files import sha256_of
from extractors.shots.segment import LONG_FILM

log = structlog.get_logger(__name__)


class FeatureReuse:
    """Finds and keeps the features of a worker's jobs.

    Args:
        settings: of the cache, and which decoder reads videos.
        blobs: where uploads lie.
    """

    def __init__(self, settings: Settings, blobs: Blobs) -> None:
        self._cache, self._blobs, self._decoder = FeatureCache(settings, blobs), blobs, settings.decoder

    def find(self, run: Attempt, engine: EngineInfo) -> bool:
        """Looks for the features of a run whose options are filled in, and gives it what else is kept.

        Args:
            run: gets its key in the cache, and where they are found its features and facts.
            engine: that will caption it.

        Returns:
            Whether it can be captioned as it is.

        Raises:
            BlobMissingError: its file had to be read, and is not there.
        """
        run.feature_key = None if run.claim.job.submission.validate_only else self._key(run, engine)
        found = None if run.feature_key is None else self._cache.find(*run.feature_key)
        if found is None or not _fits(run, found):
            return False
        log.info("features found in the cache", job=run.claim.job.id)
        run.features = found
        run.answer = found.facts.model_copy(update={"timings": Timings(decode=0.0)})
        return True

    def distrust(self, run: Attempt) -> None:
        """Forgets the features that a run failed with, so that its next attempt reads the file."""
        if run.features is not None and run.feature_key is not None:
            self._cache.forget(run.feature_key[0])
            run.features = None

    def keep(self, run: Attempt, frames: Sequence[bytes], answer: EngineAnswer) -> None:
        """Keeps what an answer was written from.

        Args:
            run: that has been answered.
            frames: JPEG files of those that the captioner saw.
            answer: has the packed streams, where they are to be kept.
        """
        if run.feature_key is None or answer.packed_streams is None:
            return
        facts = run.answer.model_copy(update={"timings": None})
        self._cache.keep(*run.feature_key, KeptFeatures(facts, tuple(frames), answer.packed_streams))

    def _key(self, run: Attempt, engine: EngineInfo) -> tuple[str, str] | None:
        """Names the features by the file's digest and all else; None where there are none to be kept."""
        assert run.options is not None
        basis = engine.feature_basis(run.options.choice) if self._cache.is_on else None
        if basis is None:
            return None
        sha256 = run.claim.job.submission.sha256 or self._digest(run.claim.job)
        return None if sha256 is None else (sha256, f"{self._decoder}\n{basis}")

    def _digest(self, job: Job) -> str | None:
        """Reads the file, where it lies on a disk: from an object store it would come twice."""
        if not self._blobs.is_local:
            return None
        with self._blobs.local(job.upload) as path:
            return sha256_of(path)


def _fits(run: Attempt, found: KeptFeatures) -> bool:
    """Tells whether a run may be answered from what is kept: of a clip, or a film that is not to be cut.

    What the limits of its sender's key refuse is left to the decoder, which says why.
    """
    assert run.options is not None
    allowed, media = run.claim.job.submission.limits or JobLimits(), found.facts.media or Media()
    is_allowed = found.duration <= (allowed.seconds or math.inf)
    pixels = (media.width or 0) * (media.height or 0)
    if not is_allowed or pixels > (allowed.pixels or math.inf):
        return False
    return run.options.segments == "none" or found.duration < LONG_FILM
