"""The cluster under drill, and what one can ask of it."""

import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from drills.hosts import ROOT, Host
from lmzoo.store.records import RunFolder, epoch_records

T = TypeVar("T")
WORDS = ("a", "man", "dog", "runs", "sits", "in", "the", "park", "two", "red")
# --fuse off: which runs make a pack depends on what is ready, and sums of packs on their size
OPTIONS = (
    "--fuse off --points 'wild type,cut 4,cut 6' --samples 2 --seeds 2 --epochs 4 --set "
    "corpus.length=10 --set model.width=16 --set model.emission.components=8 --set recipe.batch=8"
)


class Site:
    """Hosts with a cluster on them."""

    def __init__(self, head: Host, workers: list[Host], laptop: Host, shared: Path) -> None:
        self.head, self.workers, self.laptop, self.shared = head, workers, laptop, shared
        lines = [" ".join(WORDS[(i * j + i) % 10] for j in range(3 + i % 4)) for i in range(400)]
        (shared / "sentences.txt").write_text("\n".join(lines) + "\n")

    def up(self) -> None:
        """`ray up`, and wait until all workers have joined."""
        done = self._ray("up -y /mnt/cluster.yaml")
        assert "Ray runtime started" in done, done
        wait_until(lambda: self.nodes() == 1 + len(self.workers), 900)

    def down(self) -> None:
        """`ray down`; no Ray process is left on the head."""
        assert "No nodes remaining" in self._ray("down -y /mnt/cluster.yaml")
        assert "raylet" not in self.head.run("ps ax").stdout

    def nodes(self) -> int:
        """Nodes that the cluster counts as alive."""
        status = self.head.run("ray status").stdout
        active = status.partition("Active:")[2].partition("Pending:")[0]
        return sum(int(line.split()[0]) for line in active.splitlines() if line.split()[1:])

    def sweep(self, name: str, *more: str) -> str:
        """The command of a small sweep into a store of this name."""
        text = "--corpus text:/mnt/sentences.txt"
        where = f"--storage /mnt/{name}"
        return f"python sweeps/gru_ablation.py {text} {OPTIONS} {where} {shlex.join(more)}"

    def from_laptop(self, name: str, *more: str) -> str:
        """The same, in the laptop's checkout, which does not keep what is fetched."""
        python = self.sweep(name, *more).replace("python ", f"{ROOT}/.venv/bin/python {ROOT}/", 1)
        return f"mkdir -p ~/work && cd ~/work && PYTHONPATH={ROOT} {python}"

    def store(self, name: str) -> Path:
        """The folder of the study in a store."""
        return self.shared / name / "gru_ablation-text"

    def trained_on(self, name: str) -> set[str]:
        """The hosts that took part in a sweep."""
        runs = [records.parent for records in self.store(name).glob("*/records.ndjson")]
        return set[str]().union(*(self.hosts_of(run) for run in runs))

    def run_of(self, name: str, host: Host) -> Path | None:
        """A run that the host is in the middle of: at least an epoch, all there, and no end."""
        for records in self.store(name).glob("*/records.ndjson"):
            text = records.read_text()
            if self.hosts_of(records.parent) == {host.name} and '"end"' not in text:
                return records.parent
        return None

    def hosts_of(self, run: Path) -> set[str]:
        """The hosts that trained a part of it, as its records tell."""
        return {record["host"] for record in epoch_records(RunFolder(run).records())}

    def _ray(self, command: str) -> str:
        ray = f"cd {ROOT} && {ROOT}/.venv/bin/ray {command} 2>&1"
        return self.laptop.run(ray, seconds=600).stdout


def wait_until(true: Callable[[], T | None], seconds: float) -> T:
    """Poll until something holds; what it then is."""
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, f"it did not happen within {seconds:g} s"
        time.sleep(0.2)
    return found
