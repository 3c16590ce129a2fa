"""The papers' ablations on drawn shapes: rows are trained, read, scored, kept and put into a table."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from extractors.features import StreamSpec
from lab.__main__ import lab
from lab.ablations import runner
from lab.ablations.paper_rows import list_commands
from lab.ablations.rows import FAMILIES, SEEDS, UnknownRow, list_jobs
from lab.ablations.runner import AblationRunner, NotThere, RowResult, build_recipe, load_results
from lab.ablations.tables import compare_rows, format_table
from lab.pictures import picture_inputs
from lab.pictures.picture_batches import CachedNetwork
from lab.pictures.picture_features import VIEWS
from models.captioners.registry import find_captioner
from tests.training.tiny_corpus import Averages, write_corpus
from training.optimization.run_folder import RunSettings
from training.recipes.paper_recipes import list_paper_runs

HELD_OUT, CHOOSING = 8, 3
#: Of each family what is trained, and what reads it afterwards.
ROWS = (
    ("stats", "stats-lstm"),
    ("g2l", "g2l-global"),
    ("refocus", "refocus-step-1", "refocus-plain"),
    ("fusion-vanilla", "fusion-spatial"),
    ("dual-afr-hard", "dual-afr-layer-3"),
)


class DemoStreams(Averages):
    """A cell's eight numbers, repeated up to the width of the image net's map or of one of its stages."""

    spec = StreamSpec("demo shapes", hashlib.sha256(b"demo shapes").hexdigest(), "none")
    shapes: Mapping[str, tuple[int, int]] = {"grid": (49, 1280), "stage_14": (196, 120), "stage_7": (49, 352)}

    def of_pictures(self, pictures: NDArray[np.uint8]) -> dict[str, NDArray[np.float16]]:
        cells = super().of_pictures(pictures)["grid"]
        finer = cells.reshape(-1, 7, 7, 8).repeat(2, axis=1).repeat(2, axis=2).reshape(-1, 196, 8)
        by_count = {49: cells, 196: finer}
        return {n: np.tile(by_count[count], (1, 1, width // 8)) for n, (count, width) in self.shapes.items()}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shapes")
    archive, captions = write_corpus(folder, 24)
    archive.rename(folder / "flickr8k_train.tar")
    captions.rename(folder / "flickr8k_captions.json")
    return folder


@pytest.fixture
def runs(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AblationRunner:
    numbers = {"videos": 3, "captions": 2, "lengths": (0.0, 0.0, 1.0), "held_out": HELD_OUT}
    monkeypatch.setattr(runner, "RECIPE", runner.RECIPE.model_copy(update=numbers))
    monkeypatch.setattr(runner, "CHOOSING", CHOOSING)
    network = CachedNetwork(DemoStreams(), VIEWS)
    makers = dict.fromkeys(picture_inputs.PICTURE_NETWORKS, lambda _: network)
    monkeypatch.setattr(picture_inputs, "PICTURE_NETWORKS", makers)
    settings = RunSettings(tmp_path / "out", data / "cache", print, threads=1)
    return AblationRunner(data, settings, steps=4, judged=4, weights=tmp_path)


def run(runs: AblationRunner, name: str) -> RowResult:
    [job, *_] = [job for job in list_jobs(names=(name,)) if job.row.name == name]
    result = runs.run(job)
    assert load_results(runs.settings.out, [job]) == {name: [result]}
    return result


@pytest.mark.parametrize("names", ROWS)
def test_rows_are_trained_read_scored_and_kept(names: tuple[str, ...], runs: AblationRunner) -> None:
    for name in names:
        result = run(runs, name)
        assert result.steps == (None if name == "refocus-step-1" else 4)
        assert result.parameters > 100_000
        assert {key: len(scores) for key, scores in result.scores.items()} == {"stills": 4, "shots": 4}
        assert all(score >= 0 for scores in result.scores.values() for score in scores)


def test_a_shipped_captioner_is_read_with_another_config(runs: AblationRunner, tmp_path: Path) -> None:
    with pytest.raises(NotThere, match=r"g2l\.safetensors, which is not there"):
        run(runs, "g2l-demo")
    trained = run(runs, "g2l")
    shutil.copy(runs.settings.out / f"g2l-{SEEDS[0]}" / "best.safetensors", tmp_path / "g2l.safetensors")
    read = run(runs, "g2l-demo")
    assert (read.scores, read.parameters) == (trained.scores, trained.parameters)
    assert run(runs, "g2l-demo-mask-l-100").scores.keys() == {"shots"}


def test_steps_are_shared_by_the_phases_of_a_row() -> None:
    jobs = {job.row.name: job for job in list_jobs(only="refocus")}
    both = build_recipe(jobs["refocus"], 300)
    assert (both.steps, both.phases, both.corpus) == (0, {"first_step": 75, "combined": 225}, 1200)
    assert build_recipe(jobs["refocus-plain"], 8).warmup == 1


def test_every_row_builds_and_names_what_it_is_compared_with() -> None:
    for family in FAMILIES.values():
        names = {row.name for row in family.rows}
        for row in family.rows:
            assert row.against is None or row.against in names
            assert bool(row.trains) != bool(row.reads)
            config = find_captioner(row.trains or row.reads.partition("-")[0]).make_demo_config()
            assert row.changes.keys() <= type(config).model_fields.keys()


def test_headline_rows_come_first_and_what_is_read_comes_too() -> None:
    jobs = list_jobs()
    assert [job.seed for job in jobs] == sorted(job.seed for job in jobs)
    assert {job.row.headline for job in jobs[:10]} == {True}
    assert [job.name for job in list_jobs(names=("refocus-step-1",))][-1] == "refocus-2022"
    with pytest.raises(UnknownRow, match="no row is called 'blip'"):
        list_jobs(names=("blip",))
    with pytest.raises(UnknownRow, match="no family is called 'blip'"):
        list_jobs("blip")


def test_rows_are_compared_over_the_seeds_that_both_have() -> None:
    def result(seed: int, *scores: float) -> RowResult:
        return RowResult(seed=seed, steps=300, parameters=1, seconds=1.0, scores={"stills": scores})

    reference, row = [result(1, 10.0, 30.0), result(2, 20.0, 40.0)], [result(1, 15.0, 35.0)]
    comparison = compare_rows(row, reference, "stills")
    assert comparison is not None
    assert (comparison.difference, comparison.interval, comparison.n) == (5.0, (5.0, 5.0), 2)
    assert compare_rows(row, [replace_seed(each) for each in reference], "stills") is None
    table = format_table({"stats": reference, "stats-st": row})
    assert "| 300 | 25.0; 20.0 to 30.0 by 2 seeds |  |  |  | Table 1: CIDEr 80.2" in table
    assert "| 300 | 25.0 |  | +5.0 (+5.0 to +5.0) |  | Table 1: 74.2" in table


def replace_seed(result: RowResult) -> RowResult:
    return result.model_copy(update={"seed": result.seed + 10})


def test_the_command_runs_what_is_not_there_yet(runs: AblationRunner, data: Path, tmp_path: Path) -> None:
    words = ["ablate", "--only", "g2l", "--rows", "g2l-global,g2l-printed", "--out", str(tmp_path / "out")]
    places = ["--data", str(data), "--cache", str(data / "cache"), "--threads", "1", "--device", "cpu"]
    first = CliRunner().invoke(lab, [*words, *places, "--steps", "2", "--judged", "3"])
    assert first.exit_code == 0, first.output
    assert "g2l-printed-2020: CIDEr-D" in first.output
    assert first.output.count("g2l-global-") == 2 * len(SEEDS)
    again = CliRunner().invoke(lab, [*words, *places])
    assert again.output == ""
    table = CliRunner().invoke(lab, [*words, "--table"])
    assert "global alone" in table.output
    refused = CliRunner().invoke(lab, ["ablate", "--rows", "g2l-global", "--out", str(tmp_path / "new")])
    assert "where are the pictures" in refused.output


def test_the_papers_rows_are_listed_with_their_commands() -> None:
    lines = list(list_commands())
    place = lines.index("# stats, MSVD. Table 1: ST alone")
    assert lines[place + 1 : place + 3] == [
        "reelword train stats --recipe paper-msvd-st --data MSVD --out runs/paper-msvd-st-stats",
        "reelword evaluate runs/paper-msvd-st-stats/best.safetensors --data MSVD --data-set msvd "
        "--paper stats --split test",
    ]
    assert len(lines) == 3 * sum(bool(run.row) for run in list_paper_runs().values())
