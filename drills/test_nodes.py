"""A host without the store, one that cannot write it or cannot train, and two sweeps at once."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from drills.cluster import Cluster
from drills.hosts import Host
from lmzoo.lab.store.records import CONFIG, read_json
from lmzoo.trainables.resolve import BASELINES
from tests.lab.sweep.local_sweep import outcome

OTHER_DISK = "mount -t tmpfs tmpfs {0}"
READ_ONLY = "mount --bind {0} {0} && mount -o remount,bind,ro {0}"
GRADIENTS = Path(torch.autograd.__file__).resolve()
NO_GRADIENTS = """
def backward(*_, **__):
    import os
    {}

grad = backward
"""
"""What a broken driver or library does to each training step of a host."""
BROKEN = {"raises": "raise RuntimeError('no gradients')", "dies": "os._exit(1)"}


@contextlib.contextmanager
def mounted(host: Host, command: str, path: str | Path) -> Iterator[None]:
    """Mount something on a file or a folder of this host."""
    done = host.run(f"test -e {path} || mkdir -p {path}; {command.format(path)}")
    assert done.returncode == 0, done.stderr
    try:
        yield
    finally:
        host.run(f"umount -l {path}")


def sweep(cluster: Cluster, name: str) -> None:
    """Run a sweep on the head to its end."""
    command = f"cd lmzoo && PYTHONPATH=. {cluster.sweep(name)}"
    run = cluster.head.run(command, seconds=1800)
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_host_with_another_disk_reaches_the_store_through_the_head(cluster, undisturbed):
    with mounted(cluster.workers[1], OTHER_DISK, "/mnt/unshared"):
        sweep(cluster, "unshared")
    assert outcome(cluster.store("unshared")) == outcome(undisturbed)
    assert cluster.workers[1].name in cluster.hosts_of_sweep("unshared")


def test_a_host_that_cannot_write_the_store_fails_no_run(cluster, undisturbed):
    """It tries for 60 s, which is longer than this sweep lasts."""
    with mounted(cluster.workers[1], READ_ONLY, "/mnt/readonly"):
        sweep(cluster, "readonly")
    assert outcome(cluster.store("readonly")) == outcome(undisturbed)
    assert cluster.workers[1].name not in cluster.hosts_of_sweep("readonly")


@pytest.mark.parametrize("broken", BROKEN)
def test_a_host_on_which_no_run_trains_fails_no_run(cluster, undisturbed, broken):
    file = cluster.shared / "no_gradients.py"
    file.write_text(GRADIENTS.read_text() + NO_GRADIENTS.format(BROKEN[broken]))
    with mounted(cluster.workers[1], f"mount --bind /mnt/{file.name} {{}}", GRADIENTS):
        sweep(cluster, broken)
    assert outcome(cluster.store(broken)) == outcome(undisturbed)
    counted = {point.label for point in BASELINES}  # without gradients
    for config in cluster.store(broken).glob(f"*/{CONFIG}"):  # `outcome` has unpacked the archive
        if read_json(config)["point"]["label"] not in counted:
            assert cluster.workers[1].name not in cluster.hosts_of(config.parent)


@pytest.mark.timeout(3600)
def test_two_sweeps_at_once_have_the_records_of_one(cluster, undisturbed):
    names = ("one", "other")
    commands = [f"cd lmzoo && PYTHONPATH=. {cluster.sweep(name)}" for name in names]
    sweeps = [cluster.head.start(command) for command in commands]
    for process in sweeps:
        output, _ = process.communicate(timeout=1800)
        assert process.returncode == 0, output
    for name in names:
        assert outcome(cluster.store(name)) == outcome(undisturbed)
