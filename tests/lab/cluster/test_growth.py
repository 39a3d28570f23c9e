"""Which nodes a cluster may get, from its description on the head."""

import io
import json
import ssl
import urllib.error
from pathlib import Path
from typing import Any

import certifi
import pytest
import yaml

from lmzoo.lab.cluster import growth as growths
from lmzoo.lab.cluster.growth import Growth, NodeType, read_growth
from tests.lab.sweep.processes import ROOT

AWS = {
    "provider": {"type": "aws"},
    "max_workers": 4,
    "head_node_type": "head",
    "available_node_types": {
        "head": {"resources": {"CPU": 3}},
        "gpu": {"resources": {"CPU": 8, "GPU": 1}, "max_workers": 2},
        "cpu": {"resources": {"CPU": 16}, "max_workers": 9},
        "any": {},
    },
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def write_config(home, config: dict[str, Any]) -> None:
    (home / "ray_bootstrap_config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))


def test_node_types_are_limited_by_their_own_number_and_by_the_total(home):
    write_config(home, AWS)
    assert read_growth({}) == Growth(
        (NodeType({"CPU": 8, "GPU": 1}, 2), NodeType({"CPU": 16}, 4), NodeType({}, 4)),
        4, autoscaling=True,
    )  # fmt: skip


def test_the_files_of_this_repository_are_understood(home):
    assert read_growth({}) == Growth(), "without a description any node may join"
    write_config(home, yaml.safe_load((ROOT / "cluster.yaml").read_text()))
    growth = read_growth({})
    assert growth.autoscaling
    assert any(kind.resources.get("GPU") for kind in growth.types)
    write_config(home, yaml.safe_load((ROOT / "clusters/onprem.yaml").read_text()))
    assert read_growth({}) == Growth((NodeType({}, 2),), 2), "machines of unknown resources"


def group(name: str, container: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A group of a RayCluster; `container` has the resources of its pods."""
    template = {"spec": {"containers": [{"name": "ray", "resources": container}]}}
    return {"groupName": name, "replicas": 1, "minReplicas": 0, "maxReplicas": 4,
            "rayStartParams": {}, "template": template, **fields}  # fmt: skip


GROUPS = [
    group("limits", {"limits": {"cpu": "8", "nvidia.com/gpu": 4}, "requests": {"cpu": "1"}}),
    group("requests", {"requests": {"cpu": "1500m", "amd.com/gpu": "1"}}, numOfHosts=2),
    group("start", {"limits": {"cpu": 8}}, rayStartParams={"num-cpus": "0", "num-gpus": "2"}),
    group("stated", {"limits": {"cpu": 8}}, resources={"CPU": "6", "GPU": "3"}, replicas=3),
]


def ray_cluster(*, autoscaling: bool) -> dict[str, Any]:
    spec = {"headGroupSpec": group("head", {"limits": {"cpu": "2"}}), "workerGroupSpecs": GROUPS}
    if autoscaling:
        spec["enableInTreeAutoscaling"] = True
    return {"metadata": {"name": "lmzoo", "namespace": "science"}, "spec": spec}


@pytest.fixture
def kubernetes(home, monkeypatch):
    """A stand-in for the server of Kubernetes; returns its replies by path, and the environment."""
    account = home / "account"
    account.mkdir()
    (account / "token").write_text("secret\n")
    (account / "namespace").write_text("science")
    (account / "ca.crt").write_bytes(Path(certifi.where()).read_bytes())
    monkeypatch.setattr(growths, "SERVICE_ACCOUNT", account)
    replies: dict[str, Any] = {}

    def urlopen(request, timeout, context):
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
        assert request.headers["Authorization"] == "Bearer secret"
        if request.full_url not in replies:
            raise urllib.error.HTTPError(request.full_url, 403, "Forbidden", {}, None)
        return io.BytesIO(json.dumps(replies[request.full_url]).encode())

    monkeypatch.setattr(growths.urllib.request, "urlopen", urlopen)
    return replies, {"KUBERNETES_SERVICE_HOST": "fd00::1", "RAY_CLUSTER_NAME": "lmzoo"}


PATH = "https://[fd00::1]:443/apis/ray.io/v1/namespaces/science/rayclusters/lmzoo"


def test_the_groups_of_a_ray_cluster_are_read_as_ray_reads_them(kubernetes):
    from ray.autoscaler._private.kuberay.autoscaling_config import (
        _derive_autoscaling_config_from_ray_cr as derive,
    )

    replies, environment = kubernetes
    replies[PATH] = ray_cluster(autoscaling=True)
    expected = derive(replies[PATH])
    growth = read_growth(environment)
    types = [expected["available_node_types"][g["groupName"]] for g in GROUPS]
    assert [t.count for t in growth.types] == [t["max_workers"] for t in types] == [4, 8, 4, 4]
    for mine, ray_type in zip(growth.types, types, strict=True):
        for key in ("CPU", "GPU"):
            assert mine.resources[key] == ray_type["resources"].get(key, 0)
    assert (growth.nodes, growth.autoscaling) == (expected["max_workers"], True)


def test_a_ray_cluster_of_fixed_size_has_its_replicas(kubernetes):
    replies, environment = kubernetes
    replies[PATH] = ray_cluster(autoscaling=False)
    growth = read_growth(environment)
    assert [t.count for t in growth.types] == [1, 2, 1, 3]
    assert (growth.nodes, growth.autoscaling) == (7, False)


def test_a_pod_that_may_not_read_its_ray_cluster_expects_any_node(kubernetes):
    replies, environment = kubernetes
    unknown = Growth(autoscaling=True)
    assert read_growth(environment) == unknown  # 403
    replies[PATH] = {"kind": "Status"}
    assert read_growth(environment) == unknown
