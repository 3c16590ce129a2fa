"""Adding, listing, verifying and removing pretrained captioners, from a folder and from a hub."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest
from huggingface_hub import constants

from extractors.errors import ReelwordError
from models.pretrained import errors, hub
from models.pretrained.installed import CARD, InstalledCaptioners, ModelFacts, default_name
from tests.models.pretrained.hub_server import COMMIT, HubServer, serving

WEIGHTS = bytes(range(256)) * 5000
FILES = {
    "config.json": b'{"model_type": "git"}',
    "tokenizer.json": b"{}" * 600,
    "model.safetensors": WEIGHTS,
    "README.md": b"---\nlicense: mit\n---\n",
    "modeling.py": b"raise SystemExit",
    "pytorch_model.bin": b"pickle" * 500,
    "onnx/model.onnx": b"x" * 2000,
}
KEPT = {"config.json", "tokenizer.json", "model.safetensors", "README.md"}
FACTS = ModelFacts(family="git", architecture="GitForCausalLM", parameters=3, memory=12, licence="mit")


def facts(folder: Path) -> ModelFacts:
    assert json.loads((folder / "config.json").read_text())["model_type"] == "git"
    return FACTS


@pytest.fixture
def installed(tmp_path: Path) -> InstalledCaptioners:
    return InstalledCaptioners(tmp_path / "captioners", frozenset({"stats", "fusion"}))


@pytest.fixture(autouse=True)
def _no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)


def add(installed: InstalledCaptioners, server: HubServer, name: str | None = None) -> str:
    return installed.add(server.repository, facts, name=name, endpoint=server.url).name


def leftovers(installed: InstalledCaptioners) -> list[str]:
    return sorted(path.name for path in installed.folder.iterdir() if not path.name.endswith(".lock"))


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_download_has_what_is_read_and_nothing_that_runs(
    installed: InstalledCaptioners, elsewhere: bool
) -> None:
    with serving(HubServer(FILES, elsewhere=elsewhere)) as server:
        card = installed.add("owner/name", facts, endpoint=server.url)
    folder = installed.path("name")
    assert {path.name for path in folder.iterdir()} == KEPT | {CARD}
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert card.revision == COMMIT
    assert card.facts == FACTS
    assert set(card.files) == KEPT
    assert installed.list() == [card]
    assert installed.verify("name") == card
    assert leftovers(installed) == ["name"]


def test_what_broke_off_goes_on_where_it_stopped(
    installed: InstalledCaptioners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1 << 16)  # a real file has many of 10 MB
    with serving(HubServer(FILES, cuts=[700_000])) as server:
        for _ in range(3):  # the library asks again by itself, or the user does
            try:
                add(installed, server)
                break
            except errors.HubUnreachable:
                assert leftovers(installed) == [".name.part"]
        ranges = server.ranges("model.safetensors")
    assert (installed.path("name") / "model.safetensors").read_bytes() == WEIGHTS
    assert any(each and each.startswith("bytes=") and not each.startswith("bytes=0-") for each in ranges)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_what_is_not_what_is_published_does_not_stay(installed: InstalledCaptioners, name: str) -> None:
    wrong = bytes(reversed(FILES[name]))
    with serving(HubServer(FILES, lies={name: wrong})) as server:
        with pytest.raises(errors.FilesDiffer, match=name):
            add(installed, server)
        assert not (installed.folder / ".name.part" / name).exists()
        server.lies = {}
        add(installed, server)
    assert installed.verify("name").files[name].bytes == len(FILES[name])


def test_a_file_without_an_end_does_not_fill_the_disk(
    installed: InstalledCaptioners, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more is written of it than is published, and the room that stays free in any case."""
    monkeypatch.setattr(hub, "MARGIN", 1 << 16)
    endless = {"model.safetensors": bytes(4 << 20)}
    with (
        serving(HubServer(FILES, lies=endless)) as server,
        pytest.raises(errors.FilesDiffer, match="larger than its repository publishes"),
    ):
        add(installed, server)
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    left = [file.stat().st_size for file in installed.folder.rglob("*") if file.is_file()]
    assert max(left) < len(WEIGHTS)


@pytest.mark.parametrize(
    ("size", "error"),
    [(-(10**15), errors.FilesDiffer), (10**15, errors.DiskTooSmall), (1, errors.FilesDiffer)],
)
def test_sizes_that_are_not_true_bring_nothing(
    installed: InstalledCaptioners, size: int, error: type[ReelwordError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "MARGIN", 1 << 10)
    with serving(HubServer(FILES, sizes={"model.safetensors": size})) as server, pytest.raises(error):
        add(installed, server)
    assert installed.list() == []


def test_thousands_of_files_are_no_captioner(installed: InstalledCaptioners) -> None:
    many = {f"part-{number}.json": b"{}" for number in range(5000)}
    with serving(HubServer({**FILES, **many})) as server:
        with pytest.raises(errors.NotACaptioner, match="5004 files"):
            add(installed, server)
        assert [path for _, path, _ in server.requests if "/resolve/" in path] == []


def test_a_redirect_to_another_host_takes_no_account_there(
    installed: InstalledCaptioners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    with serving(HubServer(FILES, elsewhere=True)) as server:
        add(installed, server)
    there = {token for host, token in server.tokens if host and host.startswith("localhost")}
    here = {token for host, token in server.tokens if host and host.startswith("127.0.0.1")}
    assert (there, here) == ({None}, {"Bearer hf_mine"})


@pytest.mark.parametrize("name", ["vocab.txt", "config.json", "model.safetensors"])
def test_links_out_of_a_folder_are_not_followed(
    installed: InstalledCaptioners, tmp_path: Path, name: str
) -> None:
    source = write_folder(tmp_path / "model")
    secret = tmp_path / "secret"
    secret.write_bytes((source / name).read_bytes() if (source / name).exists() else b"root:x:0:0")
    (source / name).unlink(missing_ok=True)
    (source / name).symlink_to(secret)
    with pytest.raises(errors.NotACaptioner, match=f"{name} of .* link"):
        installed.add(str(source), facts)
    assert leftovers(installed) == []


def test_the_cache_of_a_hub_s_library_has_links_that_are_followed(
    installed: InstalledCaptioners, tmp_path: Path
) -> None:
    blobs = write_folder(tmp_path / "models--owner--name" / "blobs")
    snapshot = tmp_path / "models--owner--name" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    for name in KEPT:
        (snapshot / name).symlink_to(f"../../blobs/{name}")
    assert set(installed.add(str(snapshot), facts, name="cached").files) == KEPT
    assert (blobs / "model.safetensors").is_file()


def test_a_gated_model_says_what_to_do(
    installed: InstalledCaptioners, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(HubServer(FILES, gated=True)) as server:
        with pytest.raises(errors.GatedCaptioner) as raised:
            add(installed, server)
        assert "HF_TOKEN" in raised.value.hint
        monkeypatch.setenv("HF_TOKEN", "hf_mine")
        assert add(installed, server) == "name"


def test_what_a_hub_does_not_have(installed: InstalledCaptioners) -> None:
    with serving(HubServer(FILES)) as server:
        with pytest.raises(errors.NoSuchCaptioner, match="owner/other"):
            installed.add("owner/other", facts, endpoint=server.url)
        with pytest.raises(errors.NoSuchCaptioner, match="revision"):
            installed.add("owner/name@v9", facts, endpoint=server.url)


@pytest.mark.parametrize(
    ("lacking", "error"),
    [("model.safetensors", errors.PickledWeightsOnly), ("config.json", errors.NotACaptioner)],
)
def test_a_repository_that_cannot_be_used_is_refused_before_a_byte_comes(
    installed: InstalledCaptioners, lacking: str, error: type[ReelwordError]
) -> None:
    files = {name: content for name, content in FILES.items() if name != lacking}
    with serving(HubServer(files)) as server:
        with pytest.raises(error):
            add(installed, server)
        assert [path for _, path, _ in server.requests if "/resolve/" in path] == []


def test_no_hub_answers(installed: InstalledCaptioners) -> None:
    with serving(HubServer(FILES)) as server:
        gone = server.url
    with pytest.raises(errors.HubUnreachable, match=f"{gone} does not answer for owner/name"):
        installed.add("owner/name", facts, endpoint=gone)


def test_offline_forbids_the_hub_and_not_a_folder(installed: InstalledCaptioners, tmp_path: Path) -> None:
    with pytest.raises(errors.DownloadsForbidden):
        installed.add("owner/name", facts, offline=True)
    source = write_folder(tmp_path / "My-Model")
    assert installed.add(str(source), facts, offline=True).name == "my-model"
    assert {path.name for path in installed.path("my-model").iterdir()} == KEPT | {CARD}


def write_folder(folder: Path) -> Path:
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def test_names_are_one_captioner_s_alone(installed: InstalledCaptioners, tmp_path: Path) -> None:
    source = str(write_folder(tmp_path / "model"))
    installed.add(source, facts)
    for name in ("model", "stats"):
        with pytest.raises(errors.NameTaken):
            installed.add(source, facts, name=name)
    for name in ("", "../x", "a/b", ".hidden", "a" * 65, "fusion,stats"):
        with pytest.raises(errors.NameRefused):
            installed.add(source, facts, name=name or " ")
    assert installed.add(source, facts, name="other").name == "other"
    assert [card.name for card in installed.list()] == ["model", "other"]


def test_what_no_adapter_can_run_gets_no_name(installed: InstalledCaptioners, tmp_path: Path) -> None:
    def refuse(folder: Path) -> ModelFacts:
        raise errors.NoSuchCaptioner("It is a model of sound.")

    with pytest.raises(errors.NoSuchCaptioner, match="sound"):
        installed.add(str(write_folder(tmp_path / "model")), refuse)
    assert installed.list() == []
    assert leftovers(installed) == []


def test_another_source_of_the_same_name_takes_nothing_over(
    installed: InstalledCaptioners, tmp_path: Path
) -> None:
    part = installed.folder / ".model.part"
    part.mkdir(parents=True)
    (part / "special_tokens_map.json").write_text("{}")
    card = installed.add(str(write_folder(tmp_path / "model")), facts)
    assert set(card.files) == KEPT


def test_changes_and_losses_are_found(installed: InstalledCaptioners, tmp_path: Path) -> None:
    installed.add(str(write_folder(tmp_path / "model")), facts)
    weights = installed.path("model") / "model.safetensors"
    weights.write_bytes(WEIGHTS[:-1] + b"\0")
    with pytest.raises(errors.FilesDiffer, match=r"model\.safetensors of model"):
        installed.verify("model")
    weights.unlink()
    with pytest.raises(errors.FilesDiffer, match="lacks"):
        installed.verify("model")
    (installed.path("model") / CARD).write_text("{")
    with pytest.raises(errors.FilesDiffer, match="card"):
        installed.list()
    installed.remove("model")
    with pytest.raises(errors.NotInstalled):
        installed.verify("model")
    assert leftovers(installed) == []


def test_remove_also_clears_what_did_not_come_whole(installed: InstalledCaptioners) -> None:
    (installed.folder / ".name.part").mkdir(parents=True)
    installed.remove("name")
    assert leftovers(installed) == []
    with pytest.raises(errors.NotInstalled):
        installed.remove("../captioners")


def test_a_full_disk_is_told_before_a_byte_comes(
    installed: InstalledCaptioners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "MARGIN", 1 << 60)
    with serving(HubServer(FILES)) as server, pytest.raises(errors.DiskTooSmall, match="MB are needed"):
        add(installed, server)


@pytest.mark.parametrize(
    ("source", "name"),
    [("microsoft/git-base-vatex", "git-base-vatex"), ("a/B@v1", "b"), ("/some/Where/", "where"), ("x", "x")],
)
def test_the_name_by_default(source: str, name: str) -> None:
    assert default_name(source) == name
