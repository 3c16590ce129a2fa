"""Captioners on the tuned grid beside captioners on the untouched one: each is fed its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cli.service.examination import check_captioners, check_networks
from app.jobs.options import CaptionOptions
from app.pipeline.caption_files import caption_videos
from app.pipeline.engine import Engine
from app.pipeline.installed_captioners import captioner_infos
from app.settings import Settings
from extractors.catalog.tuned_pair import NETWORK, TUNED_GRID, make_spec
from extractors.files import sha256_of
from extractors.networks.efficientnet_lite import CHANNELS
from extractors.pretrained.load import find_weights
from models.feature_sources.stream_checks import StreamMismatch
from tests.app.captioners import Diet, write_all, write_captioner
from tests.extractors.tuned_network import write_tuned
from tests.media import write_video
from training.evaluation.evaluated_captioner import load_evaluated_captioner


def packaged() -> list[str]:
    """The digests of what was tuned."""
    return [find_weights(name).sha256 for name in ("efficientnet-lite2", "efficientnet-lite3")]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Diet]:
    """What a captioner of the tuned grid is fed, where the repository has tuned networks."""
    folder = tmp_path_factory.mktemp("repository")
    file = write_tuned(folder)
    spec = make_spec(sha256_of(file), *packaged())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REELWORD_MANIFEST", str(folder / "manifest.toml"))
        yield Diet("demo-tuned", TUNED_GRID, CHANNELS, spec)


@pytest.fixture(scope="module")
def settings(root: Path, tuned: Diet, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    weights = write_all(tmp_path_factory.mktemp("weights"), only=())
    write_captioner(weights, "tuned", seed=2, diet=tuned)
    return Settings(weights=weights, data=root / "data", device="cpu")


@pytest.fixture(scope="module")
def engine(settings: Settings) -> Engine:
    return Engine(settings)


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_video(tmp_path_factory.mktemp("clips") / "clip.mp4", frames=20)


@pytest.mark.parametrize(
    ("captioner", "streams"),
    [
        ("stats", {"grid"}),
        ("tuned", {TUNED_GRID}),
        ("fusion", {"grid", TUNED_GRID}),
        ("ensemble", {"grid", TUNED_GRID}),
    ],
)
def test_each_is_fed_its_own_grid(
    captioner: str, streams: set[str], settings: Settings, engine: Engine, clip: Path
) -> None:
    (outcome,) = caption_videos([clip], CaptionOptions(captioner=captioner), settings, engine)
    assert outcome.error is None
    answer = outcome.answer.as_record()
    assert answer["model"]["features"].keys() == streams
    assert len(answer["sampled"]) == 8
    assert outcome.attention is not None


def test_models_tells_what_each_looks_at(settings: Settings, tuned: Diet) -> None:
    infos = {info.name: info for info in captioner_infos(settings.weights)}
    assert infos["tuned"].extractors == ("tuned_pair",)
    told = infos["tuned"].features[TUNED_GRID]
    assert told["network"] == NETWORK == "efficientnet-lite2 and efficientnet-lite3, tuned"
    assert told["weights_sha256"] == tuned.spec.weights_sha256
    assert infos["fusion"].features.keys() == {"grid", TUNED_GRID}


def test_doctor_looks_for_the_tuned_networks(settings: Settings, tuned: Diet, tmp_path: Path) -> None:
    """All three files are needed as soon as one captioner reads their grid."""
    found = {finding.subject: finding for finding in check_networks(("tuned_pair",), settings)}
    assert found.keys() == {"image network", "network efficientnet-lite3", "network tuned_pair"}
    assert found["network tuned_pair"].found.endswith("networks/tuned_pair.safetensors")
    assert any(finding.subject == "network tuned_pair" for finding in check_captioners(settings))
    manifest = Path(shutil.copy(settings.manifest, tmp_path / "manifest.toml"))
    broken = tmp_path / "networks" / "tuned_pair.safetensors"
    broken.parent.mkdir()
    broken.write_bytes(b"another")
    elsewhere = settings.model_copy(update={"manifest": manifest, "data": tmp_path})
    (_, _, missing) = check_networks(("tuned_pair",), elsewhere)
    assert missing.found == "not found"
    assert "get the repository, or the image, again" in (missing.trouble or "")


def test_it_is_evaluated_on_its_own_grid(settings: Settings, clip: Path) -> None:
    entry = load_evaluated_captioner(str(settings.weights / "tuned.safetensors"), frames=2)
    assert [extractor.name for extractor in entry.feature_source.extractors] == ["tuned_pair"]


def test_a_captioner_of_another_tuning_is_refused(settings: Settings, tuned: Diet, tmp_path: Path) -> None:
    spec = make_spec("0" * 64, *packaged())
    write_captioner(tmp_path, diet=Diet(tuned.streams, tuned.stream, tuned.width, spec))
    with pytest.raises(StreamMismatch, match=f"was trained on {NETWORK} / 000000000000"):
        Engine(settings.model_copy(update={"weights": tmp_path}))
