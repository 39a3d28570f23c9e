"""The Ray cluster of the drills."""

import os
import shlex
from pathlib import Path
from typing import Any

import yaml

from drills.hosts import ROOT, Host
from drills.sentences import write_sentences
from lmzoo.data.corpus import corpus_config, open_corpus
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.store.archive import read_run_file
from lmzoo.lab.store.records import RECORDS, epoch_records, parse_records
from lmzoo.trainables.resolve import store_name
from tests.lab.sweep.processes import wait_until

ENGINE = ("--engine", os.environ.get("DRILL_ENGINE", "packs"))
"""Who places the workers in all drills: `packs`, or `tune`."""
# --fuse off: the packs depend on timing, and the last digits of a loss on the size of its pack
OPTIONS = (
    f"{shlex.join(ENGINE)} "
    "--fuse off --points 'wild type,cut 4,cut 6' --samples 2 --seeds 2 --epochs 4 --set "
    "corpus.length=10 --set model.width=16 --set model.emission=mixture "
    "--set model.emission.components=8 --set recipe.batch=8"
)


def study_folder(study: str, text: Path | str) -> str:
    """Return the name of the folder in which a study of this text has its runs."""
    fields = corpus_config(f"text:{text}", {"length": 10})
    return store_name(study, fields, open_corpus(fields).fingerprint)


def table(store: Path) -> list[dict[str, Any]]:
    """Return the rows of the ranking with all digits, without the time that they took."""
    return study_ranking(store).frame.drop("seconds").to_dicts()


class Cluster:
    """Hosts with a Ray cluster on them; `shared` is their common folder /mnt."""

    def __init__(self, head: Host, workers: list[Host], laptop: Host, shared: Path) -> None:
        self.head, self.workers, self.laptop, self.shared = head, workers, laptop, shared
        write_sentences(shared / "sentences.txt")
        self._write_cluster_file(shared / "cluster.yaml")

    def up(self) -> None:
        """Run `ray up` and wait until all workers have joined."""
        output = self._ray("up -y /mnt/cluster.yaml")
        assert "Ray runtime started" in output, output
        wait_until(lambda: self.nodes() == 1 + len(self.workers), 900)

    def down(self) -> None:
        """Run `ray down` and check that no Ray process is left on the head."""
        assert "No nodes remaining" in self._ray("down -y /mnt/cluster.yaml")
        assert "raylet" not in self.head.run("ps ax").stdout

    def nodes(self) -> int:
        """Return the number of active nodes."""
        status = self.head.run("ray status").stdout
        active = status.partition("Active:")[2].partition("Pending:")[0]
        return sum(int(line.split()[0]) for line in active.splitlines() if line.split()[1:])

    def sweep(self, name: str, *options: str) -> str:
        """Return the command of a small sweep into the store `name`."""
        corpus = "--corpus text:/mnt/sentences.txt"
        storage = f"--out /mnt/{name}"
        return f"python sweeps/gru_ablation.py {corpus} {OPTIONS} {storage} {shlex.join(options)}"

    def from_laptop(self, command: str) -> str:
        """Return the script in which the laptop calls `ray job` through a new tunnel."""
        ray = f"{ROOT}/.venv/bin/ray"
        tunnel = f"{ray} dashboard /mnt/cluster.yaml"
        return "\n".join(
            (
                f"cd {ROOT} && mkdir -p ~/.ray",
                f"{ray} rsync-down /mnt/cluster.yaml '~/.ray/auth_token' ~/.ray/auth_token",
                f"{tunnel} > /dev/null 2>&1 < /dev/null &",
                "trap 'kill %1' EXIT",
                "export RAY_AUTH_MODE=token RAY_API_SERVER_ADDRESS=http://127.0.0.1:8265",
                "for n in $(seq 60); do curl -s $RAY_API_SERVER_ADDRESS && break; sleep 1; done",
                f"{ray} job {command}",
            )
        )

    def store(self, name: str) -> Path:
        """Return the folder of the study in the store `name`."""
        return self.shared / name / study_folder("gru_ablation", self.shared / "sentences.txt")

    def hosts_of_sweep(self, name: str) -> set[str]:
        """Return the hosts that trained at least one epoch of a sweep."""
        runs = load_study(self.store(name)).runs.collect()["run"]
        return set[str]().union(*(self.hosts_of(self.store(name) / run) for run in runs))

    def unfinished_run(self, name: str, host: Host) -> Path | None:
        """Return a run whose epochs were all trained on this host and that has not ended."""
        for records in self.store(name).glob("*/records.ndjson"):
            text = records.read_text()
            if self.hosts_of(records.parent) == {host.name} and '"end"' not in text:
                return records.parent
        return None

    def hosts_of(self, run: Path) -> set[str]:
        """Return the hosts that trained at least one epoch of a run."""
        records = parse_records(read_run_file(run.parent, run.name, RECORDS) or b"")
        return {record["host"] for record in epoch_records(records)}

    def _ray(self, command: str) -> str:
        ray = f"cd {ROOT} && {ROOT}/.venv/bin/ray {command} 2>&1"
        return self.laptop.run(ray, seconds=600).stdout

    def _write_cluster_file(self, path: Path) -> None:
        """Write `clusters/onprem.yaml` with other addresses, account and installation.

        The hosts cannot reach the internet, so they link the virtual environment of this machine
        instead of installing one. Each host offers one CPU.
        """
        config = yaml.safe_load((ROOT / "clusters/onprem.yaml").read_text())
        worker_ips = [worker.ip for worker in self.workers]
        config["provider"] |= {"head_ip": self.head.ip, "worker_ips": worker_ips}
        config["auth"] = {"ssh_user": "root", "ssh_private_key": "~/.ssh/id_ed25519"}
        profile, bashrc, venv, install = config["setup_commands"]
        assert ".venv" in venv
        assert "pip install" in install
        link = f"test -e ~/lmzoo/.venv || ln -s {ROOT}/.venv ~/lmzoo/.venv"
        config["setup_commands"] = [profile, bashrc, link]
        for section in ("head_start_ray_commands", "worker_start_ray_commands"):
            stop, start = config[section]
            small = "ray start --num-cpus=1 --object-store-memory=100000000 "
            config[section] = [stop, start.replace("ray start ", small)]
        path.write_text(yaml.safe_dump(config))
