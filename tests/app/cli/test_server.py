"""Commands ask a running service: the one that is named, or that of the data folder; and say so."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.access.keys import KeyStore, make_key
from app.cli.main import cli
from app.jobs.job_index import JobFilter
from app.serve.address import announce_address, read_address
from app.settings import Settings
from app.terminal import PROGRAM
from tests.app.live_api import LiveApi, live_api
from tests.app.scripted_worker import WORDS, ScriptedWorker, working

CAPTION = " ".join(WORDS)
Run = Callable[..., Result]


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    path = tmp_path / "clip.mp4"
    path.write_bytes(b"a video")
    return path


@pytest.fixture
def run(
    api: LiveApi, worker: ScriptedWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Run]:
    """Runs commands beside a service that works; they find it by its address in the data folder."""
    monkeypatch.setattr("app.cli.server.LOOK_SECONDS", 60.0)  # a busy machine needs more than one
    data = tmp_path / "there"
    url = f"http://127.0.0.1:{api.port}"

    def invoke(*arguments: str | Path, **environment: str) -> Result:
        given = [str(argument) for argument in arguments]
        named = {"REELWORD_DATA": str(data), "COLUMNS": "100", **environment}
        return CliRunner().invoke(cli, given, env=named, prog_name=PROGRAM)

    with working(worker, "stats"), announce_address(data, url):
        yield invoke


def test_a_caption_is_asked_of_the_service_that_runs_on_the_data_folder(
    run: Run, api: LiveApi, clip: Path
) -> None:
    result = run("caption", clip, "--beam-size", "3", "--prompt", 'ünd "so"')
    assert result.stdout == "", "the captioner takes no prompt"
    assert result.exit_code == 1, result.stderr
    assert "[prompt_not_taken]" in result.stderr
    result = run("caption", clip, "--beam-size", "3", "--no-name-once")
    assert (result.exit_code, result.stdout) == (0, f"{CAPTION}\n")
    lines = result.stderr.splitlines()
    assert lines[0] == f"Asking the service at http://127.0.0.1:{api.port}; --local does without it."
    assert f"{clip}: The file has no sound. [no_audio]" in lines
    (job,) = api.service.jobs.index.page(JobFilter(), 9).jobs
    assert job.options.model_dump(exclude_defaults=True) == {
        "captioner": "stats", "beam_size": 3, "name_once": False, "attention": False,
    }  # fmt: skip


def test_json_and_pictures_are_those_of_the_job(run: Run, clip: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "clip.mov"
    other.parent.mkdir()
    other.write_bytes(b"another video")
    result = run("caption", clip, other, "--json", "--attention", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    first, second = map(json.loads, result.stdout.splitlines())
    assert (first["file"], second["file"]) == (str(clip), str(other))
    assert first["captions"][0]["text"] == second["caption"] == CAPTION
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["clip-2.json", "clip-2.png", "clip.json", "clip.png"]
    assert json.loads((tmp_path / "out" / "clip.json").read_text())["words"] == list(WORDS)


def test_one_file_that_is_refused_costs_itself_alone(
    run: Run, api: LiveApi, clip: Path, tmp_path: Path
) -> None:
    large = tmp_path / "large.mp4"
    large.write_bytes(b"x" * (api.service.settings.max_upload_bytes + 1))
    result = run("caption", large, clip)
    assert (result.exit_code, result.stdout) == (1, f"{clip}: {CAPTION}\n")
    assert "1 of 2 files failed:" in result.stderr
    assert "[upload_too_large]" in result.stderr


def test_addresses_are_captioned_by_the_service_alone(run: Run, api: LiveApi) -> None:
    url = "https://example.org/clip.mp4"
    result = run("caption", url)
    assert (result.exit_code, result.stdout) == (0, f"{CAPTION}\n"), result.stderr
    (job,) = api.service.jobs.index.page(JobFilter(), 9).jobs
    assert job.submission.source_url == url
    here = run("caption", url, "--local")
    assert (here.exit_code, "--server" in here.stderr) == (2, True)
    searched = run("search", "a dog", url)
    assert searched.exit_code == 2
    assert searched.stderr.startswith(f"{url} is an address, and only files are taken here")


def test_what_the_service_says_names_commands_in_place_of_requests(run: Run, clip: Path) -> None:
    result = run("caption", clip, "--captioner", "blip")
    assert "reelword models lists; one that was added while the service ran" in result.stderr
    assert "With --local it is there now." in result.stderr


def test_subtitles_are_the_services(run: Run, clip: Path) -> None:
    result = run("caption", clip, "--format", "vtt")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("WEBVTT")
    assert CAPTION in result.stdout


def test_models_are_the_services(run: Run) -> None:
    lines = run("models").stdout.splitlines()
    assert len(lines) == 3
    assert "stats (default)" in lines[2]
    (model,) = json.loads(run("models", "--json").stdout)
    assert (model["name"], model["default"], model["workers"]) == ("stats", True, 1)
    assert "workers" in run("models", "show", "stats").stdout


def test_jobs_of_a_service_that_is_named_are_asked_by_http(run: Run, api: LiveApi, clip: Path) -> None:
    service = ("--server", f"http://127.0.0.1:{api.port}")
    assert run("caption", clip).exit_code == 0
    (job,) = json.loads(run("jobs", "list", "--json", *service).stdout)
    assert (job["state"], job["caption"]) == ("succeeded", CAPTION)
    assert "clip.mp4" in run("jobs", "list", REELWORD_URL=service[1]).stdout
    assert CAPTION in run("jobs", "show", job["id"], *service).stdout
    assert "is over already: it has succeeded." in run("jobs", "cancel", job["id"], *service).stdout
    refused = run("jobs", "requeue", job["id"], *service)
    assert (refused.exit_code, "with --local" in refused.stderr) == (2, True)
    assert "1 are purged" in run("jobs", "purge", job["id"], *service).stdout
    assert json.loads(run("jobs", "list", "--json", *service).stdout)[0]["state"] == "expired"


def test_the_key_of_the_settings_is_sent(settings: Settings, clip: Path) -> None:
    with live_api(settings.model_copy(update={"access": "keys"})) as api:
        key, token = make_key("cli")
        KeyStore(api.service.jobs.server, api.service.jobs.keys).add(key)
        arguments = ["models", "--json", "--server", f"http://127.0.0.1:{api.port}"]
        refused = CliRunner().invoke(cli, arguments)
        assert refused.exit_code == 1
        assert "needs an API key" in refused.stderr
        allowed = CliRunner().invoke(cli, arguments, env={"REELWORD_KEY": token})
        assert (allowed.exit_code, allowed.stdout) == (0, "[]\n")


def test_what_only_this_process_has_is_done_here_or_refused(run: Run, clip: Path) -> None:
    refused = run("caption", clip, "--streams", "demo", "--server", "http://127.0.0.1:9")
    assert (refused.exit_code, "--streams is not for a running service" in refused.stderr) == (2, True)
    both = run("caption", clip, "--local", "--server", "http://127.0.0.1:9")
    assert (both.exit_code, "leave one of them out" in both.stderr) == (2, True)
    for arguments in (("--local",), ("--shortest", "3")):
        here = run("caption", clip, *arguments, REELWORD_WEIGHTS=str(clip.parent / "none"))
        assert "Asking the service" not in here.stderr
        assert "no captioner" in here.stderr


def test_a_service_that_does_not_answer_is_told(run: Run, clip: Path) -> None:
    for named in ({"REELWORD_URL": "http://127.0.0.1:9"}, {}):
        server = () if named else ("--server", "http://127.0.0.1:9")
        result = run("caption", clip, *server, **named)
        assert result.exit_code == 1
        assert "http://127.0.0.1:9 does not answer" in result.stderr
        assert "--local" in result.stderr


def test_an_address_is_there_as_long_as_its_process_runs(tmp_path: Path) -> None:
    assert read_address(tmp_path) is None
    with announce_address(tmp_path, "http://127.0.0.1:8000"):
        assert read_address(tmp_path) == "http://127.0.0.1:8000"
    assert read_address(tmp_path) is None
    (tmp_path / "address").write_text("http://127.0.0.1:8000")  # of one that was killed
    assert read_address(tmp_path) is None


def test_a_key_is_shown_to_nobody() -> None:
    assert "rw_secret" not in repr(Settings(key="rw_secret"))
