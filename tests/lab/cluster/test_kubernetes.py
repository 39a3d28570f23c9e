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


def containers(cluster) -> dict[str, dict[str, Any]]:
    """Return the container of the head and of each worker group."""
    spec = cluster["spec"]
    groups = {"head": spec["headGroupSpec"]}
    groups |= {group["groupName"]: group for group in spec["workerGroupSpecs"]}
    return {name: g["template"]["spec"]["containers"][0] for name, g in groups.items()}


def test_kubernetes_accepts_the_manifest(cluster):
    assert not errors(cluster, schema())
    cluster["spec"]["enableInTreeAutoscalin"] = True
    assert errors(cluster, schema()), "a misspelt field"
    claim = documents()[1]
    assert (claim["apiVersion"], claim["kind"]) == ("v1", "PersistentVolumeClaim")


def test_workers_start_on_demand_and_connections_need_the_token(cluster):
    spec = cluster["spec"]
    assert spec["enableInTreeAutoscaling"] is True
    assert all(g["minReplicas"] == 0 < g["maxReplicas"] for g in spec["workerGroupSpecs"])
    limits = {name: c["resources"]["limits"] for name, c in containers(cluster).items()}
    assert [name for name, own in limits.items() if "nvidia.com/gpu" in own] == ["gpu"]
    assert spec["authOptions"] == {"mode": "token"}
    assert spec["headGroupSpec"]["rayStartParams"]["dashboard-host"] == "127.0.0.1"


def test_pods_have_the_ray_of_the_tests_the_store_and_their_resources(cluster):
    image = (ROOT / "clusters/Dockerfile").read_text()
    assert f"FROM rayproject/ray:{ray.__version__}-" in image
    assert cluster["spec"]["rayVersion"] == ray.__version__
    claim = documents()[1]["metadata"]["name"]
    for container in containers(cluster).values():
        assert {"name": "LMZOO_STORAGE", "value": "/mnt/lmzoo"} in container["env"]
        assert container["volumeMounts"] == [{"name": "store", "mountPath": "/mnt/lmzoo"}]
        assert container["resources"]["limits"] == container["resources"]["requests"]
    spec = cluster["spec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        (volume,) = group["template"]["spec"]["volumes"]
        assert volume == {"name": "store", "persistentVolumeClaim": {"claimName": claim}}
