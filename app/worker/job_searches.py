"""Answers searches over jobs between a worker's batches: its engine has the embedding that they need.

Vectors of captions are kept in memory, so that a second search embeds its own words alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import structlog
from numpy.typing import NDArray

from app.documents.search import FoundMoment, FoundMoments
from app.jobs.blobs import Blobs
from app.jobs.job_store import Jobs
from app.search.jobs import moments_of_jobs, search_jobs
from app.search.searches import Search, Searches
from app.worker.engine.process import EngineDied, EngineProcess, EngineRaised
from extractors.features import Frames

MOST_JOBS = 2000  #: that one search looks at, the newest
MOST_SENTENCES = 20_000  #: whose vectors are kept; all are dropped beyond
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class EngineSpace:
    """Embeds pictures and sentences by a worker's engine, which has been started."""

    engine: EngineProcess
    _vectors: dict[str, NDArray[np.float32]] = field(default_factory=dict)

    def pictures(self, pictures: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """Embeds pictures, uint8 (H, W, 3) each → (N, D)."""
        vectors = self.engine.embed([Frames.of_picture(each) for each in pictures], [])
        assert vectors is not None
        return vectors.pictures

    def sentences(self, sentences: Sequence[str]) -> NDArray[np.float32]:
        """Embeds sentences → (N, D)."""
        has_embedding = self.learn(sentences)
        assert has_embedding
        return np.stack([self._vectors[text] for text in sentences])

    def learn(self, sentences: Sequence[str]) -> bool:
        """Embeds the sentences that are new, and returns whether the engine's weights have an embedding."""
        if len(self._vectors) > MOST_SENTENCES:
            self._vectors.clear()
        new = list(dict.fromkeys(text for text in sentences if text not in self._vectors))
        vectors = self.engine.embed([], new) if new else None
        if vectors is not None:
            self._vectors.update(zip(new, vectors.sentences, strict=True))
        return not new or vectors is not None


class JobSearches:
    """Answers one search at a time.

    Args:
        searches: where they wait.
        jobs: the records.
        blobs: the results.
        engine: embeds; where its weights have no embedding words alone are compared.
    """

    def __init__(self, searches: Searches, jobs: Jobs, blobs: Blobs, engine: EngineProcess) -> None:
        self._searches, self._jobs, self._blobs, self._engine = searches, jobs, blobs, engine
        self._space = EngineSpace(engine)

    def answer_next(self) -> None:
        """Answers the search that has waited longest, if one waits and the engine can embed."""
        if not self._engine.is_ready:
            return
        search = self._searches.take()
        if search is not None:
            ranked = self._search(search)
            self._searches.answer(search, FoundMoments(moments=ranked).model_dump_json())

    def _search(self, search: Search) -> list[FoundMoment]:
        moments = list(moments_of_jobs(self._jobs, self._blobs, search.owner, MOST_JOBS, search.jobs))
        try:
            space = self._space if moments and self._space.learn([search.words]) else None
            ranked = search_jobs(search.words, moments, space, search.count)
        except (EngineDied, EngineRaised) as error:
            log.warning("a search compares words alone", reason=str(error))
            ranked = search_jobs(search.words, moments, None, search.count)
        return [each.document(search.root) for each in ranked]
