"""The driver without training: decisions, memory, and a store with an archive.

    python benchmarks/driver.py FOLDER [--points 12] [--samples 5] [--seeds 4]

Plans a study of so many points, settings and confirm seeds, and ends each run after ten epochs with
losses made of its id. Prints the time of the CPU for the epoch of a run, the longest decision, the
files of the store, and what it costs to open and to rank it. With a FOLDER that has the store, only
the last two are measured. There is no rival: the figure to compare is the time of one epoch of
training, 95 ms for the main study.
"""

import hashlib
import itertools
import json
import resource
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from lmzoo.base.command_line import run_command
from lmzoo.base.streams import echo
from lmzoo.data.corpus import open_corpus
from lmzoo.lab.study.planned_run import PlannedRun
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.study import Point, Study
from lmzoo.lab.study.study_store import StudyStore
from lmzoo.lab.study.trainable import Trainable
from lmzoo.trainables.resolve import corpus_config, resolve, store_folder

FACTS = {"score": "exact", "fingerprint": "0", "parameters": 1, "leaks": "", "floor": None}


def end(planner: Planner, run: PlannedRun, folder: Path) -> list[float]:
    """Write the files of a run, report its epochs and its end; return how long each call took."""
    loss = int(hashlib.md5(run.id.encode()).hexdigest(), 16) % 1000 / 1000
    epochs = range(1, run.budget + 1)
    records = [{"event": "epoch", "epoch": e, "valid_token": 2 + loss + 1 / e} for e in epochs]
    ends = [{"event": "test", "epoch": run.budget, "token": 2 + loss}] * (run.stage == "confirm")
    ends.append({"event": "end", "epoch": run.budget, "status": "finished"})
    (folder / run.id).mkdir(exist_ok=True)
    lines = "".join(f"{json.dumps(record)}\n" for record in [*records, *ends])
    (folder / run.id / "records.ndjson").write_text(lines)
    (folder / run.id / "config.json").write_text(json.dumps({**run.config, **FACTS}))
    times = [time.process_time()]
    for record in records:
        planner.report(run.id, record)
        times.append(time.process_time())
    planner.end(run.id, "finished", test_loss=2 + loss if run.stage == "confirm" else None)
    times.append(time.process_time())
    return [b - a for a, b in itertools.pairwise(times)]


def main(
    root: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the store is made.")],
    points: Annotated[int, typer.Option(min=1)] = 12,
    samples: Annotated[int, typer.Option(min=1)] = 5,
    seeds: Annotated[int, typer.Option(min=1)] = 4,
) -> None:
    """Plan a study whose runs end at once; print one line for each measurement."""
    study = Study(
        name="driver",
        question="?",
        epochs=10,
        corpus="captions",
        sampler="random",
        points=tuple(Point(f"{i}", "DLM46", {"dropout_input": i / points}) for i in range(points)),
        samples=samples,
        seeds=seeds,
        parallel=samples,
    )
    fields = corpus_config(study, study.fields)
    corpus = open_corpus(fields, None)
    resolved = resolve(study, corpus, fields)
    folder = store_folder(root, study.name, fields)
    if not folder.exists():
        measure_decisions(study, resolved, folder, "run")
    measure_decisions(study, resolved, folder, "open")
    echo(f"{sum(1 for _ in folder.rglob('*'))} files and folders")
    rank = [sys.executable, "-m", "lmzoo", "rank", str(folder)]
    subprocess.run(rank, check=True, stdout=subprocess.DEVNULL)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    echo(f"ranked in {used.ru_utime + used.ru_stime:.1f} s of CPU")


def measure_decisions(study: Study, resolved: list[Trainable], folder: Path, what: str) -> None:
    """Plan and end all pending runs of a store; print what the planner's calls took."""
    start = time.process_time()
    calls: list[float] = []
    runs = 0
    with closing(StudyStore(folder, archives=True)) as store:
        planner = Planner(study, resolved, store)
        echo(f"{what}: planned in {time.process_time() - start:.1f} s of CPU")
        while not planner.done:
            for run in planner.new_ready():
                planner.start(run)
                calls += end(planner, run, folder)
                runs += 1
    if calls:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        mean = 1e3 * sum(calls) / len(calls)
        echo(f"{runs} runs: {mean:.3f} ms an epoch")
        echo(f"longest decision {max(calls):.2f} s of CPU, peak memory {peak:.0f} MiB")


if __name__ == "__main__":
    run_command(main)
