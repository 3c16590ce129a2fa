"""``reelword extract`` as its users run it: real small videos, the network that ships."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from app.cli.main import cli
from app.errors import UsageError
from app.extract.extraction import format_predictions
from app.extract.inputs import InputVideo, _name_features, find_videos, name_apart
from app.extract.plan import ExtractionPlan
from app.extract.pool import extract_in_processes
from app.extract.storage import _file_system
from app.settings import Settings
from app.terminal import PROGRAM
from extractors.features import Stream, StreamSpec
from extractors.media.errors import MissingFile
from extractors.video_features.feature_files import load, path_digest
from extractors.windows import WindowOptions
from tests.app.extract.object_store import ObjectStore
from tests.media import write_gif, write_video

NET = "efficientnet-lite2"


@dataclass(frozen=True)
class Shell:
    """Runs the command with the checkout's converted network and a folder of videos."""

    folder: Path
    environment: dict[str, str]

    def extract(self, *arguments: str | Path) -> Result:
        """In this process, which loads torch once for all."""
        given = [str(argument) for argument in ("extract", *arguments)]
        return CliRunner().invoke(cli, given, env=self.environment, prog_name=PROGRAM)

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        """In a process group of its own, as a terminal would."""
        return subprocess.Popen(
            [sys.executable, "-m", "app", "extract", *map(str, arguments)],
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # a shell's background jobs ignore Ctrl-C, and so would their children
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )


@pytest.fixture(scope="module")
def shell(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Two stems alike, one of them below; a file that is no video; one that is none of ours."""
    folder = tmp_path_factory.mktemp("videos")
    (folder / "sub").mkdir()
    write_video(folder / "clip.mp4")
    write_video(folder / "clip.mkv", width=48, height=64, frames=12)
    write_video(folder / "sub" / "clip.mp4", frames=1)
    write_gif(folder / "sub" / "a b.gif", [100, 500, 400])
    (folder / "broken.mp4").write_text("this is no video\n" * 100)
    (folder / "captions.json").write_text("{}")
    return Shell(folder, {"REELWORD_DATA": str(root / "data"), "REELWORD_DEVICE": "cpu", "COLUMNS": "200"})


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("features")


@pytest.fixture(scope="module")
def first(shell: Shell, out: Path) -> Result:
    return shell.extract(shell.folder, "--extractor", NET, "--out", out, "--extraction-total", "4")


def names(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


def test_one_bad_video_fails_alone_and_is_listed_at_the_end(first: Result, shell: Shell) -> None:
    assert first.exit_code == 1
    assert "5 videos: 4 extracted, 0 were there, 1 failed." in first.stderr
    last = first.stderr.splitlines()[-1]
    assert str(shell.folder / "broken.mp4") in last
    assert last.endswith("[not_a_video]")


def test_files_of_one_stem_do_not_collide(first: Result, out: Path, shell: Shell) -> None:
    apart = path_digest(shell.folder / "clip.mp4")
    assert names(out) == {
        f"{NET}/clip.safetensors",
        f"{NET}/clip-{apart}.safetensors",
        f"{NET}/sub/clip.safetensors",
        f"{NET}/sub/a b.safetensors",
    }


def test_a_file_says_what_it_is(first: Result, out: Path, shell: Shell) -> None:
    saved = load(out / NET / f"clip-{path_digest(shell.folder / 'clip.mp4')}.safetensors")
    assert saved.source.file == "clip.mp4"
    assert saved.media["duration"] == pytest.approx(3.0)
    assert saved.tag.spec.network == NET
    assert len(saved.tag.spec.weights_sha256) == 64
    assert saved.tag.windows is not None
    assert saved.tag.windows.extraction_total == 4
    grid = saved.streams["grid"]
    assert tuple(grid.values.shape) == (4, 49, 1280)
    np.testing.assert_allclose(grid.start, [0.0, 0.75, 1.5, 2.25])
    np.testing.assert_allclose(grid.end, [0.75, 1.5, 2.25, 3.0])
    assert load(out / NET / "sub" / "a b.safetensors").streams["grid"].end[-1] == pytest.approx(1.0)


def test_what_is_there_is_left_alone(first: Result, out: Path, shell: Shell) -> None:
    before = {file: file.stat().st_mtime_ns for file in out.rglob("*.safetensors")}
    again = shell.extract(shell.folder, "--extractor", NET, "--out", out, "--extraction-total", "4")
    assert "5 videos: 0 extracted, 4 were there, 1 failed." in again.stderr
    assert {file: file.stat().st_mtime_ns for file in out.rglob("*.safetensors")} == before


def test_what_is_damaged_or_was_made_otherwise_is_made_anew(shell: Shell, tmp_path: Path) -> None:
    video = shell.folder / "clip.mp4"
    arguments = (video, "--extractor", NET, "--out", tmp_path, "--extraction-total")
    assert shell.extract(*arguments, "2").exit_code == 0
    other = shell.extract(*arguments, "3")
    assert other.exit_code == 0
    assert "made anew, efficientnet-lite2: windows.extraction_total: 3, not 2" in other.stderr
    file = tmp_path / NET / "clip.safetensors"
    assert len(load(file).streams["grid"]) == 3
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    damaged = shell.extract(*arguments, "3")
    assert "are not those that were written" in damaged.stderr
    assert file.read_bytes() == content


def test_a_video_that_changed_is_described_again_and_another_one_gets_a_name_of_its_own(
    shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    video, other = tmp_path / "a" / "x.mp4", tmp_path / "b" / "x.mp4"
    write_video(video, frames=5)
    write_video(other, frames=9)
    arguments = ("--extractor", NET, "--out", tmp_path / "out", "--extraction-total", "2")
    assert shell.extract(video, *arguments).exit_code == 0
    assert shell.extract(other, *arguments).exit_code == 0
    assert names(tmp_path / "out") == {f"{NET}/x.safetensors", f"{NET}/x-{path_digest(other)}.safetensors"}
    write_video(video, frames=7)
    changed = shell.extract(video, other, *arguments)
    assert "the video has changed" in changed.stderr
    assert "1 extracted, 1 were there" in changed.stderr
    assert load(tmp_path / "out" / NET / "x.safetensors").media["frames"] == 7


def test_npy_and_hdf5_lie_where_other_peoples_code_looks(shell: Shell, tmp_path: Path) -> None:
    import h5py

    for form in ("npy", "hdf5"):
        arguments = ("--extractor", NET, "--out", tmp_path, "--format", form, "--extraction-fps", "2")
        assert shell.extract(shell.folder / "sub", *arguments).exit_code == 0
        assert "2 were there" in shell.extract(shell.folder / "sub", *arguments).stderr
    assert np.load(tmp_path / NET / "clip_frames.npy").shape == (1, 1280)
    assert float(np.load(tmp_path / NET / "clip_fps.npy")) == 2.0
    assert np.load(tmp_path / NET / "a b_timestamps_ms.npy").tolist() == [500.0, 1000.0]
    with h5py.File(tmp_path / NET / "grid.hdf5") as file:
        assert {name: file[name].shape for name in file} == {"clip": (1, 49, 1280), "a b": (2, 49, 1280)}


@pytest.mark.slow
def test_seeded_weights_mark_what_they_made(shell: Shell, tmp_path: Path) -> None:
    arguments = (shell.folder / "clip.mp4", "--out", tmp_path, "--weights", "seeded", "--show-predictions")
    run = shell.extract(
        *arguments, "--extractor", "resnet50", "--extraction-total", "1", "--precision", "fp32"
    )
    assert run.exit_code == 0, run.stderr
    assert names(tmp_path) == {"resnet50-seeded/clip.safetensors"}
    saved = load(tmp_path / "resnet50-seeded" / "clip.safetensors")
    assert saved.tag.spec.weights_sha256 == "seeded"
    assert {stream.spec.weights_sha256 for stream in saved.streams.values()} == {"seeded"}
    (line,) = run.stdout.splitlines()
    assert line.startswith(f"{shell.folder / 'clip.mp4'}: resnet50: 0.")
    assert line.count(", ") >= 4


@pytest.mark.slow
def test_streams_of_others_are_made_of_one_decode(shell: Shell, tmp_path: Path) -> None:
    """The extractors whose streams a derived one takes need not be named."""
    arguments = (shell.folder / "clip.mp4", "--out", tmp_path, "--extraction-total", "2")
    run = shell.extract(*arguments, "--extractor", f"roi:{NET}@coco_ssd:3", "--weights", "seeded")
    assert run.exit_code == 0, run.stderr
    found = f"roi-{NET}@coco_ssd-3-seeded"
    assert names(tmp_path) == {
        f"{name}/clip.safetensors" for name in (found, f"{NET}-seeded", "coco_ssd-3-seeded")
    }
    saved = load(tmp_path / found / "clip.safetensors")
    (stream,) = saved.streams.values()
    assert tuple(stream.values.shape) == (2, 3, 1280)
    assert set(saved.tag.inputs) == {NET, "coco_ssd:3"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--extractor", "blip"], "There is no extractor 'blip'; there are: "),
        (["--extractor", f"{NET},blip"], "There is no extractor 'blip'"),
        (["--extractor", ","], "Name an extractor"),
        (["--extractor", NET, "--stack-size", "0"], "must be at least 1"),
        (["--extractor", NET, "--stack-size", "16"], "looks at single frames"),
        (["--extractor", NET, "--extraction-fps", "5", "--extraction-total", "5"], "exclude each other"),
        (["--extractor", NET, "--format", "pickle"], "--format"),
        (["--extractor", NET, "--jobs", "0"], "--jobs"),
        (["--extractor", NET, "--out", "/dev/null/out"], "The folder /dev/null/out cannot be made"),
        ([], "--extractor"),
    ],
)
def test_wrong_usage_ends_with_2_and_a_sentence(
    shell: Shell, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    run = shell.extract(shell.folder / "clip.mp4", "--out", tmp_path, *arguments)
    assert run.exit_code == 2
    assert sentence in run.stderr.replace("\n", " ")
    assert "Traceback" not in run.output


def test_missing_weights_are_told_with_the_remedy(shell: Shell, tmp_path: Path) -> None:
    elsewhere = Shell(shell.folder, {**shell.environment, "REELWORD_DATA": str(tmp_path / "data")})
    run = elsewhere.extract(shell.folder / "clip.mp4", "--extractor", "resnet152", "--out", tmp_path / "out")
    assert run.exit_code == 1
    assert "reelword weights get resnet152" in run.stderr
    assert "Traceback" not in run.output


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_leaves_nothing_half_written_and_the_next_run_goes_on(
    shell: Shell, tmp_path: Path, jobs: str
) -> None:
    videos = tmp_path / "videos"
    videos.mkdir()
    for number in range(40):
        write_video(videos / f"{number:02}.mp4", frames=4 + number)
    arguments = (videos, "--extractor", NET, "--out", tmp_path / "out", "--jobs", jobs)
    run = shell.start(*arguments)
    until = time.monotonic() + 100
    while not list((tmp_path / "out").rglob("*.safetensors")) and time.monotonic() < until:
        time.sleep(0.05)
    os.killpg(run.pid, signal.SIGINT)
    _, said = run.communicate(timeout=60)
    assert run.returncode == 130
    assert said.splitlines()[-1] == "Stopped; the same command goes on from here."
    done = list((tmp_path / "out").rglob("*"))
    files = [file for file in done if file.is_file()]
    assert 0 < len(files) < 40
    assert all(load(file).streams for file in files)
    again = shell.extract(*arguments[:-2])
    assert again.exit_code == 0
    assert f"40 videos: {40 - len(files)} extracted, {len(files)} were there, 0 failed." in again.stderr


@pytest.mark.slow
def test_jobs_give_the_same_and_one_that_dies_costs_its_video_and_is_replaced(
    first: Result, shell: Shell, out: Path, tmp_path: Path
) -> None:
    settings = Settings(data=Path(shell.environment["REELWORD_DATA"]))
    windows = WindowOptions(extraction_total=4)
    plan = ExtractionPlan(
        (NET,), tmp_path / "out", "safetensors", windows, "published", "cpu", None, False, settings
    )
    endless = tmp_path / "endless.mp4"
    with endless.open("wb") as file:
        file.truncate(1 << 40)  # takes hours to read, and no room
    clip = shell.folder / "sub" / "clip.mp4"
    found = []
    for outcome in extract_in_processes(
        plan, [InputVideo(endless, "x"), *(InputVideo(clip, f"{k}") for k in range(3))], jobs=2
    ):
        found.append(outcome)
        if len(found) == 1:
            for pid in children():
                os.kill(pid, signal.SIGKILL)
    failed = [outcome for outcome in found if outcome.error]
    assert str(endless) in [outcome.file for outcome in failed]
    assert {outcome.error.code for outcome in failed if outcome.error} == {"extraction_crashed"}
    assert len(found) == 4
    made = names(tmp_path / "out")
    assert len(made) == 4 - len(failed) >= 2  # the other worker may have had one in hand, and its next too
    alone = load(out / NET / "sub" / "clip.safetensors").streams["grid"].values
    assert all(torch.equal(load(tmp_path / "out" / name).streams["grid"].values, alone) for name in made)


def children() -> Iterator[int]:
    """Worker processes of this one."""
    import psutil

    for process in psutil.Process().children():
        if "app.extract.pool" in " ".join(process.cmdline()):
            yield process.pid


# ---- what has a name of its own ----


def test_a_folder_is_searched_for_videos_alone(shell: Shell, tmp_path: Path) -> None:
    inside = shell.folder / "sub" / "out"
    inside.mkdir(exist_ok=True)
    (inside / "old.mp4").write_bytes(b"")
    (shell.folder / "sub" / ".hidden.mp4").write_bytes(b"")
    videos = find_videos([shell.folder, shell.folder / "clip.mp4"], inside)
    assert sorted(each.name for each in videos) == ["broken", "clip", "clip", "sub/a b", "sub/clip"]
    with pytest.raises(MissingFile, match=r"no file or folder called no-such\.xyz"):
        find_videos([shell.folder, Path("no-such.xyz")], inside)
    (shell.folder / "sub" / ".hidden.mp4").unlink()
    (inside / "old.mp4").unlink()
    inside.rmdir()
    with pytest.raises(UsageError, match="There is no video in"):
        find_videos([tmp_path], tmp_path / "out")


@pytest.fixture
def store(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """Two clips, one below, and what is no video, in a store that speaks S3 and gives files to the web."""
    clip = (shell.folder / "clip.mp4").read_bytes()
    with ObjectStore().serving() as running:
        running.objects = {"films/a b.mp4": clip, "films/deep/ü.mp4": clip, "films/broken.mkv": b"none" * 99}
        for name, value in {**running.environment, "REELWORD_URL_HOSTS": "127.0.0.1"}.items():
            monkeypatch.setenv(name, value)
        _file_system.cache_clear()
        yield running
        _file_system.cache_clear()


def test_videos_of_stores_and_of_the_web_are_extracted_as_files_are(
    shell: Shell, first: Result, out: Path, store: ObjectStore, tmp_path: Path
) -> None:
    listed = tmp_path / "list.txt"
    listed.write_text(f"s3://films/a b.mp4\n{shell.folder / 'clip.mkv'}\n")
    sources = ("s3://films", f"{store.address}/films/a%20b.mp4?x=/y", listed)
    arguments = (*sources, "--extractor", NET, "--extraction-total", "4", "--out", tmp_path / "out")
    found = shell.extract(*arguments)
    assert "5 videos: 4 extracted, 0 were there, 1 failed." in found.stderr
    assert "  s3://films/broken.mkv: " in found.stderr
    assert found.exit_code == 1
    made = sorted(names(tmp_path / "out"))
    assert [re.sub("-[0-9a-f]{8}", "-*", name) for name in made] == [
        f"{NET}/{name}.safetensors" for name in ("a b-*", "a b", "clip", "deep/ü")
    ]
    alone = load(out / NET / f"clip-{path_digest(shell.folder / 'clip.mp4')}.safetensors")
    for name in (made[0], made[1], made[3]):
        saved = load(tmp_path / "out" / name)
        assert torch.equal(saved.streams["grid"].values, alone.streams["grid"].values)
        assert saved.source.file in ("a b.mp4", "ü.mp4", "a%20b.mp4?x=/y".rpartition("/")[2])
    assert "0 extracted, 4 were there, 1 failed." in shell.extract(*arguments).stderr
    assert sorted(names(tmp_path / "out")) == made


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("s3://films/gone.mp4", "There is no video below s3://films/gone.mp4."),
        ("odd://films/a.mp4", "odd://films/a.mp4 cannot be opened"),
        ("s3://none", "There is no video below s3://none."),
    ],
)
def test_a_place_without_a_video_ends_the_command(
    source: str, said: str, shell: Shell, store: ObjectStore, tmp_path: Path
) -> None:
    found = shell.extract(source, "--extractor", NET, "--out", tmp_path)
    assert found.exit_code == 2
    assert said in str(found.exception) + found.output


def test_a_video_that_does_not_come_fails_alone(shell: Shell, store: ObjectStore, tmp_path: Path) -> None:
    web, listed = f"{store.address}/films/gone.mp4", tmp_path / "list.txt"
    listed.write_text(f"{web}\ns3://films/gone.mp4\n{tmp_path}/gone.mp4\nhttp://127.0.0.2:1/x.mp4\n")
    found = shell.extract(listed, "--extractor", NET, "--out", tmp_path / "out")
    lines = [line.strip() for line in found.stderr.splitlines()]
    assert [line.partition(": ")[0] for line in lines[-4:]] == listed.read_text().split("\n")[:4]
    codes = [line.rpartition("[")[2] for line in lines[-4:]]
    assert codes == ["url_not_found]", "upload_missing]", "missing_file]", "url_not_allowed]"]


@pytest.mark.parametrize(
    ("address", "source", "name"),
    [
        ("s3://b/films/../../up.mp4", "s3://b/films", "up"),
        ("s3://b/films//etc/x.mp4", "s3://b/films", "etc/x"),
        ("s3://b/" + "ф" * 300 + ".mp4", "s3://b", "ф" * 100),
        ("https://h/%2e%2e%2fx.mp4", "", "x"),
        ("https://h/a%00b.c.mp4?q=1#f", "", "a_b.c"),
        ("https://h/", "", "video"),
    ],
)
def test_names_that_are_addresses_lead_nowhere(address: str, source: str, name: str) -> None:
    assert _name_features(address, source) == name


def test_names_do_not_depend_on_the_order_in_which_files_are_given() -> None:
    one, two, three = (InputVideo(Path(file), "x") for file in ("a/x.mp4", "b/X.avi", "c/x.mp4"))
    capital = InputVideo(two.file, "X")
    owners = {one: "other", capital: "own", three: None}
    for order in ([one, capital, three], [three, capital, one]):
        named = dict(zip(order, name_apart(order, lambda each: owners[each]), strict=True))
        assert named[capital].name == "X"
        assert named[one].name == f"x-{path_digest(one.file)}"
        assert named[three].name == f"x-{path_digest(three.file)}"


def test_predictions_are_of_real_rows_by_their_labels() -> None:
    spec, times = StreamSpec("n", "w", "p"), np.arange(2.0)
    logits = torch.tensor([[4.0, 0.0, 0.0], [0.0, 9.0, 0.0]])
    mask = torch.tensor([True, False])
    streams = {"x": Stream(torch.zeros(2, 1), times, times + 1, spec)}
    assert format_predictions(streams, None) is None
    streams["x_logits"] = Stream(logits, times, times + 1, spec, mask=mask)
    told = format_predictions(streams, ("archery", "yoga", "golf"))
    assert told == "0.96 archery, 0.02 yoga, 0.02 golf"
    assert format_predictions(streams, None) == "0.96 class 0, 0.02 class 1, 0.02 class 2"


def test_predictions_of_a_detector_are_its_best_boxes() -> None:
    scores = torch.tensor([[[0.0, 0.9], [0.3, 0.0]], [[0.6, 0.0], [0.0, 0.0]]])
    times = np.arange(2.0)
    stream = Stream(scores, times, times + 1, StreamSpec("n", "w", "p"), boxes=torch.zeros(2, 2, 4))
    assert format_predictions({"coco_ssd": stream}, ("cat", "dog")) == "0.90 dog, 0.60 cat"
    nothing = replace(stream, values=torch.zeros_like(stream.values))
    assert format_predictions({"coco_ssd": nothing}, ("cat", "dog")) == "nothing that it knows"


def test_the_options_are_listed(shell: Shell) -> None:
    shown = shell.extract("--help").stdout
    for option in (
        "stack-size",
        "step-size",
        "extraction-fps",
        "extraction-total",
        "show-predictions",
        "jobs",
    ):
        assert f"--{option}" in shown
    assert "safetensors|npy|hdf5" in shown


def test_options_are_shown_whole_on_a_narrow_terminal(shell: Shell) -> None:
    narrow = replace(shell, environment={**shell.environment, "COLUMNS": "80"})
    shown = narrow.extract("--help").stdout
    assert "--extraction-total " in shown
    assert "--show-predictions / --no-show-predictions" in shown
    assert max(map(len, shown.splitlines())) <= 80
