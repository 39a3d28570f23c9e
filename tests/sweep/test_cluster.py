"""Which workers a cluster can run, now or once its autoscaler has started more nodes."""

import itertools

import pytest
import yaml

from lmzoo.errors import UserError
from lmzoo.sweep import cluster
from lmzoo.sweep.cluster import Resources, check_resources, count_max_workers

GPU_TYPES = {
    "provider": {"type": "aws"},
    "max_workers": 4,
    "available_node_types": {
        "head": {"resources": {"CPU": 3}, "max_workers": 0},
        "gpu": {"resources": {"CPU": 8, "GPU": 1}, "max_workers": 2},
    },
}
MACHINES = {"provider": {"type": "local", "worker_ips": ["10.0.0.2", "10.0.0.3"]}}


@pytest.fixture
def join(tmp_path, monkeypatch):
    """Joins a cluster with these live nodes and this config."""
    monkeypatch.setenv("HOME", str(tmp_path))

    def join_cluster(nodes: list[dict[str, float]], config: dict | None = None) -> None:
        if config is not None:
            (tmp_path / "ray_bootstrap_config.yaml").write_text(yaml.safe_dump(config))
        monkeypatch.setattr(cluster, "ADDRESS", "10.0.0.1:6379")
        alive = [{"Alive": True, "Resources": node} for node in nodes]
        dead = [{"Alive": False, "Resources": {"CPU": 64, "GPU": 8}}]
        monkeypatch.setattr("ray.nodes", lambda: alive + dead)

    return join_cluster


@pytest.mark.parametrize(
    ("nodes", "config", "needed"),
    [
        ([{"CPU": 4}], None, Resources(gpus=1.0)),
        ([{"CPU": 4}], None, Resources(cpus=5.0)),
        ([{"CPU": 4}, {"CPU": 1, "GPU": 1}], None, Resources(cpus=2.0, gpus=0.5)),
        ([{"CPU": 3}], GPU_TYPES, Resources(gpus=2.0)),
        ([{"CPU": 3}], {**GPU_TYPES, "max_workers": 0}, Resources(gpus=1.0)),
        ([{"CPU": 3}] * 3, MACHINES, Resources(gpus=1.0)),
    ],
)
def test_a_worker_that_fits_on_no_node_is_refused_without_waiting(
    join, nodes, config, needed, monkeypatch
):
    join(nodes, config)
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("it waits"))
    with pytest.raises(UserError, match="no node of the cluster has or will have"):
        check_resources(needed)


@pytest.mark.parametrize(
    ("nodes", "config", "needed", "max_workers"),
    [
        ([{"CPU": 3}], GPU_TYPES, Resources(gpus=1.0), 2),
        ([{"CPU": 3}], GPU_TYPES, Resources(gpus=0.25), 8),
        ([{"CPU": 3}], GPU_TYPES, Resources(), 16),
        ([{"CPU": 2}, {"CPU": 4, "GPU": 1}], None, Resources(gpus=0.5), 2),
        ([{"CPU": 2}, {"CPU": 4, "GPU": 1}], None, Resources(), 6),
        ([{"CPU": 2}, {"CPU": 2}], MACHINES, Resources(), 4),
        ([{"CPU": 2}], None, Resources(concurrent=1), 1),
    ],
)
def test_a_worker_that_fits_on_a_live_or_startable_node_is_accepted(
    join, nodes, config, needed, max_workers
):
    join(nodes, config)
    check_resources(needed)
    assert count_max_workers(needed) == max_workers


def test_the_sweep_waits_for_a_machine_that_may_join(join, monkeypatch):
    join([{"CPU": 3}] * 2, MACHINES)
    monkeypatch.setattr("time.sleep", lambda _: join([{"CPU": 3}] * 2 + [{"CPU": 3, "GPU": 1}]))
    check_resources(Resources(gpus=1.0))

    join([{"CPU": 3}] * 2, MACHINES)
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr("time.monotonic", itertools.count(0, 50).__next__)
    with pytest.raises(UserError, match="needs 1 CPU and 1 GPU"):
        check_resources(Resources(gpus=1.0))


def test_a_fraction_of_several_gpus_is_refused():
    with pytest.raises(UserError, match=r"--gpus-per-trial 1\.5"):
        Resources(gpus=1.5)
