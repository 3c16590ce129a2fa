"""The command line, run as its users run it, with a captioner whose weights are random but real."""

from __future__ import annotations

import json
import os
import pty
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from app import __version__
from app.cli.main import COMMANDS, cli
from app.documents.job import JobDocument
from app.extract.inputs import InputVideo, choose_names
from app.serve.embedded_redis import RedisServer
from app.settings import Settings
from app.terminal import PROGRAM, advice_on_names, own_command
from tests.app.captioners import WORDS, write_captioner
from tests.media import write_video


class Shell:
    """Runs ``python -m app`` from the checkout with a data folder and a weights folder of its own."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder, self._root = folder, root
        self.environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("REELWORD", "REDIS"))
            },
            "REELWORD_DATA": str(folder / "data"),
            "REELWORD_WEIGHTS": str(folder / "weights"),
            "COLUMNS": "200",
        }

    def run(self, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "app", *map(str, arguments)],
            cwd=self._root,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
        )

    def modules(self, *arguments: str) -> tuple[subprocess.CompletedProcess[str], set[str]]:
        """Runs a command, and tells which modules it had imported when it ended."""
        code = (
            "import atexit, json, sys\n"
            "from pathlib import Path\n"
            "from app.cli.main import main\n"
            "listing = Path(sys.argv.pop(1))\n"
            "atexit.register(lambda: listing.write_text(json.dumps(sorted(sys.modules))))\n"
            "main()"
        )
        listing = self.folder / "modules.json"
        run = subprocess.run(
            [sys.executable, "-c", code, str(listing), *arguments],
            cwd=self._root,
            env=self.environment,
            capture_output=True,
            text=True,
        )
        return run, set(json.loads(listing.read_text()))

    def here(self, *arguments: str | Path, **environment: str) -> Result:
        """The same in this process, which loads torch once for all of them."""
        given = [str(argument) for argument in arguments]
        return CliRunner().invoke(cli, given, env={**self.environment, **environment}, prog_name=PROGRAM)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Shell:
    folder = tmp_path_factory.mktemp("cli")
    write_captioner(folder / "weights")
    write_captioner(folder / "weights", "other", seed=2)
    return Shell(folder, root)


@pytest.fixture(scope="module")
def clips(shell: Shell) -> list[Path]:
    """Two videos of one stem, and a file that is none."""
    for name in ("a", "b"):
        (shell.folder / name).mkdir()
    broken = shell.folder / "notes.mp4"
    broken.write_text("this is no video\n" * 100)
    clip, same_stem = shell.folder / "a" / "clip.mp4", shell.folder / "b" / "clip.mkv"
    return [write_video(clip), broken, write_video(same_stem, width=48, height=64)]


@pytest.fixture(scope="module")
def everything(shell: Shell, clips: list[Path]) -> subprocess.CompletedProcess[str]:
    out = shell.folder / "out" / "deep"
    return shell.run(
        "caption", *clips, "--json", "--attention", out, "--beam-size", "3", "--num-captions", "2"
    )


def lines(run: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run.stdout.splitlines()]


# ---- caption ----


def test_each_file_has_its_line_of_json(
    everything: subprocess.CompletedProcess[str], clips: list[Path]
) -> None:
    first, failed, last = lines(everything)
    for line in (first, failed, last):
        assert set(line) == {*JobDocument.model_fields, "file"}
    assert [line["file"] for line in (first, failed, last)] == [str(clip) for clip in clips]
    assert [line["state"] for line in (first, failed, last)] == ["succeeded", "failed", "succeeded"]
    assert (first["media"]["width"], first["media"]["height"]) == (64, 48)
    assert (last["media"]["width"], last["media"]["height"]) == (48, 64)
    assert len(first["sampled"]) == 8
    assert [word["word"] for word in first["captions"][0]["words"]] == first["caption"].split()
    assert set(first["caption"].split()) <= set(WORDS)
    assert len(first["captions"]) == 2
    assert first["model"]["options"]["beam_size"] == 3
    assert first["timings"]["total"] >= first["timings"]["decode"] > 0


def test_a_failed_file_is_told_with_its_code_and_at_the_end(
    everything: subprocess.CompletedProcess[str], clips: list[Path]
) -> None:
    assert everything.returncode == 1
    failed = lines(everything)[1]
    assert failed["error"]["code"] == "not_a_video"
    assert failed["caption"] is None
    assert "1 of 3 files failed:" in everything.stderr
    assert str(clips[1]) in everything.stderr.splitlines()[-1]
    assert "[not_a_video]" in everything.stderr


def test_pictures_of_one_stem_lie_side_by_side(
    shell: Shell, everything: subprocess.CompletedProcess[str]
) -> None:
    out = shell.folder / "out" / "deep"
    assert sorted(file.name for file in out.iterdir()) == [
        "clip-2.json",
        "clip-2.png",
        "clip.json",
        "clip.png",
    ]
    for name, line in (("clip", lines(everything)[0]), ("clip-2", lines(everything)[2])):
        text = (out / f"{name}.json").read_text()
        assert text.endswith("}\n")
        document = json.loads(text)
        assert document["words"] == line["caption"].split()
        with Image.open(out / f"{name}.png") as picture:
            assert picture.width >= 900


def test_a_caption_alone_is_a_line_of_text(shell: Shell, clips: list[Path]) -> None:
    run = shell.here("caption", clips[0])
    assert run.exit_code == 0
    (line,) = run.stdout.splitlines()
    assert set(line.split()) <= set(WORDS)
    assert (
        bool(run.stderr) == ("[empty_caption]" in run.stderr) == (not line)
    )  # chance weights may write nothing


def test_captions_of_several_files_have_their_names(shell: Shell, clips: list[Path]) -> None:
    run = shell.here("caption", *clips, "--captioner", "other")
    assert run.exit_code == 1
    assert [line.split(": ")[0] for line in run.stdout.splitlines()] == [str(clips[0]), str(clips[2])]


def test_several_captioners_write_as_one(shell: Shell, clips: list[Path], tmp_path: Path) -> None:
    arguments = ("--captioner", "ensemble", "--members", "other,stats", "--attention", tmp_path, "--json")
    run = shell.here("caption", clips[0], *arguments)
    assert run.exit_code == 0
    model = json.loads(run.stdout)["model"]
    assert (model["captioner"], list(model["members"])) == ("ensemble", ["other", "stats"])
    document = json.loads((tmp_path / "clip.json").read_text())
    (together,) = (part for part in document["extras"] if part["name"] == "members")
    assert together["items"] == ["other", "stats"]


def test_a_terminal_shows_progress_and_still_gets_whole_lines(shell: Shell, clips: list[Path]) -> None:
    master, terminal = pty.openpty()
    run = subprocess.Popen(
        [sys.executable, "-m", "app", "caption", str(clips[0])],
        env={**shell.environment, "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=terminal,
    )
    os.close(terminal)
    shown = b"".join(_until_closed(master))
    output, _ = run.communicate()
    assert b"Captioning" in shown
    assert set(output.decode().split()) <= set(WORDS)


def _until_closed(master: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(master, 4096)
        except OSError:  # EIO: the other end is closed
            break
        if not data:
            break
        yield data
    os.close(master)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["caption"], "VIDEO"),
        (
            ["caption", "CLIP", "--beam-size", "99"],
            "'--beam-size': Input should be less than or equal to 20",
        ),
        (["caption", "CLIP", "--num-captions", "6"], "num_captions (6) cannot exceed beam_size (5)"),
        (
            ["caption", "CLIP", "--captioner", "blip"],
            "There is no captioner called blip; there are: ensemble, other, stats.",
        ),
        (
            ["caption", "CLIP", "--captioner", "ensemble", "--members", "stats,blip"],
            "There is no captioner called blip; there are: other, stats.",
        ),
        (["caption", "CLIP", "--captioner", "stats", "--members", "other"], "members go with the captioner"),
        (["caption", "CLIP", "--captioner", "fusion"], "Put semantic_embedding.safetensors beside"),
        (["caption", "CLIP", "--attention", "/dev/null/out"], "The folder /dev/null/out cannot be made"),
        (["caption", "CLIP", "--beams", "3"], "--beams"),
        (
            ["caption", "CLIP", "--streams", "blip"],
            "There is no stream set 'blip'; there are: demo, demo-tuned, demo-motion, ",
        ),
        (
            ["train", "stats", "--data", "FOLDER", "--data-set", "msvd", "--streams", "blip"],
            "there is no stream set 'blip'",
        ),
        (["train", "stats", "--data", "FOLDER"], "python -m lab train"),
        (["evaluate", "stats", "--clips", "FOLDER", "--streams", "g2l"], "stats was trained on "),
        (["describe", "CLIP"], "describe"),
        (["train", "blip", "--data", "FOLDER"], "no captioner is called 'blip'"),
        (["evaluate", "stats", "--beams", "3"], "--beams"),
    ],
)
def test_wrong_usage_ends_with_2_and_a_sentence(
    shell: Shell, clips: list[Path], arguments: list[str], sentence: str
) -> None:
    places = {"CLIP": str(clips[0]), "FOLDER": str(shell.folder)}
    run = shell.here(*(places.get(each, each) for each in arguments))
    assert run.exit_code == 2
    assert sentence in run.stderr
    assert "Traceback" not in run.stderr


def test_a_captioner_is_not_fed_another_stream_set(shell: Shell, clips: list[Path]) -> None:
    run = shell.here("caption", clips[0], "--streams", "stats")
    assert run.exit_code == 1
    assert "trained on grid" in run.stderr
    assert "makes i3d_rgb_grid" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("caption", "CLIP", "no-such.mp4"),
        ("caption", "no-such.mp4", "--segments", "shots"),
        ("extract", "no-such.mp4", "--extractor", "i3d_rgb", "--out", "out"),
        ("search", "a dog", "no-such.mp4"),
        ("evaluate", "stats", "--clips", "no-such.mp4"),
        ("evaluate", "stats", "--data", "no-such.mp4"),
        ("train", "stats", "--data", "no-such.mp4"),
        ("weights", "add", "no-such.mp4", "--as", "net"),
    ],
)
def test_a_missing_file_is_refused_before_anything_is_loaded(
    shell: Shell, clips: list[Path], command: tuple[str, ...]
) -> None:
    arguments = [str(clips[0]) if each == "CLIP" else each for each in command]
    run, loaded = shell.modules(*arguments)
    assert run.returncode in (1, 2)
    assert "no-such.mp4" in run.stderr
    assert run.stdout == ""
    assert not loaded & {"torch", "openvino", "training.sessions", "app.pipeline"}


def test_a_folder_is_captioned_as_extract_describes_it(shell: Shell, tmp_path: Path) -> None:
    """Searched to the bottom, one file failing alone; where results go is left out; each file once."""
    folder, out = tmp_path / "films", tmp_path / "films" / "out"
    (folder / "day").mkdir(parents=True)
    out.mkdir()
    (folder / "day" / "broken.mp4").write_text("this is no video\n" * 100)
    (folder / "notes.txt").write_text("no video's name")
    clip, same_stem = write_video(folder / "clip.mp4"), write_video(folder / "day" / "clip.mp4")
    write_video(out / "result.mp4")
    run = shell.here("caption", folder, clip, "--json", "--attention", out)
    assert run.exit_code == 1
    found = {line["file"]: line["state"] for line in map(json.loads, run.stdout.splitlines())}
    assert found == {
        str(clip): "succeeded",
        str(folder / "day" / "broken.mp4"): "failed",
        str(same_stem): "succeeded",
    }
    assert "1 of 3 files failed:" in run.stderr
    pictures = sorted(str(file.relative_to(out)) for file in out.rglob("*.png"))
    assert pictures == ["clip.png", "day/clip.png"]


def test_a_folder_without_videos_is_wrong_usage(shell: Shell, tmp_path: Path) -> None:
    run = shell.here("caption", tmp_path)
    assert run.exit_code == 2
    assert f"There is no video in {tmp_path}." in run.stderr


#: Clear the terminal, with one byte or two; a second line; text from right to left; bytes that are no UTF-8.
HARMFUL = ["\x1b[2J", "\x9b2J", "\n", "\u202e", "\udcff"]


def test_a_name_cannot_harm_the_terminal(shell: Shell, tmp_path: Path) -> None:
    files = []
    for mark in HARMFUL:
        files += [tmp_path / f"a{mark}b.mp4", tmp_path / f"c{mark}d.png"]
        files[-2].write_text("this is no video\n" * 100)
        Image.new("RGB", (64, 48), "red").save(files[-1], "PNG")
    plain, lines = shell.run("caption", *files), shell.run("caption", *files, "--json")
    extracted = shell.run(
        "extract", *files, "--extractor", "efficientnet-lite2", "--out", tmp_path / "out",
        "--show-predictions",
    )  # fmt: skip
    for run in (plain, lines, extracted):
        assert run.returncode == 1
        assert not [mark for mark in HARMFUL if mark in run.stdout + run.stderr and mark != "\n"]
        assert "Traceback" not in run.stderr
        assert [mark for mark in HARMFUL if f"a{repr(mark)[1:-1]}b.mp4" not in run.stderr] == []
    assert [mark for mark in HARMFUL if f"c{repr(mark)[1:-1]}d.png: " not in plain.stdout] == []
    states = [json.loads(line)["state"] for line in lines.stdout.splitlines()]
    assert states == ["failed", "succeeded"] * len(HARMFUL)


def test_the_version_is_told(shell: Shell) -> None:
    run = shell.here("--version")
    assert (run.exit_code, run.stdout) == (0, f"reelword {__version__}\n")


def test_what_was_odd_about_a_file_is_said_beside_its_caption(shell: Shell, tmp_path: Path) -> None:
    photo = tmp_path / "photo.png"
    Image.new("RGB", (64, 48), "red").save(photo)
    run = shell.here("caption", photo)
    assert run.exit_code == 0
    assert len(run.stdout.splitlines()) == 1
    assert "[still_image]" in run.stderr


def test_a_setting_with_a_wrong_value_is_wrong_usage(shell: Shell) -> None:
    run = shell.here("doctor", PORT="99999")
    assert run.exit_code == 2
    assert "The setting REELWORD_PORT or PORT has a wrong value" in run.stderr
    assert "less than or equal to 65535" in run.stderr
    assert "The setting REELWORD_WORKERS has" in shell.here("doctor", REELWORD_WORKERS="many").stderr


def test_without_a_captioner_it_says_so(shell: Shell, clips: list[Path], tmp_path: Path) -> None:
    run = shell.run("caption", clips[0], REELWORD_WEIGHTS=str(tmp_path))
    assert run.returncode == 1
    assert "no captioner" in run.stderr
    assert "Traceback" not in run.stderr


def test_names_of_pictures_never_collide() -> None:
    files = [Path(name) for name in ("a/clip.mp4", "b/clip.avi", "clip-2.mp4", "CLIP.mov", "other.mp4")]
    videos = [InputVideo(file, file.stem) for file in files]
    assert [video.name for video in choose_names(videos)] == ["clip", "clip-2", "clip-2-2", "CLIP-3", "other"]


# ---- the rest ----


#: What takes tenths of a second or more to import.
HEAVY = {"torch", "numpy", "av", "PIL", "fastapi", "redis", "httpx", "rich", "pydantic_settings", "openvino"}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_comes_at_once(shell: Shell, command: str) -> None:
    """The parts that take long to import stay out; the module of another command too."""
    run, loaded = shell.modules(command, "--help")
    assert run.returncode == 0, run.stderr
    assert f"Usage: reelword {command}" in run.stdout
    assert not loaded & HEAVY
    modules = {module for module, _ in COMMANDS.values()} - {COMMANDS[command][0]}
    assert not loaded & {f"app.cli.{module}" for module in modules}


def test_the_version_needs_no_command(shell: Shell) -> None:
    for option in ("--version", "--help"):
        _, loaded = shell.modules(option)
        assert not loaded & {*HEAVY, "pydantic"}
        assert not loaded & {f"app.cli.{module}" for module, _ in COMMANDS.values()}


@pytest.mark.parametrize("columns", [80, 200])
def test_help_is_as_wide_as_the_terminal(shell: Shell, columns: int) -> None:
    for command in ((), ("caption",), ("evaluate",)):
        usage, *lines = shell.run(*command, "--help", COLUMNS=str(columns)).stdout.splitlines()
        assert 0.4 * columns < max(map(len, lines)) <= columns
        assert not [line for line in lines if line.endswith(("…", "..."))], usage
        assert "--no-decoding-constraint" in "".join(lines) or command == ()


def test_training_answers_for_itself(shell: Shell) -> None:
    for command in ("train", "evaluate"):
        run = shell.here(command, "--help")
        assert run.exit_code == 0
        assert f"reelword {command}" in run.stdout
        assert "captioner" in run.stdout


def test_models_lists_what_is_installed(shell: Shell) -> None:
    listed = json.loads(shell.here("models", "--json").stdout)
    assert [model["name"] for model in listed] == ["other", "stats", "ensemble"]
    assert [model["default"] for model in listed] == [False, True, False]
    assert listed[1]["features"] == {"grid": "efficientnet-lite2"}
    assert listed[1]["streams"] == "demo"
    assert listed[1]["parameters"] > 1000
    assert listed[2]["members"] == ["stats", "other"]
    lines = shell.here("models", COLUMNS="80").stdout.splitlines()
    assert len(lines) == 2 + len(listed)
    assert any("stats (default)" in line for line in lines)
    whole = shell.here("models", "show", "ensemble").stdout
    for words in ("efficientnet-lite2", "stats\n", "other\n"):
        assert words in re.sub(" +\n", "\n", whole)
    assert json.loads(shell.here("models", "show", "stats", "--json").stdout) == listed[1]
    absent = shell.here("models", "show", "blip")
    assert (absent.exit_code, "there are: other, stats, ensemble." in absent.stderr) == (2, True)


def test_models_shows_the_stream_sets_and_what_they_lack(shell: Shell) -> None:
    sets = {each["name"]: each for each in json.loads(shell.here("models", "--sets", "--json").stdout)}
    assert {"demo", "stats", "g2l", "refocus", "fusion", "dual_afr"} <= sets.keys()
    assert sets["demo"]["missing"] == sets["stats"]["missing"] == []
    assert sets["refocus"]["missing"] == ["resnet152", "vggish"]
    assert sets["refocus"]["streams"][1]["shape"] == "49×2048"
    assert sets["refocus"]["streams"][1]["windows"] == {"extraction_total": 20}
    table = shell.here("models", "--sets").stdout
    assert "vggish" in table
    assert "missing here" in table


def test_models_tells_of_a_damaged_checkpoint(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "stats.safetensors").write_bytes(b"damaged")
    (model,) = json.loads(shell.here("models", "--json", REELWORD_WEIGHTS=str(tmp_path)).stdout)
    assert "cannot be read" in model["error"]
    assert "cannot be read" in shell.here("models", REELWORD_WEIGHTS=str(tmp_path)).stdout.replace("\n", " ")


def test_doctor_prints_every_setting_and_finds_nothing_wrong(shell: Shell) -> None:
    run = shell.here("doctor", REELWORD_BEAT_SECONDS="0.25")
    assert run.exit_code == 0, run.stdout
    for name in Settings.model_fields:
        assert Settings.variables(name)[0] in run.stdout
    assert "0.25 *" in run.stdout
    assert "Nothing is wrong." in run.stdout
    assert "captioner stats" in run.stdout
    assert "reelword serve starts" in run.stdout


@pytest.mark.parametrize("columns", ["40", "60", "80", "200"])
@pytest.mark.parametrize("command", [("models",), ("doctor",), ("weights", "list")], ids=" ".join)
def test_tables_fit_any_width_and_cut_no_name(shell: Shell, command: tuple[str, ...], columns: str) -> None:
    table = shell.here(*command, COLUMNS=columns).stdout
    assert max(map(len, table.splitlines())) <= int(columns)
    for name in names_listed(shell, command):
        assert name in table, name


def test_short_columns_break_no_line(shell: Shell) -> None:
    table = shell.here("weights", "list", COLUMNS="80").stdout
    assert re.search(r"│ +\d+ MB", table), "a size and its unit"


def names_listed(shell: Shell, command: tuple[str, ...]) -> list[str]:
    document = json.loads(shell.here(*command, "--json").stdout)
    if command == ("doctor",):
        return [each["name"] for each in document["settings"]]
    return [each["name"] for each in document]


def test_doctor_says_the_same_as_json(shell: Shell, tmp_path: Path) -> None:
    run = shell.here("doctor", "--json", REDIS_URL="redis://:secret@127.0.0.1:1/0")
    document = json.loads(run.stdout)
    assert run.exit_code == 1
    assert "secret" not in run.stdout
    assert document["settings"][0].keys() == {"name", "value", "default", "about"}
    assert any(each["subject"] == "redis_away" and each["trouble"] for each in document["findings"])


def test_doctor_says_what_is_wrong(shell: Shell, tmp_path: Path) -> None:
    environment: Mapping[str, str] = {
        "REELWORD_WEIGHTS": str(tmp_path),
        "REELWORD_DEVICE": "cuda:7",
        "REELWORD_MIN_FREE_BYTES": str(2**60),
        "REDIS_URL": f"unix://{tmp_path}/nobody.sock",
    }
    run = shell.here("doctor", **environment)
    said = " ".join(run.stdout.split())
    assert run.exit_code == 1
    assert "No checkpoint lies in" in said
    assert "is almost full" in said
    assert "Redis does not answer" in said


def test_doctor_looks_at_a_running_redis_and_hides_its_password(
    shell: Shell, redis_server: RedisServer
) -> None:
    run = shell.here("doctor", REDIS_URL=redis_server.url, REELWORD_NAMESPACE="nobody-here")
    assert run.exit_code == 1
    assert "valkey" in run.stdout
    assert "no worker has reported" in " ".join(run.stdout.split())
    assert "open to this machine alone" in " ".join(run.stdout.split())
    locked = shell.here(
        "doctor", REDIS_URL=redis_server.url, REELWORD_NAMESPACE="nobody-here", REELWORD_HOST="0.0.0.0"
    )
    said = " ".join(locked.stdout.split())
    assert "reelword keys add NAME makes one" in said
    assert "set REELWORD_ALLOWED_HOSTS" in said
    hidden = shell.here("doctor", REDIS_URL="redis://user:secret@127.0.0.1:1/0")
    assert "secret" not in hidden.stdout
    assert "user:…@127.0.0.1:1/0" in hidden.stdout


def test_hints_can_be_typed_as_they_are_printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv/bin/python"))
    usual = Settings(data=Path("data"))
    assert own_command("keys add NAME", usual) == ".venv/bin/python -m app keys add NAME"
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/reelword").touch()
    assert own_command("keys add NAME", usual) == ".venv/bin/reelword keys add NAME"
    elsewhere = own_command("keys list", Settings(data=tmp_path / "my data"))
    assert elsewhere == f"REELWORD_DATA='{tmp_path}/my data' .venv/bin/reelword keys list"
    monkeypatch.setattr(sys, "executable", "/opt/python")
    assert own_command("keys list", usual) == "/opt/python -m app keys list"
    contained = Settings(data=Path("/data"), command="docker compose exec api reelword")
    assert own_command("keys list", contained) == "docker compose exec api reelword keys list"


@pytest.mark.parametrize(
    ("host", "names", "is_said"),
    [
        ("127.0.0.1", "", False),
        ("0.0.0.0", "", True),
        ("::", "", True),
        ("0.0.0.0", "reel.example", False),
        ("192.168.1.5", "", False),  # it answers to this address
    ],
)
def test_a_service_that_no_other_machine_can_ask_is_said(host: str, names: str, is_said: bool) -> None:
    advice = advice_on_names(Settings(host=host, allowed_hosts=names, peer_hosts="api"))
    assert (advice is not None and "REELWORD_ALLOWED_HOSTS" in advice) == is_said


def test_the_api_says_that_its_port_is_taken(shell: Shell, redis_server: RedisServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        run = shell.run("api", "--port", str(taken.getsockname()[1]), REDIS_URL=redis_server.url)
    assert run.returncode == 1
    assert "Nothing can listen on" in run.stderr
    assert "Traceback" not in run.stderr


def test_the_api_alone_needs_a_redis(shell: Shell, tmp_path: Path) -> None:
    run = shell.run("api", "--port", "0", REELWORD_DATA=str(tmp_path))
    assert run.returncode == 1
    assert "REDIS_URL" in run.stderr
    assert "Traceback" not in run.stderr
