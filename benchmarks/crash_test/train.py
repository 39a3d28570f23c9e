"""Train the population: processes that take one pack after the other, and stop in time.

    python benchmarks/crash_test/train.py OUT --minutes 60                       one CPU process
    python benchmarks/crash_test/train.py OUT --device cuda --processes 10 --minutes 6

OUT gets `curves-N.jsonl`, one line for each pack: its study, variants, seeds and losses. A second
call with the same folder goes on. The parent writes, so a line is whole. `--data-dir` is a folder
with `tinyshakespeare/input.txt.gz`; without it the file is downloaded.
"""

import argparse
import json
import math
import multiprocessing
import sys
import time
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.crash_test.population import (
    TASKS,
    TUNE,
    VARIANTS,
    Pack,
    Study,
    load_corpus,
    packs,
    studies,
    tuning_seeds,
)  # fmt: skip

LARGEST = 14 * 2**20
"""Bytes of a file of results."""
GRACE = 10
"""Seconds after the end in which workers may finish their pack."""
FIRST = 150
"""Seconds after which a run without a single pack gives up."""


def main() -> None:
    """Train until the time is over or all packs are done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--members", type=int, default=0, help="of a pack; 0: 128, on a CPU 16")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--studies", type=int, default=1000, help="only the first ones")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--packs", type=int, default=10**6, help="end after so many")
    options = parser.parse_args()
    options.end = time.time() + 60 * options.minutes
    options.members = options.members or (128 if options.device == "cuda" else 16)
    run = Run(options)
    run.serve()
    print(run.summary(), flush=True)  # noqa: T201


class Run:
    """The parent: what is pending, who trains what, and the files."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.start = options, time.time()
        self.studies = studies(options.seed)
        options.out.mkdir(parents=True, exist_ok=True)
        self.done: set[tuple[str, str, int]] = set()
        self.tuning: dict[str, dict[str, list[float]]] = {}
        self.trained = self.packs = self.deaths = 0
        for line in read_lines(options.out):
            self._count(line)
        self.pending = [
            pack
            for pack in packs(self.studies[: options.studies], options.members)
            if self.studies[pack.study].task in options.tasks
        ]
        self.owner: dict[int, int] = {}
        self.dropped: set[int] = set()
        self.workers: dict[Connection, tuple[int, Any, Pack | None]] = {}

    def serve(self) -> None:
        """Give packs to workers until the end."""
        for rank in range(self.options.processes):
            self._start(rank)
        while self.workers and time.time() < self.options.end + GRACE:
            if self.is_stuck():
                break
            for connection in wait([*self.workers], timeout=1.0):
                self._answer(connection)  # type: ignore[arg-type]
        for _, process, _ in self.workers.values():
            process.kill()

    def summary(self) -> str:
        """Return what was trained, in a line."""
        seconds = time.time() - self.start
        dropped = ", ".join(self.studies[i].name for i in sorted(self.dropped))
        return (
            f"{self.trained} trainings in {self.packs} packs in {seconds:.0f} s, "
            f"{len(self.done)} in the folder; dropped studies: {dropped or 'none'}"
        )

    def is_stuck(self) -> bool:
        """Return whether no worker does anything useful; a GPU would be held for nothing."""
        late = not self.packs and time.time() > self.start + FIRST
        return late or self.deaths > 3 * self.options.processes

    def _start(self, rank: int) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(theirs, self.options, rank), daemon=True)
        process.start()
        theirs.close()
        self.workers[ours] = rank, process, None

    def _answer(self, connection: Connection) -> None:
        """Read a worker's result, and give it the next pack."""
        rank, process, pack = self.workers[connection]
        try:
            line = connection.recv()
        except (EOFError, OSError):  # the process died
            del self.workers[connection]
            self.deaths += 1
            self._drop(pack, f"process {rank} died")
            if time.time() < self.options.end:
                self._start(rank)
            return
        if "error" in line:
            self._drop(pack, line["error"])
        elif "study" in line:
            self._write(line)
        pack = None
        if time.time() < self.options.end and self.packs < self.options.packs:
            pack = self._next(rank)
        self.workers[connection] = rank, process, pack
        connection.send(pack and (pack, self._rate(self.studies[pack.study])))
        if pack is None:
            del self.workers[connection]

    def _next(self, rank: int) -> Pack | None:
        """Return a pack: of a study of this worker, of a new one, or of another worker's."""
        while True:
            places = [
                (self.owner.get(pack.study, rank) != rank, place)
                for place, pack in enumerate(self.pending)
                if pack.study not in self.dropped and self._ready(pack)
            ]
            if not places:
                return None
            pack = self.pending.pop(min(places)[1])
            self.owner.setdefault(pack.study, rank)
            name = self.studies[pack.study].name
            members = tuple(m for m in pack.members if (name, *m) not in self.done)
            if members:
                return Pack(pack.study, pack.priority, members)

    def _ready(self, pack: Pack) -> bool:
        """Return whether the rate of the study is known, or the pack finds it."""
        if pack.members[0][0] in TUNE:
            return True
        tuned = self.tuning.get(self.studies[pack.study].name, {})
        least = tuning_seeds(self.options.members)
        return len(tuned) == len(TUNE) and all(len(found) >= least for found in tuned.values())

    def _rate(self, study: Study) -> float:
        """Return the learning rate of the base; 0 before it is known."""
        found = self.tuning.get(study.name, {})
        means = {name: sum(losses) / len(losses) for name, losses in found.items()}
        return TUNE[min(means, key=means.__getitem__)].rate if means else 0.0

    def _count(self, line: dict[str, Any]) -> None:
        study = line["study"]
        for variant, seed, curve in zip(line["variant"], line["seed"], line["valid"], strict=True):
            self.done.add((study, variant, seed))
            if variant in TUNE:
                loss = curve[-1] if curve[-1] is not None else math.inf
                self.tuning.setdefault(study, {}).setdefault(variant, []).append(loss)

    def _write(self, line: dict[str, Any]) -> None:
        self._count(line)
        self.trained += len(line["seed"])
        self.packs += 1
        files = sorted(self.options.out.glob("curves-*.jsonl"))
        file = files[-1] if files else self.options.out / "curves-0.jsonl"
        if file.exists() and file.stat().st_size > LARGEST:
            file = self.options.out / f"curves-{len(files)}.jsonl"
        with file.open("a") as out:
            out.write(json.dumps(line, separators=(",", ":")) + "\n")
        if self.packs % 20 == 1:
            print(f"{time.time() - self.start:.0f} s: {self.trained} trainings", flush=True)  # noqa: T201

    def _drop(self, pack: Pack | None, reason: str) -> None:
        name = self.studies[pack.study].name if pack else "no study"
        print(f"dropped {name}: {reason}", flush=True)  # noqa: T201
        if pack is not None:
            self.dropped.add(pack.study)


def read_lines(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of all files of results; a torn last line is skipped."""
    texts = [file.read_text() for file in sorted(folder.glob("curves-*.jsonl"))]
    return [json.loads(line) for text in texts for line in text.splitlines() if line[-1:] == "}"]


def work(connection: Connection, options: argparse.Namespace, rank: int) -> None:
    """Train the packs that the parent sends, until it sends none."""
    trainer = PackTrainer(options)
    connection.send({"rank": rank})
    while (job := connection.recv()) is not None:
        pack, rate = job
        try:
            line = trainer.train(pack, rate)
        except Exception as error:  # the study is dropped, the others go on
            line = {"error": f"{type(error).__name__}: {error}"[:500]}
        connection.send(line)


class PackTrainer:
    """What a worker keeps from pack to pack: corpora and recorded steps."""

    def __init__(self, options: argparse.Namespace) -> None:
        import torch

        from lmzoo.train import kept_trainers

        torch.set_num_threads(1)
        self.device = None
        if options.device == "cuda":
            self.device = torch.device("cuda", 0)
            torch.cuda.set_per_process_memory_fraction(0.95 / options.processes)
            kept_trainers.MAX_TRAINERS = 3  # the graphs of several processes share the memory
        self.options, self.kept = options, kept_trainers.KeptTrainers()
        self.corpora: dict[str, Any] = {}
        self.studies = studies(options.seed)

    def train(self, pack: Pack, rate: float) -> dict[str, Any]:
        """Return the line of a pack."""
        import torch

        start = time.perf_counter()
        study = self.studies[pack.study]
        corpus = self._corpus(study.task)
        try:
            members = [self._training(study, *m, rate, corpus) for m in pack.members]
            built = time.perf_counter() - start
            curves: list[dict[str, list[float | None]]] = [
                {"train": [], "valid": []} for _ in members
            ]
            place = {id(member): curve for member, curve in zip(members, curves, strict=True)}
            for active in self.kept.fit(members, corpus, study.epochs):
                for member in active:
                    for name, values in place[id(member)].items():
                        values.append(_rounded(member.record[f"{name}_token"]))
        except torch.OutOfMemoryError:
            self.kept.free()
            if len(pack.members) == 1:
                raise
            half = len(pack.members) // 2
            parts = pack.members[:half], pack.members[half:]
            lines = [self.train(Pack(pack.study, pack.priority, part), rate) for part in parts]
            return _joined(*lines)
        seconds = time.perf_counter() - start
        variants, seeds = zip(*pack.members, strict=True)
        return {
            "study": study.name, "rate": rate, "seconds": round(seconds, 2),
            "built": round(built, 2), "device": self.options.device,
            "variant": variants, "seed": seeds,
            "valid": [curve["valid"] for curve in curves],
            "train": [curve["train"] for curve in curves],
        }  # fmt: skip

    def _corpus(self, task: str) -> Any:
        if task not in self.corpora:
            corpus = load_corpus(task, self.options.data_dir)
            self.corpora[task] = corpus if self.device is None else corpus.to(self.device)
        return self.corpora[task]

    def _training(self, study: Study, name: str, seed: int, rate: float, corpus: Any) -> Any:
        from lmzoo import zoo
        from lmzoo.train.trainer import Training

        model, recipe = configs(study, name, rate)
        built = zoo.build(model, corpus.task, seed, recipe.init)
        return Training(built if self.device is None else built.to(self.device), recipe, seed)


def configs(study: Study, name: str, rate: float) -> tuple[Any, Any]:
    """Return the config and the recipe of a variant; `rate` is that of the base."""
    from benchmarks.crash_test.population import FAMILIES
    from lmzoo import zoo
    from lmzoo.train.recipe import Recipe

    variant = VARIANTS.get(name) or TUNE[name]
    row, fields = FAMILIES[study.family]
    width = 4 * round(study.width * variant.width / 4)
    lr = variant.rate if variant.kind == "tune" else rate * variant.rate
    settings = {"lr": lr, "batch": study.batch, "clip": study.clip, **variant.recipe}
    recipe = Recipe().with_fields(settings).with_budget(study.epochs)
    return zoo.config(row, **{**fields, "width": width}), recipe


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.8g}")


def _joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Return the line of a pack that was trained in two halves."""
    lists = ("variant", "seed", "valid", "train")
    both = {name: [*first[name], *second[name]] for name in lists}
    return {**first, "seconds": first["seconds"] + second["seconds"], **both}


if __name__ == "__main__":
    main()
