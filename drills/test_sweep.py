"""A sweep from the head, and one from a laptop during which everything but the head fails."""

import contextlib
import time

from drills.cluster import Cluster, table
from drills.hosts import ROOT
from lmzoo.lab.study.point_planner import MOST_AGAIN
from lmzoo.trainables.resolve import BASELINES
from tests.lab.sweep.local_sweep import outcome
from tests.lab.sweep.processes import wait_until


def test_sweep_from_the_head_uses_all_hosts(cluster: Cluster, undisturbed):
    assert cluster.hosts_of_sweep("undisturbed") == {"head", "first", "second"}
    again = len(outcome(undisturbed)) - 3 * (2 + 2) - len(BASELINES) * 2
    assert 0 <= again <= 3 * MOST_AGAIN


def test_request_that_no_node_can_fulfil_is_refused(cluster: Cluster):
    command = cluster.sweep("refused", "--gpus-per-trial", "1")
    refused = cluster.head.run(f"cd lmzoo && PYTHONPATH=. timeout 300 {command}")
    assert refused.returncode == 2
    assert "a worker needs 1 CPU and 1 GPU, but no node of the cluster" in refused.stderr


def test_lost_laptop_host_and_network_change_no_digit(cluster: Cluster, undisturbed):
    first, second = cluster.workers
    sweep = f"--submission-id disturbed --working-dir . -- {cluster.sweep('disturbed')}"
    submitted = cluster.laptop.start(cluster.from_laptop(f"submit {sweep}"))
    first_run = wait_until(lambda: cluster.unfinished_run("disturbed", first), 1200)
    with contextlib.ExitStack() as contexts:
        with cluster.laptop.disconnect():  # the laptop sleeps
            first.kill()
            second_run = wait_until(lambda: cluster.unfinished_run("disturbed", second), 1200)
            contexts.enter_context(second.disconnect())
            time.sleep(30)  # longer than SSH waits for an answer
        follow = cluster.from_laptop("logs --follow disturbed")
        followed = cluster.laptop.run(follow, seconds=1800)
        submitted.communicate(timeout=900)  # it ends when its tunnel does
        ended = cluster.laptop.run(cluster.from_laptop("status disturbed"))

    assert "/mnt/disturbed/" in followed.stdout, followed.stdout + followed.stderr
    assert "succeeded" in ended.stdout, ended.stdout + ended.stderr
    for run, lost in ((first_run, first), (second_run, second)):
        assert lost.name in cluster.hosts_of(run)
        assert len(cluster.hosts_of(run)) > 1, f"{run.name} was not continued on another host"
    assert outcome(cluster.store("disturbed")) == outcome(undisturbed)
    assert table(cluster.store("disturbed")) == table(cluster.store("undisturbed"))
    fetch = f"{ROOT}/.venv/bin/ray rsync-down /mnt/cluster.yaml /mnt/disturbed/ ~/runs/"
    done = cluster.laptop.run(f"mkdir -p ~/runs && cd {ROOT} && {fetch}")
    assert done.returncode == 0, done.stdout + done.stderr
    fetched = cluster.laptop.home / "runs" / cluster.store("disturbed").name
    assert outcome(fetched) == outcome(undisturbed)
