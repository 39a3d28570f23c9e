"""Two sweeps on one Ray cluster with two CPUs: both train, both end, no digit changes."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lmzoo.trainables.store_name import store_name

from .local_sweep import outcome, sweep
from .processes import ROOT, epochs_on_disk, finish, kill, slow_ray_test, wait_until

EPOCHS, PORT = 200, 6397


@pytest.fixture
def head(monkeypatch, tmp_path_factory):
    """Start Ray on loopback with two CPUs, and let sweeps join it."""
    variables = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "0" * 64,
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_ADDRESS": f"127.0.0.1:{PORT}",
        "RAY_raylet_start_wait_time_s": "60",
        "RAY_worker_niceness": "0",
        "HOME": str(tmp_path_factory.mktemp("home")),
    }
    ray = str(Path(sys.executable).with_name("ray"))
    options = ("--node-ip-address=127.0.0.1", f"--port={PORT}", "--num-cpus=2")
    options += ("--include-dashboard=false", "--disable-usage-stats", "--block")
    environment = {**os.environ, **variables, "PYTHONPATH": str(ROOT)}
    del environment["RAY_ADDRESS"]
    process = subprocess.Popen(
        [ray, "start", "--head", *options],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment,
    )  # fmt: skip
    yield {**environment, **variables}
    kill(process)


@slow_ray_test
def test_two_sweeps_share_a_cluster(head, script, tmp_path, study, corpus, corpus_fields):
    options = ("--json", "--fuse", "off", "--epochs", str(EPOCHS))
    folders = [tmp_path / name for name in ("first", "second")]
    stores = [folder / store_name(study.name, corpus_fields) for folder in folders]

    def start(folder: Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(script), "--storage", str(folder), *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=head,
        )  # fmt: skip

    first = start(folders[0])
    try:
        wait_until(lambda: epochs_on_disk(stores[0]) >= 5 or first.poll() is not None)
        assert first.poll() is None, first.communicate()
        second = start(folders[1])
        wait_until(lambda: epochs_on_disk(stores[1]) >= 5 or second.poll() is not None)
        assert first.poll() is None, "the second sweep waited for the end of the first one"
        ends = [finish(process) for process in (first, second)]
    finally:
        kill(first)
    for code, _, err in ends:
        assert code == 0, err
        assert "2 sweeps use this cluster and share it" in err
    alone = tmp_path / "alone"
    assert sweep(dataclasses.replace(study, epochs=EPOCHS), corpus, corpus_fields, alone)
    assert outcome(stores[0]) == outcome(stores[1]) == outcome(alone)
