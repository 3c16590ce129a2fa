"""The Kubernetes manifests: against the schemas of their kinds, and against what they are to run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from jsonschema import validate
from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML

from app.settings import Settings
from tests.app.live_api import LiveApi

VERSIONS = ("1.27.0", kubernetes_validate.latest_version())
Document = dict[str, Any]

#: What KEDA's custom resource must look like (keda.sh/v1alpha1), of the parts that are used here; its own
#: schema is in its Helm chart and no package.
SCALED_OBJECT: Document = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "keda.sh/v1alpha1"},
        "kind": {"const": "ScaledObject"},
        "spec": {
            "type": "object",
            "required": ["scaleTargetRef", "triggers"],
            "additionalProperties": False,
            "properties": {
                "scaleTargetRef": {
                    "type": "object",
                    "required": ["name"],
                    "additionalProperties": False,
                    "properties": {
                        name: {"type": "string"}
                        for name in ("name", "apiVersion", "kind", "envSourceContainerName")
                    },
                },
                "minReplicaCount": {"type": "integer", "minimum": 0},
                "maxReplicaCount": {"type": "integer", "minimum": 1},
                "pollingInterval": {"type": "integer", "minimum": 1},
                "cooldownPeriod": {"type": "integer", "minimum": 0},
                "fallback": {
                    "type": "object",
                    "required": ["failureThreshold", "replicas"],
                    "additionalProperties": False,
                    "properties": {
                        name: {"type": "integer", "minimum": 0} for name in ("failureThreshold", "replicas")
                    },
                },
                "advanced": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {"horizontalPodAutoscalerConfig": {"type": "object"}},
                },
                "triggers": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "required": ["type", "metadata"],
                        "properties": {
                            "type": {"const": "prometheus"},
                            "metadata": {
                                "type": "object",
                                "required": ["serverAddress", "query", "threshold"],
                                "additionalProperties": {"type": "string"},
                            },
                        },
                    },
                },
            },
        },
    },
}


@pytest.fixture(scope="module")
def documents(root: Path) -> list[Document]:
    files = sorted((root / "docker/kubernetes").glob("*.yaml"))
    assert len(files) >= 7
    reader = YAML(typ="safe")
    return [document for file in files for document in reader.load_all(file.read_text())]


def of_kind(documents: list[Document], *kinds: str) -> list[Document]:
    return [document for document in documents if document["kind"] in kinds]


def workloads(documents: list[Document]) -> list[Document]:
    return of_kind(documents, "Deployment", "StatefulSet")


def containers(documents: list[Document]) -> Iterator[tuple[Document, Document]]:
    """Each container with the specification of its pod."""
    for workload in workloads(documents):
        pod = workload["spec"]["template"]["spec"]
        yield from ((pod, container) for container in pod["containers"])


@pytest.mark.parametrize("version", VERSIONS)
def test_each_manifest_follows_the_schema_of_its_kind(documents: list[Document], version: str) -> None:
    checked = 0
    for document in documents:
        if document["apiVersion"].startswith("keda.sh/"):
            validate(document, SCALED_OBJECT)
        else:
            kubernetes_validate.validate(document, version, strict=True)
            checked += 1
    assert checked >= 14


def test_everything_lies_in_one_namespace(documents: list[Document]) -> None:
    (namespace,) = of_kind(documents, "Namespace")
    name = namespace["metadata"]["name"]
    others = [document for document in documents if document is not namespace]
    assert {document["metadata"]["namespace"] for document in others} == {name}
    kinds = [(document["kind"], document["metadata"]["name"]) for document in others]
    assert len(kinds) == len(set(kinds))


def test_settings_are_settings(documents: list[Document]) -> None:
    variables = {variable for name in Settings.model_fields for variable in Settings.variables(name)}
    (config,) = of_kind(documents, "ConfigMap")
    named = set(config["data"])
    for _, container in containers(documents):
        named |= {each["name"] for each in container["env"] if each.get("value")}
    assert named <= variables, named - variables
    Settings.model_validate({name.lower().removeprefix("reelword_"): v for name, v in config["data"].items()})


def test_pods_may_do_no_more_than_they_need(documents: list[Document]) -> None:
    for pod, container in containers(documents):
        name, security = container["name"], container["securityContext"]
        assert pod["securityContext"]["runAsNonRoot"], name
        assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
        assert pod["automountServiceAccountToken"] is False
        assert security["readOnlyRootFilesystem"], name
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}


def test_pods_are_asked_how_they_are_and_are_bounded(documents: list[Document]) -> None:
    for _, container in containers(documents):
        assert {"startupProbe", "readinessProbe"} <= set(container), container["name"]
        assert {"cpu", "memory"} <= set(container["resources"]["requests"])
        assert container["resources"]["limits"]["memory"]
        ports = {port["name"] for port in container.get("ports", [])}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            target = container.get(probe, {}).get("httpGet") or container.get(probe, {}).get("tcpSocket")
            assert target is None or target["port"] in ports


def test_what_is_mounted_is_there(documents: list[Document]) -> None:
    claims = {claim["metadata"]["name"] for claim in of_kind(documents, "PersistentVolumeClaim")}
    for workload in workloads(documents):
        pod = workload["spec"]["template"]["spec"]
        claimed = {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])}
        volumes = claimed | {volume["name"] for volume in pod.get("volumes", [])}
        mounts = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
        assert mounts == volumes
        for volume in pod.get("volumes", []):
            claim = volume.get("persistentVolumeClaim")
            assert claim is None or claim["claimName"] in claims


def test_selectors_find_their_pods(documents: list[Document]) -> None:
    labels = [workload["spec"]["template"]["metadata"]["labels"] for workload in workloads(documents)]
    names = [label["app"] for label in labels]
    for document in of_kind(documents, "Service"):
        assert document["spec"]["selector"] in labels
    for document in [*workloads(documents), *of_kind(documents, "PodDisruptionBudget")]:
        assert document["spec"]["selector"]["matchLabels"] in labels
    for document in of_kind(documents, "NetworkPolicy"):
        selector = document["spec"]["podSelector"]
        assert selector.get("matchLabels", labels[0]) in labels
        assert set(selector.get("matchExpressions", [{"values": []}])[0]["values"]) <= set(names)
    for document in of_kind(documents, "HorizontalPodAutoscaler", "ScaledObject"):
        assert document["spec"]["scaleTargetRef"]["name"] in names


def test_redis_and_images_are_those_of_compose(documents: list[Document], root: Path) -> None:
    compose = YAML(typ="safe").load((root / "docker-compose.yml").read_text())["services"]
    by_name = {container["name"]: container for _, container in containers(documents)}
    # the first two words read the password here, and those of the shell make it there
    assert by_name["redis"]["command"][3:] == compose["redis"]["command"][4:]
    for name in ("redis", "api", "worker"):
        usual = re.sub(r"\$\{\w+:-([^}]+)\}", r"\1", compose[name]["image"])
        assert by_name[name]["image"] == usual, name
    (service,) = [each for each in of_kind(documents, "Service") if each["metadata"]["name"] == "redis"]
    (port,) = service["spec"]["ports"]
    for name in ("api", "worker"):
        variables = {each["name"]: each for each in by_name[name]["env"]}
        assert variables["REDIS_URL"]["value"] == f"redis://default:$(REDIS_PASSWORD)@redis:{port['port']}/0"


def test_all_have_the_password_of_redis_from_one_secret(documents: list[Document]) -> None:
    variables = {container["name"]: container["env"] for _, container in containers(documents)}
    secret = {"secretKeyRef": {"name": "redis", "key": "password"}}
    for name, variable in (
        ("redis", "REDISCLI_AUTH"),
        ("api", "REDIS_PASSWORD"),
        ("worker", "REDIS_PASSWORD"),
    ):
        # before the variable that it is a part of, as Kubernetes puts them together in their order
        assert variables[name][0] == {"name": variable, "valueFrom": secret}


def test_probes_are_let_in(documents: list[Document], api: LiveApi) -> None:
    """The API answers only to its own names, and the kubelet asks by address unless it is told a name."""
    by_name = {container["name"]: container for _, container in containers(documents)}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        request = by_name["api"][probe]["httpGet"]
        headers = {header["name"]: header["value"] for header in request["httpHeaders"]}
        assert api.client.get(request["path"], headers=headers).status_code == 200
        refused = api.client.get(request["path"], headers={"Host": "10.1.2.3:8000"})
        assert refused.status_code == 400, "without the header this test would tell nothing"


def test_autoscaling_asks_for_metrics_that_there_are(documents: list[Document], api: LiveApi) -> None:
    metrics = {family.name for family in text_string_to_metric_families(api.client.get("/metrics").text)}
    (scaled,) = of_kind(documents, "ScaledObject")
    for trigger in scaled["spec"]["triggers"]:
        names = set(re.findall(r"reelword_\w+", trigger["metadata"]["query"]))
        assert names
        assert names <= metrics
