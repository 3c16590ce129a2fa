"""Lists the captioners in a folder of weights by their files alone, building no network."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.jobs.captioner_choice import CaptionerChoices, default_captioner
from app.jobs.captioner_info import CaptionerInfo, SpeedInfo
from app.jobs.options import COMBINATIONS, ENSEMBLE, FUSION
from app.settings import Settings
from extractors.extractor import list_weights
from extractors.files import digest_of, sha256_of
from extractors.pretrained.manifest import find_candidates
from extractors.pretrained.weights_folder import WeightsFolder
from models import checkpoint
from models.captioners.registry import find_captioner
from models.combining.members import choose_members
from models.feature_sources.stream_checks import describe_sampling, list_extractors
from models.pretrained.installed import PROMPTED, InstalledCaptioners, PretrainedCard
from models.video_category import list_extracted

#: A line about each family of pretrained captioners.
FAMILIES_ABOUT: Mapping[str, str] = {
    "git": "GIT: a transformer that reads image tokens of a few frames and writes behind them",
    "blip": "BLIP: a text decoder that attends across to the image tokens of the frames",
    "vision_encoder_decoder": "Vision encoder-decoder: a language model that attends across to image tokens",
    "video_language": "Video-language model: a chat model that is shown frames with their times",
}
#: A line about each combination, and one in a visitor's words.
COMBINATIONS_ABOUT: Mapping[str, tuple[str, str]] = {
    FUSION: (
        "Fusion: members write, and the caption that fits the video best wins",
        "Several captioners write, and the caption that fits the film best wins.",
    ),
    ENSEMBLE: (
        "Ensemble: members agree on every word by the mean of their probabilities",
        "Several captioners agree on each word.",
    ),
}


def captioner_choices(settings: Settings) -> CaptionerChoices:
    """Lists what may be chosen. Raises CheckpointError, FilesDiffer."""
    names = settings.captioners
    pretrained = [info for info in pretrained_infos(settings) if not names or info.name in names]
    infos = [*captioner_infos(settings.weights, names), *pretrained]
    return CaptionerChoices(infos, default_here(infos, settings))


def default_here(infos: Sequence[CaptionerInfo], settings: Settings) -> str | None:
    """Finds who writes where nothing names a captioner: of those whose networks have their weights here."""
    if settings.captioner:
        return settings.captioner
    fed = [info for info in infos if not find_missing_weights(info.extractors, settings.data)]
    return default_captioner(fed or infos)


def find_missing_weights(extractors: Iterable[str], data: Path) -> list[str]:
    """Names the weights of weights/manifest.toml that the extractors want and that are not here."""
    folder = WeightsFolder.of(data)
    names = dict.fromkeys(name for extractor in extractors for name in list_weights(extractor))
    return [
        name
        for name in names
        if not any(folder.locate(entry) for entry in find_candidates(name, folder.manifest))
    ]


def pretrained_captioners(settings: Settings) -> InstalledCaptioners:
    """Returns the folder of pretrained captioners; none of them is called as another captioner is."""
    checkpoints = (file.stem for file in settings.weights.glob("*.safetensors"))
    reserved = frozenset([*checkpoints, *COMBINATIONS])
    return InstalledCaptioners(settings.data / "captioners", reserved, settings.weights)


def pretrained_infos(settings: Settings) -> list[CaptionerInfo]:
    """Returns each pretrained captioner, as its card describes it. Raises FilesDiffer."""
    return [pretrained_info(card) for card in pretrained_captioners(settings).list()]


def pretrained_info(card: PretrainedCard) -> CaptionerInfo:
    """Describes a pretrained captioner by its card."""
    revision = "" if card.revision is None else f"@{card.revision}"
    return CaptionerInfo(
        name=card.name,
        weights_sha256=card.weights_sha256,
        kind=card.facts.family,
        about=FAMILIES_ABOUT[card.facts.family],
        features={},
        parameters=card.facts.parameters,
        scores=dict(card.scores),
        speed=None if card.speed is None else _speed(checkpoint.Speed(**card.speed.model_dump())),
        source=f"{card.source}{revision}",
        licence=card.facts.licence,
        memory=card.facts.memory,
        takes_prompt=card.facts.family in PROMPTED,
    )


def captioner_infos(weights: Path, wanted: Collection[str] = ()) -> list[CaptionerInfo]:
    """Describes each captioner, and fusion and ensemble of them where there is something to combine.

    wanted: names of those that are loaded, all of them where none is named. Raises CheckpointError.
    """
    files = checkpoint.list_checkpoints(weights).items()
    alone = [captioner_info(name, path) for name, path in files if not wanted or name in wanted]
    return [*alone, *combination_infos(alone, checkpoint.find_embedding(weights))]


def captioner_info(name: str, path: Path, frames: int | None = None) -> CaptionerInfo:
    """Reads what one checkpoint's file has on its captioner. Raises CheckpointError.

    Args:
        frames: how many are looked at, where they are spread over the video.
    """
    card = checkpoint.read_card(path)
    description = find_captioner(card.captioner).description
    features = {stream: _feature_facts(card, stream, frames) for stream in list_extracted(card.streams)}
    return CaptionerInfo(
        name=name,
        weights_sha256=sha256_of(path),
        kind=card.captioner,
        about=description.about,
        plain=description.plain,
        features=features,
        extractors=list_extractors(card),
        vocabulary=checkpoint.read_vocabulary_digest(path),
        parameters=checkpoint.count_parameters(path),
        scores=dict(card.scores),
        speed=None if card.speed is None else _speed(card.speed),
        classes=getattr(checkpoint.read_config(path), "classes", 0),
    )


def combination_infos(alone: Sequence[CaptionerInfo], embedding: Path | None) -> list[CaptionerInfo]:
    """Describes fusion by the embedding, where it is there, and the ensemble, with their default members."""
    members, alike = choose_members(FUSION, alone), choose_members(ENSEMBLE, alone)
    infos = []
    if embedding is not None and members:
        scores = checkpoint.read_card(embedding).scores
        infos.append(
            _joint(FUSION, members, sha256_of(embedding), checkpoint.count_parameters(embedding), scores)
        )
    if alike:
        first = default_captioner(alike)  # an ensemble's attention is that of its first member
        infos.append(_joint(ENSEMBLE, sorted(alike, key=lambda info: info.name != first)))
    return infos


def _feature_facts(card: checkpoint.Card, stream: str, frames: int | None) -> dict[str, Any]:
    """Returns the name tag of a stream and how its frames are chosen, left out where that is not known."""
    tag, sampling = asdict(card.streams[stream]), describe_sampling(card, stream, frames)
    del tag["sampling"]
    return {**tag, "sampling": sampling} if sampling else tag


def _joint(
    name: str,
    members: Sequence[CaptionerInfo],
    own_sha256: str = "",
    own_parameters: int = 0,
    scores: Mapping[str, object] | None = None,
) -> CaptionerInfo:
    about, plain = COMBINATIONS_ABOUT[name]
    digests = [own_sha256, *(member.weights_sha256 for member in members)]
    return CaptionerInfo(
        name=name,
        weights_sha256=digest_of(digests),
        kind=name,
        about=about,
        plain=plain,
        members=tuple(member.name for member in members),
        features={stream: spec for member in members for stream, spec in member.features.items()},
        extractors=tuple(dict.fromkeys(each for member in members for each in member.extractors)),
        parameters=own_parameters + sum(member.parameters or 0 for member in members),
        scores=dict(scores or {}),
        speed=_together(members),
        classes=max((member.classes for member in members), default=0),
    )


def _speed(measured: checkpoint.Speed) -> SpeedInfo:
    return SpeedInfo(**asdict(measured), captions_per_second=round(measured.captions_per_second, 2))


def _together(members: Sequence[CaptionerInfo]) -> SpeedInfo | None:
    """Adds up features once, then one member after the other; None where one of them was not measured."""
    speeds = [member.speed for member in members if member.speed is not None]
    if len(speeds) < len(members):
        return None
    features = max(speed.feature_seconds for speed in speeds)
    captions = sum(speed.caption_seconds for speed in speeds)
    return _speed(checkpoint.Speed(features, round(captions, 4), speeds[0].machine))
