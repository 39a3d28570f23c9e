"""A sweep from the head, and one from the laptop that loses everything but the head."""

import contextlib
import subprocess
import time

from drills.hosts import ROOT
from drills.site import Site, wait_until
from lmzoo.sweep.baselines import BASELINES
from tests.sweep.byhand import outcome


def test_from_the_head_it_joins_the_cluster_and_uses_all_of_it(site: Site, undisturbed):
    assert site.trained_on("undisturbed") == {"head", "first", "second"}
    assert len(outcome(undisturbed)) == 3 * (2 + 2) + len(BASELINES) * 2


def test_what_the_cluster_can_never_hold_is_refused(site: Site):
    asked = site.sweep("refused", "--gpus-per-trial", "1")
    refused = site.head.run(f"cd lmzoo && PYTHONPATH=. timeout 300 {asked}")
    assert refused.returncode == 2
    assert "asks for 1 CPU and 1 GPU, but no node of the cluster" in refused.stderr


def test_a_sleeping_laptop_a_dead_host_and_a_cut_network_change_no_digit(site: Site, undisturbed):
    first, second = site.workers
    looking_on = site.laptop.start(site.from_laptop("disturbed", "--submit", "/mnt/cluster.yaml"))
    begun = wait_until(lambda: site.run_of("disturbed", first), 1200)
    with contextlib.ExitStack() as until_the_end:
        with site.laptop.cut():  # it goes to sleep
            first.kill()
            begun_too = wait_until(lambda: site.run_of("disturbed", second), 1200)
            until_the_end.enter_context(second.cut())
            time.sleep(30)  # longer than SSH waits for an answer
        attach = site.from_laptop("disturbed", "--attach", "/mnt/cluster.yaml")
        back = site.laptop.run(attach, seconds=1800)
        shown, _ = looking_on.communicate(timeout=900)

    assert looking_on.returncode == 0, shown
    assert "the connection is lost" in shown
    assert back.returncode == 0, back.stdout + back.stderr
    for run, lost in ((begun, first), (begun_too, second)):
        assert lost.name in site.hosts_of(run)
        assert len(site.hosts_of(run)) > 1, f"{run.name} did not go on elsewhere"
    assert outcome(site.store("disturbed")) == outcome(undisturbed)
    assert table(site, "disturbed") == table(site, "undisturbed")
    assert "fetched: python analysis/rank.py runs/lmzoo/gru_ablation-text" in back.stderr
    fetched = site.laptop.home / "work" / "runs/lmzoo/gru_ablation-text"
    assert outcome(fetched) == outcome(undisturbed)
    assert not list(fetched.glob("*/checkpoint.pt"))


def table(site: Site, name: str) -> str:
    """The ranking, all digits."""
    rank = ["-m", "lmzoo.cli.rank", str(site.store(name)), "--format", "csv"]
    python = [f"{ROOT}/.venv/bin/python", *rank]
    return subprocess.run(python, capture_output=True, text=True, check=True).stdout
