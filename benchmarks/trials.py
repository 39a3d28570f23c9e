"""Many trials of three trivial epochs through the whole path, beside bare Ray Tune.

    python benchmarks/trials.py --trials 2000 --out runs/bench/trials.json

Ours is the sweep itself: planner, Ray, and for each run a folder with a checkpoint an epoch,
records, curves and test losses; with `--fuse off`, and once more with `auto`. The rival
is `tune.run` with its default loggers (JSON, CSV, TensorBoard) over a trainable that trains
the same model on the same sentences, keeps its actors as ours does, tests and saves
nothing. Each side runs in a process of its own, one after the other; or `--together` the
first two at once, so that on a machine that others use both meet the same neighbours.

A side is counted from the end of its first tenth of trials, so that neither Ray's start nor
torch's import is in it; each later tenth is a round. CPU is that of the driver and of all
processes below it; the clock is what other programs on the machine disturb most.
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
from measure import Ratio, save, shrunk, slower, table
from watch import Clock, Marks, each

from lmzoo.command_line import run_command
from lmzoo.errors import UserError

ROOT = Path(__file__).parents[1]
WORDS = ("a", "man", "dog", "runs", "sits", "in", "the", "park", "two", "red")
EPOCHS = 3
RIVAL = "tune.run, default loggers"
SIDES = ("off", "rays", "auto")


def main(
    trials: Annotated[int, typer.Option(min=40)] = 2000,
    out: Annotated[Path, typer.Option(help="Where the JSON goes.")] = Path(
        "runs/bench/trials.json"
    ),
    *,
    together: Annotated[
        bool, typer.Option("--together", help="Ours and the rival's at once.")
    ] = False,
    side: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """All sides, one after the other; with `--side`, one of them here."""
    with tempfile.TemporaryDirectory() as folder:
        if side:
            clock = Clock(total=trials)
            run_side = rays if side == "rays" else ours
            run_side(trials, Path(folder), clock, side)
            out.write_text(json.dumps(clock.marks))
            return
        marks: dict[str, Marks] = {}
        for names in [SIDES[:2], SIDES[2:]] if together else [[name] for name in SIDES]:
            sides = {name: elsewhere(name, trials, Path(folder, name)) for name in names}
            marks |= {name: measured() for name, measured in sides.items()}
    rows = [
        row for fuse in ("off", "auto") for row in compare(fuse, trials, marks[fuse], marks["rays"])
    ]
    save(rows, out)
    typer.echo(table([vars(row) for row in rows]))


def elsewhere(side: str, trials: int, told: Path) -> Callable[[], Marks]:
    """Start a side in a process of its own; what waits for it and reads what it measured."""
    command = [sys.executable, __file__, "--trials", str(trials), "--side", side]
    own = {"RAY_ADDRESS": "local", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([*command, "--out", str(told)], env={**os.environ, **own})

    def measured() -> Marks:
        if process.wait():
            raise UserError(f"the side {side} ended with code {process.returncode}; see above")
        return json.loads(told.read_text())

    return measured


def compare(fuse: str, trials: int, mine: Marks, theirs: Marks) -> list[Ratio]:
    """Ours beside the rival's."""
    what, at = f"a trial, --fuse {fuse}", f"{trials:,} trials x {EPOCHS} epochs, 2 CPUs"

    def row(name: str, key: str, goal: float | None) -> Ratio:
        return slower(f"{what}: {name}", at, RIVAL, each(mine, key), each(theirs, key), goal)

    growth = f"{what}: driver's growth per 1,000"
    memory = shrunk(growth, at, RIVAL, [grows(mine)], [grows(theirs)], None)
    return [
        row("clock", "seconds", 1.0),
        row("CPU of all processes", "all", None),
        row("CPU of the driver", "driver", None),
        replace(memory, unit="memory, ours / rival"),
    ]


def grows(marks: Marks) -> float:
    """Megabytes that 1,000 trials add to the driver; less than a tenth counts as that."""
    first, last = marks[0], marks[-1]
    added = last["megabytes"] - first["megabytes"]
    return max(0.1, 1000 * added / (last["done"] - first["done"]))


def ours(trials: int, folder: Path, clock: Clock, fuse: str) -> None:
    """A sweep of so many confirm runs."""
    from lmzoo.sweep import Point, Study
    from lmzoo.sweep.cluster import Resources, cluster
    from lmzoo.sweep.console import Console
    from lmzoo.sweep.packing import Packer, parse_fuse
    from lmzoo.sweep.planner import Planner
    from lmzoo.sweep.ray_backend import train
    from lmzoo.sweep.resolve import corpus_config, resolve
    from lmzoo.sweep.study_store import StudyStore

    class Watched(Console):
        """A console that also looks at the clock."""

        def add_end(self, run: Any) -> None:
            super().add_end(run)
            clock.tick()

    study = Study(
        name="trials", question="How long does nothing take?", points=(Point("one", "DLM46"),),
        corpus=f"text:{sentences(folder)}", epochs=EPOCHS, search={}, seeds=trials,
        fields={
            "corpus.length": 10, "model.width": 4, "model.emission.components": 3,
            "recipe.batch": 16,
        },
    )  # fmt: skip
    fields = corpus_config(study, study.fields)
    corpus = opened(fields)
    points = resolve(study, corpus, fields)
    with closing(StudyStore(folder / "store")) as store, Path(os.devnull).open("w") as nowhere:
        planner = Planner(study, points[:1], corpus, store)
        said, sys.stdout = sys.stdout, nowhere
        with Watched(planner, as_json=True) as console, cluster():
            packer = Packer(planner, corpus, max_members=parse_fuse(fuse))
            complete = train(packer, Resources(1.0, 0.0, 2), console)
        sys.stdout = said
    assert complete
    for name in ("records.ndjson", "checkpoint.pt", "events.*", "test-*.npy"):
        assert len(list(folder.glob(f"store/*/{name}"))) == trials, name


def rays(trials: int, folder: Path, clock: Clock, side: str) -> None:
    """`tune.run` over the same trainings."""
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    import ray
    from ray import tune

    class Watched(tune.Callback):
        """Looks at the clock when a trial ends."""

        def on_trial_complete(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
            clock.tick()

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    fields = {"name": "text", "path": str(sentences(folder)), "length": 10}
    tune.run(
        tune.with_parameters(trainable(), corpus=opened(fields)), name=side,
        config={"seed": tune.grid_search(list(range(trials)))},
        storage_path=str(folder), reuse_actors=True, max_concurrent_trials=2,
        resources_per_trial={"cpu": 1}, callbacks=[Watched()], verbose=0,
        trial_dirname_creator=lambda trial: str(trial.trial_id),
    )  # fmt: skip
    ray.shutdown()
    for name in ("result.json", "progress.csv", "events.*"):
        assert len(list(folder.glob(f"{side}/*/{name}"))) == trials, name


def trainable() -> Callable[..., Any]:
    """The same training, told to Tune and to nobody else."""
    from ray import tune

    class Bare(tune.Trainable):
        """An epoch a step."""

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
            """Nothing."""

        def load_checkpoint(self, checkpoint: Any) -> None:
            """Nothing."""

    return Bare


def sentences(folder: Path) -> Path:
    """Sixty sentences."""
    rows = (" ".join(WORDS[(i * j + i) % 10] for j in range(3 + i % 4)) for i in range(60))
    path = folder / "sentences.txt"
    path.write_text("\n".join(rows) + "\n")
    return path


def opened(fields: dict[str, Any]) -> Any:
    """The corpus of these fields."""
    from lmzoo.data.open import open_corpus

    return open_corpus(fields)


if __name__ == "__main__":
    run_command(main)
