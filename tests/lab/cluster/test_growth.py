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
    with_gpu = NodeType({"CPU": 8, "GPU": 1}, 2)
    with_cpus = NodeType({"CPU": 16}, 4)
    unknown = NodeType({}, 4)
    expected = Growth((with_gpu, with_cpus, unknown), 4, autoscaling=True)
    assert read_growth({}) == expected


def config_of(file: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / file).read_text())


def test_without_a_description_any_node_may_join(home):
    assert read_growth({}) == Growth()


def test_the_cluster_of_this_repository_may_start_nodes_with_gpus(home):
    write_config(home, config_of("cluster.yaml"))
    growth = read_growth({})
    kinds = set()
    for node in growth.types:
        kinds |= node.resources.keys()
    assert growth.autoscaling
    assert "GPU" in kinds


def test_the_machines_of_this_repository_have_unknown_resources(home):
    write_config(home, config_of("clusters/onprem.yaml"))
    unknown = NodeType({}, 2)
    assert read_growth({}) == Growth((unknown,), 2)


def test_on_kubernetes_unknown_nodes_may_start(home):
    assert read_growth({"KUBERNETES_SERVICE_HOST": "fd00::1"}) == Growth()
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "RAY_CLUSTER_NAME": "lmzoo"}
    assert read_growth(environ) == Growth(autoscaling=True)
