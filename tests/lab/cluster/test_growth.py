"""Which nodes a cluster may get, from its description on the head."""

from typing import Any

import pytest
import yaml

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


def test_on_kubernetes_unknown_nodes_may_start(home):
    assert read_growth({"KUBERNETES_SERVICE_HOST": "fd00::1"}) == Growth()
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "RAY_CLUSTER_NAME": "lmzoo"}
    assert read_growth(environ) == Growth(autoscaling=True)
