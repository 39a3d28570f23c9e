"""One cluster for all drills: a head, two workers and a laptop, brought up by `ray up`."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from drills.hosts import Network
from drills.overlay import overlay
from drills.site import Site

NEEDED = ("sshd", "ssh", "rsync", "ip", "unshare", "nsenter", "ssh-keygen")


@pytest.fixture(scope="session")
def site():
    """A running cluster; taken down, and every trace of it removed, at the end."""
    missing = [tool for tool in NEEDED if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root and {', '.join(missing or NEEDED)}")
    folder = Path(tempfile.mkdtemp(prefix="lmzoo-drill-", dir="/var/tmp"))
    try:
        with Network(folder) as network:
            head = network.host("head", 10)
            workers = [network.host("first", 11), network.host("second", 12)]
            laptop = network.host("laptop", 5, checkout=True)
            overlay(head, workers, network.shared / "cluster.yaml")
            site = Site(head, workers, laptop, network.shared)
            site.up()
            yield site
            site.down()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def undisturbed(site) -> Path:
    """The store of the sweep that nobody disturbed, run on the head."""
    run = site.head.run(f"cd lmzoo && PYTHONPATH=. {site.sweep('undisturbed')}", seconds=1800)
    assert run.returncode == 0, run.stdout + run.stderr
    return site.store("undisturbed")
