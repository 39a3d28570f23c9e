"""clusters/kubernetes.yaml follows KubeRay's schema, is private, and starts pods on demand."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from jsonschema import Draft202012Validator

ROOT = Path(__file__).parents[3]
SCHEMA = Path(__file__).parent / "data/raycluster.schema.json.gz"


@pytest.fixture
def cluster():
    return documents()[0]


def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "clusters/kubernetes.yaml").read_text()))


def errors(document: Any, schema: dict[str, Any]) -> list[str]:
    """Return what Kubernetes would refuse in a document, unknown fields included."""
    return [e.message for e in Draft202012Validator(strict(schema)).iter_errors(document)]


def strict(schema: Any) -> Any:
    """Forbid fields that are not in the schema, as `kubectl apply` does."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and "type" in schema:
        closed.setdefault("additionalProperties", False)
    return closed


def schema() -> dict[str, Any]:
    return json.loads(gzip.decompress(SCHEMA.read_bytes()))


@pytest.fixture
def claim():
    """The claim of the volume that holds the store."""
    return documents()[1]


@pytest.fixture
def pods(cluster) -> dict[str, dict[str, Any]]:
    """The pod of the head and of each worker group."""
    spec = cluster["spec"]
    found = {"head": spec["headGroupSpec"]["template"]["spec"]}
    for group in spec["workerGroupSpecs"]:
        found[group["groupName"]] = group["template"]["spec"]
    return found


def test_kubernetes_accepts_the_manifest(cluster):
    assert not errors(cluster, schema())


def test_kubernetes_refuses_a_misspelt_field(cluster):
    cluster["spec"]["enableInTreeAutoscalin"] = True
    assert errors(cluster, schema())


def test_the_store_is_a_volume_that_outlives_the_pods(claim):
    assert claim["apiVersion"] == "v1"
    assert claim["kind"] == "PersistentVolumeClaim"


def test_workers_start_on_demand(cluster):
    spec = cluster["spec"]
    assert spec["enableInTreeAutoscaling"] is True
    for group in spec["workerGroupSpecs"]:
        assert group["minReplicas"] == 0 < group["maxReplicas"]


def test_only_the_group_of_gpus_has_some(pods):
    for name, pod in pods.items():
        limits = pod["containers"][0]["resources"]["limits"]
        assert ("nvidia.com/gpu" in limits) == (name == "gpu")


def test_connections_need_the_token_and_the_dashboard_is_private(cluster):
    spec = cluster["spec"]
    assert spec["authOptions"] == {"mode": "token"}
    assert spec["headGroupSpec"]["rayStartParams"]["dashboard-host"] == "127.0.0.1"


def test_pods_have_the_ray_of_the_tests(cluster):
    image = (ROOT / "clusters/Dockerfile").read_text()
    assert f"FROM rayproject/ray:{ray.__version__}-" in image
    assert cluster["spec"]["rayVersion"] == ray.__version__


def test_pods_have_the_store(pods, claim):
    name = claim["metadata"]["name"]
    for pod in pods.values():
        container = pod["containers"][0]
        assert {"name": "LMZOO_STORAGE", "value": "/mnt/lmzoo"} in container["env"]
        assert container["volumeMounts"] == [{"name": "store", "mountPath": "/mnt/lmzoo"}]
        (volume,) = pod["volumes"]
        assert volume == {"name": "store", "persistentVolumeClaim": {"claimName": name}}


def test_pods_have_the_resources_that_they_ask_for(pods):
    for pod in pods.values():
        resources = pod["containers"][0]["resources"]
        # Or Kubernetes may place more pods on a node than it has room for.
        assert resources["limits"] == resources["requests"]
