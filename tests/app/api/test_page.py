"""The page is served whole, from here alone, and cannot be made to load or run anything else."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from app.api.page_files import FILES, SCRIPT, STATIC, STYLES, bundle
from app.attention_picture import heatmap
from app.jobs.options import FORM_FIELDS
from app.serve.embedded_redis import RedisServer
from app.settings import Settings
from models.caption import (
    AttentionDocument,
    ChosenMoment,
    MomentsExplanation,
    NamedChoice,
    TableColumn,
    TableExplanation,
    TextExplanation,
    WeightsExplanation,
)
from tests.app.live_api import LiveApi, live_api

#: Its modules by their addresses below /static.
SCRIPTS = {str(path.relative_to(STATIC)): path.read_text() for path in sorted(STATIC.rglob("*.js"))}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer) -> Iterator[LiveApi]:
    settings = Settings(data=tmp_path_factory.mktemp("page"), redis_url=redis_server.url, namespace="page")
    with live_api(settings) as running:
        yield running


class Links(HTMLParser):
    """Addresses that a page loads or leads to, ids it has, and inline code, which its policy forbids."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.inline: list[str] = []
        self.labelled: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.addresses += [attributes[name] for name in ("src", "href") if attributes.get(name)]
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.inline += [name for name in attributes if name.startswith("on") or name == "style"]
        if tag == "script" and "src" not in attributes:
            self.inline.append(tag)
        self.labelled |= {attributes[name] for name in ("for", "aria-labelledby") if name in attributes}


@pytest.fixture(scope="module")
def page(api: LiveApi) -> Links:
    return Links(api.client.get("/").text)


EXPLANATIONS = (MomentsExplanation, TableExplanation, TextExplanation, WeightsExplanation)


def test_the_page_is_html_and_asks_again_for_newer(api: LiveApi) -> None:
    response = api.client.get("/")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"


def test_a_monitor_may_ask_for_the_head_alone(api: LiveApi) -> None:
    response = api.client.head("/")
    assert response.status_code == 200
    assert response.content == b""


def test_the_page_has_words_for_every_field(page: Links) -> None:
    """A server's sentence names its fields; the page shows what it calls them itself."""
    script = SCRIPTS["text.js"]
    labels = script[script.index("const LABELS") : script.index("};", script.index("const LABELS"))]
    assert all(f"{name}:" in labels for name in FORM_FIELDS if name != "attention")


def test_the_page_draws_every_kind_of_explanation_and_names_no_captioner() -> None:
    script = SCRIPTS["film/explanations.js"]
    kinds = {kind.model_fields["kind"].default for kind in EXPLANATIONS}
    for view, hidden in (("CAPTION_VIEWS", {"weights"}), ("WORD_VIEWS", set())):
        table = script[
            script.index(f"const {view} = {{") : script.index("};", script.index(f"const {view} = {{"))
        ]
        assert set(re.findall(r"^  (\w+):", table, flags=re.MULTILINE)) == kinds - hidden
    assert not re.search(r"stats|g2l|refocus|dual_afr", "".join(SCRIPTS.values()))


#: As much of a document as the views ask for; what is written prints as its text.
DOM = """
class Node {
  constructor(tag, text = "") { Object.assign(this, { tag, own: text, children: [] }); }
  set textContent(text) { this.own = text; }
  setAttribute() {}
  append(...parts) { this.children.push(...parts); }
  toString() { return this.own + this.children.join(""); }
}
const home = { pathname: "/" };
globalThis.document = { createElement: (tag) => new Node(tag), getElementById: () => home };
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="runs the page's script in Node.js")
def test_the_page_draws_a_part_of_each_kind(tmp_path: Path) -> None:
    def moment(at: int, text: str, title: str | None = None) -> ChosenMoment:
        return ChosenMoment(moment=at, time=float(at), text=text, title=title)

    parts = [
        MomentsExplanation(
            name="looks", title="Looked twice", note="So.", words=[[moment(1, "surfing")], []],
            caption=[moment(0, "a cat"), moment(1, "a dog", "Then")],
        ),
        WeightsExplanation(
            name="levels", title="Levels", over="choices", absent="It has none.", words=[None, [0.25, 0.75]],
            choices=[NamedChoice(name=name, title=f"the {name} one") for name in ("low", "high")],
        ),
        WeightsExplanation(name="line", title="A line", over="moments", caption=[0.5, 0.5]),
        TextExplanation(name="members", title="Together", caption="Two agreed.", words=["by one", None]),
        TableExplanation(
            name="rows", title="Rows", columns=[TableColumn(name="text", title="text", role="text")],
            caption=[{"text": "a bird"}], words=[[], [{"text": "a row"}]],
        ),
    ]  # fmt: skip
    times = [[0.0, 1.0], [1.0, 2.0]]
    document = AttentionDocument(words=["a", "dog"], times=times, temporal=[[1.0, 0.0]] * 2, extras=parts)
    shutil.copytree(STATIC, tmp_path / "static")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "dom.js").write_text(DOM)
    (tmp_path / "main.js").write_text(
        'import "./dom.js"; import * as views from "./static/film/explanations.js";'
        f"const attention = {document.model_dump_json()}; const job = {{ id: 'x', sampled: [0.5, 1.5] }};"
        "const clock = (time) => `${time} s`;"
        "const words = [0, 1].map((word) => views.wordView(attention, word, clock).map(String));"
        "const caption = views.captionView(job, attention).map(String);"
        "console.log(JSON.stringify([caption, words]));"
    )
    process = subprocess.run(["node", "main.js"], cwd=tmp_path, capture_output=True, check=True, text=True)
    caption, (first, second) = json.loads(process.stdout)
    assert caption[:2] == ["Looked twice", "So. What changed is marked."]
    assert "a cat" in caption[2]
    assert "Then" in caption[2]
    assert caption[3:5] == ["Together", "Two agreed."]
    assert "a bird" in caption[-1]
    assert first[0].startswith("Looked twice for “a”: surfing (1 s)")
    assert first[1:] == ["It has none.", "by one"]
    assert second == ["the low one: 25\u00a0% of “dog”", "the high one: 75\u00a0% of “dog”", "a row"]


def test_everything_that_the_page_loads_is_here(api: LiveApi, page: Links) -> None:
    local = [address for address in page.addresses if not address.startswith("data:")]
    assert f"/static/{FILES.version}/page.js" in local
    for address in local:
        assert address.startswith("/"), address
        assert api.client.get(address).status_code == 200, address


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *[(name, "javascript") for name in SCRIPTS],
        ("page.css", "css"),
        ("film.css", "css"),
        ("examples/index.json", "application/json"),
        ("examples/coffee.mp4", "video/mp4"),
        ("examples/coffee.webp", "image/webp"),
    ],
)
def test_files_have_their_types(api: LiveApi, name: str, kind: str) -> None:
    response = api.client.get(f"/static/{FILES.version}/{name}")
    assert kind in response.headers["content-type"]
    assert response.headers["x-content-type-options"] == "nosniff"


def test_no_file_outside_the_folder_is_served(api: LiveApi) -> None:
    for path in ("../api.py", "..%2Fapi.py", "%2e%2e/api.py"):
        assert api.client.get(f"/static/{FILES.version}/{path}").status_code == 404


def test_the_policy_of_each_answer_is_as_strict_as_it_can_be(api: LiveApi) -> None:
    def policy(path: str) -> str:
        response = api.client.get(path)
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"
        return response.headers["content-security-policy"]

    assert "script-src 'self';" in policy("/")
    assert "media-src 'self' blob:;" in policy("/")
    assert "unsafe" not in policy("/")
    (style,) = re.findall(r"<style>(.*?)</style>", api.client.get("/").text, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}';" in policy("/f/0")
    assert policy("/livez") == policy("/nowhere") == "default-src 'none'; frame-ancestors 'none'"
    assert "http" not in policy("/docs") + policy("/reference")


def test_the_page_has_nothing_inline_that_its_policy_forbids(page: Links) -> None:
    assert page.inline == []


@pytest.mark.parametrize("path", ["/docs", "/reference", "/v1/reference"])
def test_documentation_loads_from_here_alone(api: LiveApi, path: str) -> None:
    text = api.client.get(path).text
    addresses = [address for address in Links(text).addresses if not address.startswith("data:")]
    assert len(addresses) >= 2
    for address in addresses:
        assert address.startswith("/"), address
        assert api.client.get(address).status_code == 200, address


def test_the_scripts_use_only_ids_that_the_page_has(page: Links) -> None:
    used = {name for script in SCRIPTS.values() for name in re.findall(r'\$\("([\w-]+)"\)', script)}
    assert len(used) > 40
    assert used <= set(page.ids)
    assert page.labelled <= set(page.ids)


def test_the_scripts_load_only_modules_and_names_that_exist() -> None:
    for address, script in SCRIPTS.items():
        for names, path in re.findall(r'import \{ ([^}]*) \} from "([^"]*)"', script):
            module = (STATIC / address).parent.joinpath(path).resolve().relative_to(STATIC)
            exported = set(
                re.findall(r"export (?:async )?(?:function|const|class) (\w+)", SCRIPTS[str(module)])
            )
            assert set(names.split(", ")) <= exported, address


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_all_scripts_are_one_in_which_each_module_has_what_it_imports(tmp_path: Path) -> None:
    modules = {
        "main.js": 'import { twice } from "./a/two.js";\nimport { one } from "./one.js";\n'
        'const three = "of main";\nawait import("./late.js");\nconsole.log(twice(one), three);\n',
        "a/two.js": 'import { one } from "../one.js";\n// two\nexport const twice = (by) => one + by;\n',
        "one.js": "const three = 3;\nexport const one = 1;\nexport class Three {}\n",
        "late.js": 'console.log("late");\n',
    }
    (tmp_path / "late.js").write_text(modules["late.js"])
    script = bundle(modules, "main.js").replace("(() =>", "await (async () =>")  # as page.js awaits nothing
    (tmp_path / "main.mjs").write_text(script)
    process = subprocess.run(["node", "main.mjs"], cwd=tmp_path, capture_output=True, check=True, text=True)
    assert process.stdout == "late\n2 of main\n"


def test_the_scripts_make_nothing_of_text_that_could_run() -> None:
    """Names of films and captions come from others: they are put in as text."""
    for address, script in SCRIPTS.items():
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
        ):
            assert word not in script, address


def test_the_scripts_ask_for_routes_that_exist(api: LiveApi) -> None:
    documented = api.client.get("/openapi.json").json()["paths"]
    server = SCRIPTS["jobs/server.js"]
    called = set(re.findall(r'"(/(?:caption|models|session))"', server))
    for script in SCRIPTS.values():
        rests = re.findall(r"(?:jobPath|pathOf)\((?:job\.)?id(?:, [`\"](/[^`\"]*)[`\"])?\)", script)
        called |= {"/jobs/*" + re.sub(r"\$\{[^}]*\}", "*", rest) for rest in rests}
    routes = {re.sub(r"\{[^}]*\}", "*", path) for path in documented}
    assert {
        "/caption",
        "/session",
        "/jobs/*/recaption",
        "/jobs/*/attention",
        "/jobs/*/segments/*/frame.jpg",
    } <= called
    assert called <= routes


def test_the_page_is_light() -> None:
    """What a browser loads before the first example plays, compressed, and all that the examples weigh."""
    texts = [FILES.compressed[name] for name in (SCRIPT, "index.html", *STYLES, "examples/index.json")]
    assert sum(map(len, texts)) < 50_000
    weights = {path.name: path.stat().st_size for path in (STATIC / "examples").iterdir()}
    assert sum(weights.values()) < 1.5e6
    first = json.loads((STATIC / "examples/index.json").read_text())[0]["name"]
    assert sum(size for name, size in weights.items() if name.startswith(f"{first}.")) < 250e3
    for address, script in SCRIPTS.items():
        assert len(script.splitlines()) <= 300, address


def test_each_example_has_its_files_and_says_how_right_it_is() -> None:
    listed = json.loads((STATIC / "examples/index.json").read_text())
    assert {each["verdict"] for each in listed} == {"right", "partly", "wrong"}
    for each in listed:
        answer = json.loads((STATIC / f"examples/{each['name']}.json").read_text())
        document = AttentionDocument.model_validate(answer["attention"])
        assert " ".join(document.words) == each["caption"] == answer["job"]["caption"]
        assert all(
            (STATIC / f"examples/{each['name']}.{kind}").exists() for kind in ("mp4", "webp", "strip.webp")
        )


def test_static_files_are_compressed_and_kept_for_good_by_their_version(api: LiveApi) -> None:
    kept = api.client.get(f"/static/{FILES.version}/page.js")
    assert kept.headers["content-encoding"] == "gzip"
    assert "immutable" in kept.headers["cache-control"]
    plain = api.client.get(f"/static/{FILES.version}/page.js", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.text == kept.text
    for path in ("/", "/models"):
        tag = api.client.get(path).headers["etag"]
        again = api.client.get(path, headers={"If-None-Match": tag})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    other = api.client.get("/static/0123456789abcdef/page.js")
    assert other.headers["cache-control"] == "no-cache"


def test_page_and_picture_show_the_same_scale() -> None:
    script = SCRIPTS["film/heat.js"]
    triples = re.findall(r"\[(\d+), (\d+), (\d+)\]", script)
    assert [tuple(map(int, triple)) for triple in triples] == list(heatmap.INFERNO)
    assert f"LEAST_RANGE = {heatmap.LEAST_RANGE:g};" in script
    assert f"[DIM, GLOW] = [{heatmap.DIM:g}, {heatmap.GLOW:g}]" in script
