"""Failures are charged to the run or to the node that is at fault."""

import pytest

from lmzoo.lab.sweep.fleet.health import DEATHS, DEATHS_ON_THE_ONLY_NODE, NODE_RUNS, Health

NODES = ("good", "bad")
THREE = (*NODES, "third")


@pytest.fixture
def health() -> Health:
    return Health()


def test_on_the_only_node_an_error_decides_at_once_and_deaths_later(health):
    health.failed(["broken"], "only", ["only"], "an error")
    assert health.decides("broken", ["only"])
    for death in range(DEATHS_ON_THE_ONLY_NODE):
        assert not health.decides("run", ["only"]), death
        health.failed(["run"], "only", ["only"])
    assert health.decides("run", ["only"])


def test_a_death_counts_from_the_second_one_on_a_node_and_never_in_a_pack(health):
    for node in NODES:
        for _ in range(DEATHS):
            assert not health.decides("run", NODES)
            health.failed(["run"], node, NODES)
            health.failed(["a", "b"], node, NODES, "an error")
    assert health.decides("run", NODES)
    assert not health.decides("a", NODES)


@pytest.mark.parametrize("progress_elsewhere", [True, False])
def test_a_node_that_fails_different_runs_is_left_out_if_another_trains(health, progress_elsewhere):
    if progress_elsewhere:
        health.trained("x", "good")
    for run in range(NODE_RUNS):
        assert not health.left_out
        health.failed([str(run)], "bad", NODES, "no library")
    assert ("bad" in health.left_out) is progress_elsewhere
    if progress_elsewhere:
        assert "3 runs failed there and none trained an epoch: no library" in health.left_out["bad"]
        assert health.usable(NODES) == {"good"}


def test_runs_that_fail_everywhere_one_dead_pack_and_the_last_node_leave_no_node_out(health):
    for node in NODES:
        health.trained("x", node)
    health.failed(list("abcdef"), "bad", NODES)
    health.trained("a", "bad")
    health.failed(list("bcdef"), "bad", NODES)
    assert not health.left_out, "an epoch came between"
    for run in range(10):
        for node in NODES:
            health.failed([str(run)], node, NODES, "a bug of the point")
    alone = Health()
    alone.trained("x", "good")
    for run in range(20):
        alone.failed([str(run)], "good", ["good"], "an error")
    assert not health.left_out
    assert not alone.left_out


def test_two_nodes_that_have_not_trained_since_decide_only_if_there_is_no_third(health):
    for node in NODES:
        health.failed(["run"], node, THREE, "no library")
    assert not health.decides("run", THREE)
    health.trained("x", "good")
    assert health.decides("run", THREE)


def test_a_pack_with_a_suspect_is_charged_to_the_suspect_alone(health):
    for node in NODES:
        health.trained("x", node)
    health.failed(["poison", "a", "b"], "bad", NODES)
    health.trained("x", "bad")
    for _ in range(3):
        health.failed(["poison", "c", "d", "e"], "good", THREE)
    assert health.failed_on("poison") == set(NODES)
    assert health.is_apart("poison", THREE)
    assert not health.is_apart("a", THREE)
    assert not health.failed_on("c")
    assert not health.left_out


def test_an_epoch_clears_a_run(health):
    health.failed(["run"], "bad", NODES, "an error")
    health.trained("run", "good")
    assert not health.failed_on("run")
    health.failed(["run"], "good", NODES, "an error")
    assert not health.decides("run", NODES)
