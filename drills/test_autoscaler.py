"""A sweep on a cluster that has no worker node until Ray's real autoscaler starts some."""

import json
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from drills.autoscaler import AutoscaledCluster
from drills.cluster import ENGINE, study_folder
from drills.pretended_gpus import LOG
from tests.lab.sweep.local_sweep import outcome
from tests.lab.sweep.processes import wait_until
from tests.toy_study import WORDS

NODES, GPUS = 3, 2
LATE = (2, 25.0)
"""The second node joins so many seconds later than the others."""
TYPES = {"gpu": ({"CPU": 2, "GPU": GPUS}, NODES), "cpu": ({"CPU": 8}, 2)}
STUDY = (
    *ENGINE,
    "--samples",
    "8",
    "--epochs",
    "12",
    "--fuse",
    "off",
    "--points",
    "wild type,cut 4",
)
GAP_SECONDS = 45.0
"""Longest time for which a GPU may wait between two epochs: a new worker starts in 5 to 20 s."""


@pytest.fixture
def folder():
    path = Path(tempfile.mkdtemp(prefix="lmzoo-drill-", dir="/var/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def sentences(folder) -> Path:
    lines = [" ".join(WORDS[(i * j + i) % len(WORDS)] for j in range(3 + i % 4)) for i in range(60)]
    (folder / "sentences.txt").write_text("\n".join(lines) + "\n")
    return folder / "sentences.txt"


def run(cluster: AutoscaledCluster, sentences: Path, store: Path, *options: str, **variables: str):
    """Start the study with its store in `store`; return its process and the file it prints to."""
    output = store.with_suffix(".log")
    command = (sys.executable, "-m", "drills.pretended_gpus", sentences, "--out", store)
    return cluster.start(output, *command, *STUDY, *options, **variables), output


def epochs(log: Path) -> dict[tuple[str, int], list[tuple[float, float]]]:
    """Return the start and end of each epoch by (node, GPU)."""
    by_gpu = defaultdict(list)
    for line in log.read_text().splitlines() if log.exists() else []:
        node, gpu, start, end, _ = json.loads(line)
        by_gpu[node, gpu].append((start, end))
    return dict(by_gpu)


def test_all_gpus_work_and_a_killed_and_a_late_node_change_no_digit(folder, sentences):
    log = folder / "epochs.ndjson"
    with AutoscaledCluster(folder / "ray", TYPES, late=LATE, **{LOG: str(log)}) as cluster:
        sweep, output = run(cluster, sentences, folder / "disturbed")

        def busy_node() -> str:
            assert sweep.poll() is None, output.read_text()
            return next((node for (node, _), spans in epochs(log).items() if len(spans) > 1), "")

        killed = wait_until(busy_node, 300)
        cluster.kill_node(killed)
        while sweep.poll() is None:
            assert len(cluster.raylets()) <= NODES, "more nodes than the sweep can use"
            time.sleep(0.5)
        assert sweep.returncode == 0, output.read_text()

        plain, plain_output = run(
            cluster, sentences, folder / "undisturbed", "--device", "cpu", RAY_ADDRESS="local"
        )
        assert plain.wait(timeout=1200) == 0, plain_output.read_text()

    assert f"up to {NODES * GPUS} GPUs on {NODES} nodes, 0 live" in output.read_text()
    by_gpu = epochs(log)
    nodes = {node for node, _ in by_gpu}
    assert killed in nodes
    assert len(nodes) == NODES + 1, (
        "the late node, or the one that replaces the killed one, is idle"
    )
    used = {(node, gpu) for node in nodes - {killed} for gpu in range(GPUS)}
    assert used <= set(by_gpu), "a GPU is idle"
    gaps = [b[0] - a[1] for spans in by_gpu.values() for a, b in pairwise(sorted(spans))]
    assert max(gaps) < GAP_SECONDS, sorted(gaps)[-5:]
    name = study_folder("toy", sentences)
    assert outcome(folder / "disturbed" / name) == outcome(folder / "undisturbed" / name)
