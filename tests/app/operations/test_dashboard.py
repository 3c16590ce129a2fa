"""The dashboard and the alerts: each expression asks for metrics and labels that the service tells."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML

from app.errors import EngineCrashed
from app.jobs.job_store import Jobs
from app.jobs.worker_registry import WorkerInfo, WorkerRegistry
from extractors.media.errors import NotAVideo
from tests.app.live_api import LiveApi, finished, send
from tests.app.scripted_worker import ScriptedWorker

#: What Prometheus adds itself to what it collects.
OWN_NAMES, OWN_LABELS = {"up"}, {"job", "instance"}
CALL = re.compile(r"\b([a-z_]+)\s*\(")
FUNCTIONS = {"max", "sum", "by", "rate", "increase", "histogram_quantile", "time", "vector"}


def dashboard(root: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((root / "docker/grafana/reelword.json").read_text())
    return document


def panels(root: Path) -> list[dict[str, Any]]:
    return [panel for panel in dashboard(root)["panels"] if panel["type"] != "row"]


def rules(root: Path) -> list[dict[str, Any]]:
    groups = YAML(typ="safe").load((root / "docker/prometheus/alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions(root: Path) -> Iterator[str]:
    yield from (target["expr"] for panel in panels(root) for target in panel["targets"])
    yield from (rule["expr"] for rule in rules(root))


@pytest.fixture
def told(api: LiveApi, worker: ScriptedWorker, jobs: Jobs) -> dict[str, set[str]]:
    """Sample name → its labels, of a service in which something of each kind has happened."""
    finished(api, worker)
    for error in (NotAVideo("It is no video."), EngineCrashed("It crashed.")):
        send(api)
        assert jobs.fail(worker.take(), error)
    info = WorkerInfo(
        name="w", pid=1, host="here", version="0", is_ready=True, device="cpu", started_at=1.0, captioners=[],
        engine_started_at=2.0, memory={"worker": 1},
    )  # fmt: skip
    WorkerRegistry(jobs.server, jobs.keys).advertise(info)
    api.client.get("/jobs/unknown")
    labels = defaultdict[str, set[str]](set)
    for family in text_string_to_metric_families(api.client.get("/metrics").text):
        for sample in family.samples:
            labels[sample.name] |= set(sample.labels)
    return dict(labels)


def test_each_expression_asks_for_what_is_told(root: Path, told: dict[str, set[str]]) -> None:
    queries = list(expressions(root))
    assert len(queries) > 25
    for expression in queries:
        names = set(re.findall(r"\b(?:reelword|process)_\w+|\bup\b", expression))
        assert names or expression == "vector(0)"
        assert names - OWN_NAMES <= set(told), expression
        labels = OWN_LABELS.union(*(told.get(name, set()) for name in names))
        grouped = {
            label for by in re.findall(r"by \(([^)]*)\)", expression) for label in re.split(r",\s*", by)
        }
        chosen = set(re.findall(r"(\w+)=~?\"", expression))
        assert grouped | chosen <= labels, expression


def test_each_expression_is_balanced_and_calls_known_functions(root: Path) -> None:
    for expression in expressions(root):
        for left, right in ("()", "[]", "{}"):
            assert expression.count(left) == expression.count(right), expression
        assert set(CALL.findall(expression)) <= FUNCTIONS, expression


def test_counters_are_asked_for_their_rate_and_shared_ones_for_the_maximum(root: Path) -> None:
    """A sum over the API's processes would count each job once for each of them."""
    for expression in expressions(root):
        for name in re.findall(r"reelword_\w+", expression):
            if name.endswith(("_total", "_bucket", "_sum")):
                assert re.search(rf"(rate|increase)\({name}", expression), expression
            is_per_process = name.startswith(
                ("reelword_requests", "reelword_request_", "reelword_problems", "reelword_up")
            )
            assert is_per_process or "max" in expression, expression


def test_the_legend_s_labels_are_kept_by_the_expression(root: Path) -> None:
    for panel in panels(root):
        for target in panel["targets"]:
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                assert re.search(rf"by \([^)]*\b{label}\b", target["expr"]), panel["title"]


def test_panels_have_a_place_of_their_own(root: Path) -> None:
    taken: set[tuple[int, int]] = set()
    every = dashboard(root)["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    for panel in every:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_compose_mounts_what_is_provisioned(root: Path) -> None:
    reader = YAML(typ="safe")
    services = reader.load((root / "docker-compose.yml").read_text())["services"]
    for name in ("prometheus", "grafana"):
        assert services[name]["profiles"] == ["monitoring"]
        assert re.search(r":v?\d+\.\d+\.\d+}$", services[name]["image"]), "pinned"
        for volume in services[name]["volumes"]:
            source = volume.split(":")[0]
            assert not source.startswith(".") or (root / source).exists()
    folder = root / "docker/grafana/provisioning"
    (source,) = reader.load((folder / "datasources/prometheus.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = reader.load((folder / "dashboards/reelword.yaml").read_text())["providers"]
    mounted = [volume.split(":")[1] for volume in services["grafana"]["volumes"]]
    assert f"{provider['options']['path']}/reelword.json" in mounted
    scraped = reader.load((root / "docker/prometheus/prometheus.yml").read_text())["scrape_configs"][0]
    assert scraped["static_configs"][0]["targets"] == ["api:8000"]
    assert services["api"]["environment"]["REELWORD_PEER_HOSTS"] == "${REELWORD_PEER_HOSTS:-api}"
    key = scraped["authorization"]["credentials_file"]
    assert key == f"/run/secrets/{services['prometheus']['secrets'][0]}"
