"""The captioners that are loaded, alone or combined, and what each is fed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import structlog

from app.advertisement import CaptionerInfo
from app.default_captioner import default_captioner
from app.errors import EngineStartFailed, MembersDiffer
from app.installed import combined, described, digest_of
from app.menu import Choice, Menu
from app.options import ENSEMBLE, FUSION
from app.settings import Settings
from extractors.digests import sha256_of
from extractors.request import DecodeRequest
from models.checkpoint import Card, Checkpoint, load_embedding
from models.feed import Feed, JointFeed, Pool, feed_of
from models.semantic_embedding import SemanticEmbedding
from models.service import (
    StreamMismatch,
    available,
    check_extractors,
    embedding_path,
    load_captioner,
    stream_set_for,
    stream_set_of,
)
from models.stream_sets import StreamSet
from models.writers import Alone, AveragedWriter, FusedWriter, VocabulariesDiffer, Writer

log = structlog.get_logger(__name__)


class Roster:
    """Raises EngineStartFailed where there is no captioner, none that takes the stream set that was asked
    for, or not the one that is to be the default; and what loading a damaged one raises."""

    def __init__(self, settings: Settings, device: str) -> None:
        folder = settings.weights
        self._pool = Pool(device, threads=settings.threads, cache=settings.data / "cache")
        self._frames = settings.frames
        loaded = {name: load_captioner(name, device, folder) for name in available(folder)}
        if not loaded:
            raise EngineStartFailed(f"There is no captioner in {folder}.")
        self._meals = meals(loaded, settings.streams)
        self.checkpoints = {name: loaded[name] for name in self._meals}
        self._feeds: dict[frozenset[StreamSet], Feed | JointFeed] = {}
        self._writers: dict[Choice, Writer] = {}
        for name, checkpoint in self.checkpoints.items():
            check_extractors(checkpoint, self._meals[name], self.feed(Choice(name)).extractors)
        path = embedding_path(folder)
        self._embedding = None if path is None else load_embedding(path, device)
        self._embedding_sha256 = "" if path is None else sha256_of(path)
        self.infos = self._described(folder)
        self.menu = Menu(self.infos, settings.captioner or default_captioner(self.infos))
        if self.menu.default not in self.menu.names:
            known = ", ".join(self.menu.names)
            raise EngineStartFailed(
                f"REELWORD_CAPTIONER is {self.menu.default}, and there are only: {known}."
            )

    def writer(self, choice: Choice) -> Writer:
        """Raises MembersDiffer."""
        if choice not in self._writers:
            try:
                writer = self._made(choice)
                _ = writer.streams
            except (VocabulariesDiffer, StreamMismatch) as error:
                raise MembersDiffer(f"These captioners cannot write together: {error}.") from error
            self._writers[choice] = writer
        return self._writers[choice]

    def feed(self, choice: Choice) -> Feed | JointFeed:
        """Each extractor that the writers need, once. Raises MembersDiffer."""
        wanted = [self._meals[name] for name in choice.writers]
        if choice.captioner == FUSION:
            wanted.append(stream_set_for(self._embedding_of_fusion()[1]))
        key = frozenset(wanted)
        if key not in self._feeds:
            try:
                self._feeds[key] = feed_of(list(dict.fromkeys(wanted)), self._pool, self._frames)
            except ValueError as error:
                raise MembersDiffer(f"These captioners cannot be fed together: {error}.") from error
        return self._feeds[key]

    def requests(self) -> Mapping[str, DecodeRequest]:
        """Captioner → the frames that its extractors want; members' come beside them."""
        found = {name: self.feed(Choice(name)).request for name in self.checkpoints}
        if self._embedding is not None:
            found[FUSION] = feed_of([stream_set_for(self._embedding[1])], self._pool, self._frames).request
        return found

    def digest(self, choice: Choice) -> str:
        """The sha256 of the writer's file; of several, one for all of them."""
        infos = {info.name: info for info in self.infos}
        if not choice.members:
            return infos[choice.captioner].weights_sha256
        own = self._embedding_sha256 if choice.captioner == FUSION else ""
        return digest_of([own, *(infos[name].weights_sha256 for name in choice.members)])

    def _made(self, choice: Choice) -> Writer:
        members = {name: self.checkpoints[name] for name in choice.writers}
        if choice.captioner == FUSION:
            return FusedWriter(members, *self._embedding_of_fusion())
        if choice.captioner == ENSEMBLE:
            return AveragedWriter(members)
        return Alone(members[choice.captioner])

    def _embedding_of_fusion(self) -> tuple[SemanticEmbedding, Card]:
        assert self._embedding is not None, "the menu has no fusion without an embedding"
        return self._embedding

    def _described(self, folder: Path) -> tuple[CaptionerInfo, ...]:
        files = available(folder)
        alone = [described(name, files[name], self._frames) for name in self.checkpoints]
        return (*alone, *combined(alone, embedding_path(folder)))


def meals(checkpoints: Mapping[str, Checkpoint], streams: str | None) -> dict[str, StreamSet]:
    """Captioner → the part of its stream set that it eats; of a set that was asked for by name, captioners
    that eat something else are left out. Raises EngineStartFailed where that leaves none."""
    found, refused = {}, []
    for name, checkpoint in checkpoints.items():
        try:
            found[name] = stream_set_of(checkpoint, streams)
        except StreamMismatch as error:
            if streams is None:
                raise
            refused.append(f"{name}: {error}")
            log.warning("captioner left out", captioner=name, why=str(error))
    if not found:
        raise EngineStartFailed(f"No captioner takes the stream set {streams} ({'; '.join(refused)}).")
    return found
