"""Many trials of three trivial epochs as a sweep, and with Ray Tune alone.

    python benchmarks/trials.py --trials 2000 --out runs/bench/trials.json

Ours is a whole sweep: planner, Ray, and for each run a folder with checkpoints, records, curves and
test losses; with `--fuse off`, and with `--fuse auto`. The rival is `tune.run` with its default
loggers (JSON, CSV, TensorBoard) over a trainable that trains the same model on the same sentences
and reuses its actors as ours does, but tests and saves nothing. Each side runs in a process of its
own, one after the other. With `--together` the first two run at once, so that other processes of
the machine affect both equally.

A side is measured from the end of its first tenth of trials, which excludes Ray's start and torch's
import; each later tenth is a round. CPU time is that of the driver and of all its descendants; wall
time is the most sensitive to other processes.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from measure import Ratio, memory_ratio, save, time_ratio
from process_usage import Clock, Marks, usage_per_item

from lmzoo.command_line import run_command
from lmzoo.errors import UserError

ROOT = Path(__file__).parents[1]
WORDS = ("a", "man", "dog", "runs", "sits", "in", "the", "park", "two", "red")
EPOCHS = 3
RIVAL = "tune.run, default loggers"
SIDES = ("off", "rays", "auto")


def main(
    trials: Annotated[int, typer.Option(min=40)] = 2000,
    out: Annotated[Path, typer.Option(help="The JSON file.")] = Path("runs/bench/trials.json"),
    *,
    together: Annotated[
        bool, typer.Option("--together", help="Run ours and the rival at once.")
    ] = False,
    side: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Run all sides, one after the other; with `--side`, run one side in this process."""
    with tempfile.TemporaryDirectory() as folder:
        if side:
            clock = Clock(total=trials)
            run_side = run_tune if side == "rays" else run_sweep
            run_side(trials, Path(folder), clock, side)
            out.write_text(json.dumps(clock.marks))
            return
        marks: dict[str, Marks] = {}
        for names in [SIDES[:2], SIDES[2:]] if together else [[name] for name in SIDES]:
            sides = {name: start_side(name, trials, Path(folder, name)) for name in names}
            marks |= {name: wait() for name, wait in sides.items()}
    rows = [
        row for fuse in ("off", "auto") for row in compare(fuse, trials, marks[fuse], marks["rays"])
    ]
    save(rows, out)


def start_side(side: str, trials: int, out: Path) -> Callable[[], Marks]:
    """Start a side in a process of its own; return a function that waits for its readings."""
    command = [sys.executable, __file__, "--trials", str(trials), "--side", side]
    environment = {"RAY_ADDRESS": "local", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([*command, "--out", str(out)], env={**os.environ, **environment})

    def wait() -> Marks:
        if process.wait():
            raise UserError(f"the side {side} ended with code {process.returncode}; see above")
        return json.loads(out.read_text())

    return wait


def compare(fuse: str, trials: int, mine: Marks, theirs: Marks) -> list[Ratio]:
    """Return the rows of one side and the rival."""
    what, at = f"a trial, --fuse {fuse}", f"{trials:,} trials x {EPOCHS} epochs, 2 CPUs"

    def row(name: str, key: str, goal: float | None) -> Ratio:
        ours, rivals = usage_per_item(mine, key), usage_per_item(theirs, key)
        return time_ratio(f"{what}: {name}", at, RIVAL, ours, rivals, goal)

    growth = f"{what}: driver's growth per 1,000"
    memory = memory_ratio(growth, at, RIVAL, [growth_of(mine)], [growth_of(theirs)], None)
    return [
        row("clock", "seconds", 1.0),
        row("CPU of all processes", "all", None),
        row("CPU of the driver", "driver", None),
        replace(memory, unit="memory, ours / rival"),
    ]


def growth_of(marks: Marks) -> float:
    """Return the megabytes that 1,000 trials add to the driver, at least 0.1."""
    first, last = marks[0], marks[-1]
    added = last["megabytes"] - first["megabytes"]
    return max(0.1, 1000 * added / (last["done"] - first["done"]))


def run_sweep(trials: int, folder: Path, clock: Clock, fuse: str) -> None:
    """Run a sweep of so many confirm runs."""
    from lmzoo.cluster.connection import cluster
    from lmzoo.cluster.resources import Resources
    from lmzoo.study.planner import Planner
    from lmzoo.study.resolve import corpus_config, resolve
    from lmzoo.study.study_store import StudyStore
    from lmzoo.sweep import Point, Study
    from lmzoo.sweep.driver.ray_backend import train
    from lmzoo.sweep.fleet.fleet import Fleet
    from lmzoo.sweep.fleet.packing import Packer, parse_fuse
    from lmzoo.sweep.screen.console import Console

    class TimedConsole(Console):
        """A console that also reads the clock."""

        def end(self, run: Any, test: Any) -> None:
            super().end(run, test)
            clock.tick()

    study = Study(
        name="trials", question="How long is a trivial run?", points=(Point("MGU", "DLM46"),),
        corpus=f"text:{sentences(folder)}", epochs=EPOCHS, search={}, seeds=trials,
        fields={
            "corpus.length": 10, "model.width": 4, "model.emission.components": 3,
            "recipe.batch": 16,
        },
    )  # fmt: skip
    fields = corpus_config(study, study.fields)
    corpus = read_corpus(fields)
    points = resolve(study, corpus, fields)
    with closing(StudyStore(folder / "store")) as store, Path(os.devnull).open("w") as nowhere:
        planner = Planner(study, points[:1], corpus, store)
        stdout, sys.stdout = sys.stdout, nowhere
        with TimedConsole(as_json=True) as console, cluster():
            from lmzoo.cluster.capacity import Capacity

            fleet = Fleet(planner, Packer(corpus, parse_fuse(fuse)), [console])
            console.fleet = fleet
            complete = train(fleet, Capacity(Resources(1.0, 0.0, 2)))
        sys.stdout = stdout
    assert complete
    for name in ("records.ndjson", "checkpoint.pt", "events.*", "test-*.npy"):
        assert len(list(folder.glob(f"store/*/{name}"))) == trials, name


def run_tune(trials: int, folder: Path, clock: Clock, side: str) -> None:
    """Run `tune.run` over the same trainings."""
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    import ray
    from ray import tune

    class Timer(tune.Callback):
        """Reads the clock when a trial ends."""

        def on_trial_complete(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
            clock.tick()

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    fields = {"name": "text", "path": str(sentences(folder)), "length": 10}
    tune.run(
        tune.with_parameters(trainable(), corpus=read_corpus(fields)), name=side,
        config={"seed": tune.grid_search(list(range(trials)))},
        storage_path=str(folder), reuse_actors=True, max_concurrent_trials=2,
        resources_per_trial={"cpu": 1}, callbacks=[Timer()], verbose=0,
        trial_dirname_creator=lambda trial: str(trial.trial_id),
    )  # fmt: skip
    ray.shutdown()
    for name in ("result.json", "progress.csv", "events.*"):
        assert len(list(folder.glob(f"{side}/*/{name}"))) == trials, name


def trainable() -> Callable[..., Any]:
    """Return a trainable of the same training that reports to Tune only."""
    from ray import tune

    class Bare(tune.Trainable):
        """One epoch per step."""

        def setup(self, config: dict[str, Any], corpus: Any = None) -> None:
            import torch

            torch.set_num_threads(1)
            self.corpus = corpus
            self.reset_config(config)

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            from lmzoo import zoo
            from lmzoo.train.recipe import Recipe
            from lmzoo.train.trainer import Training, fit

            model = zoo.config("DLM46", width=4, emission={"components": 3})
            seed = new_config["seed"]
            built = zoo.build(model, self.corpus.task, seed)
            self.stream = fit(Training(built, Recipe(batch=16), seed), self.corpus, EPOCHS)
            return True

        def step(self) -> dict[str, Any]:
            record = next(self.stream)
            return {**record, "done": record["epoch"] == EPOCHS}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            """Save nothing."""

        def load_checkpoint(self, checkpoint: Any) -> None:
            """Load nothing."""

    return Bare


def sentences(folder: Path) -> Path:
    """Write a file of sixty sentences."""
    rows = (" ".join(WORDS[(i * j + i) % 10] for j in range(3 + i % 4)) for i in range(60))
    path = folder / "sentences.txt"
    path.write_text("\n".join(rows) + "\n")
    return path


def read_corpus(fields: dict[str, Any]) -> Any:
    """Return the corpus of these fields; torch is imported here, after the process has started."""
    from lmzoo.data.corpus import open_corpus

    return open_corpus(fields)


if __name__ == "__main__":
    run_command(main)
