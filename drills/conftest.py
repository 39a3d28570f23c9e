"""One cluster for all drills: a head, two workers and a laptop, started by `ray up`."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from drills.cluster import Cluster
from drills.hosts import ROOT, Network

TOOLS = ("sshd", "ssh", "rsync", "ip", "unshare", "nsenter", "ssh-keygen")


@pytest.fixture(scope="session")
def cluster():
    """Yield a running cluster; remove it and all its files afterwards."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root and {', '.join(missing or TOOLS)}")
    hidden = [path for path in ("/root", "/tmp", "/mnt") if ROOT.is_relative_to(path)]
    assert not hidden, f"a host has its own {hidden[0]}: move the checkout elsewhere"
    folder = Path(tempfile.mkdtemp(prefix="lmzoo-drill-", dir="/var/tmp"))
    try:
        with Network(folder) as network:
            head = network.host("head", 10)
            workers = [network.host("first", 11), network.host("second", 12)]
            laptop = network.host("laptop", 5, checkout=True)
            cluster = Cluster(head, workers, laptop, network.shared)
            cluster.up()
            yield cluster
            cluster.down()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def undisturbed(cluster) -> Path:
    """Run a sweep on the head without any fault and return its store."""
    command = f"cd lmzoo && PYTHONPATH=. {cluster.sweep('undisturbed')}"
    run = cluster.head.run(command, seconds=1800)
    assert run.returncode == 0, run.stdout + run.stderr
    return cluster.store("undisturbed")
