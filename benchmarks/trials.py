"""Many trials of three trivial epochs through the whole path, beside bare Ray Tune.

    python benchmarks/trials.py --trials 2000 --out runs/bench/trials.json

Ours is the sweep itself: agenda, Ray, and for each run a folder with checkpoints, records,
curves and test losses. The rival is `tune.run` with its default loggers over a trainable
that trains the same model on the same sentences, keeps its actors as ours does, and saves
nothing. Each runs in a process of its own, one after the other. What is counted lies
between the trials that ended as the first tenth and as the last, so that neither Ray's
start nor torch's import is in it: seconds by the clock, the driver's own processor time,
and what the driver's memory grew by.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

ROOT = Path(__file__).parents[1]
WORDS = ("a", "man", "dog", "runs", "sits", "in", "the", "park", "two", "red")
EPOCHS = 3
SIDES = ("ours", "rays")


def main(
    trials: Annotated[int, typer.Option(min=20)] = 2000,
    out: Annotated[Path, typer.Option(help="Where the JSON goes.")] = Path(
        "runs/bench/trials.json"
    ),
    side: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Run both sides, ours first; with `--side`, one of them here."""
    if side:
        with tempfile.TemporaryDirectory() as folder:
            marks = {"ours": ours, "rays": rays}[side](trials, Path(folder))
        out.write_text(json.dumps(spent(marks)))
        return
    found: dict[str, Any] = {"trials": trials, "epochs": EPOCHS}
    with tempfile.TemporaryDirectory() as folder:
        for name in SIDES:
            told = Path(folder, name)
            command = [sys.executable, __file__, "--trials", str(trials), "--side", name]
            slow = {"RAY_raylet_start_wait_time_s": "300"}  # a busy machine takes long to start Ray
            env = {**os.environ, **slow, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
            subprocess.run([*command, "--out", str(told)], check=True, env=env)
            found[name] = json.loads(told.read_text())
    for key in found["ours"]:
        found[f"{key}, ours / rays"] = round(found["ours"][key] / found["rays"][key], 3)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n")
    typer.echo(out.read_text())


def ours(trials: int, folder: Path) -> list[tuple[float, float, float]]:
    """A sweep of so many confirm runs."""
    from sweeps.engine.address import environment

    os.environ.update(environment({}))
    from sweeps.engine import Point, Study
    from sweeps.engine.agenda import Agenda
    from sweeps.engine.cluster import Resources
    from sweeps.engine.console import Console
    from sweeps.engine.resolve import corpus_config, resolve
    from sweeps.engine.store import Store
    from sweeps.engine.tuner import train

    marks = []

    class Watched(Console):
        """A console that also looks at the clock."""

        def end(self, job: Any) -> None:
            super().end(job)
            marks.append(mark())

    study = Study(
        name="trials", question="How long does nothing take?", points=(Point("one", "DLM46"),),
        corpus=f"text:{sentences(folder)}", epochs=EPOCHS, samples=1, seeds=trials,
        fields={
            "corpus.length": 10, "model.width": 4, "model.emission.components": 3,
            "recipe.batch": 16,
        },
    )  # fmt: skip
    fields = corpus_config(study, study.fields)
    corpus = opened(fields)
    with closing(Store(folder / "store")) as store, Path(os.devnull).open("w") as nowhere:
        agenda = Agenda(study, resolve(study, corpus, fields), corpus, store)
        sys.stdout = nowhere
        with Watched(agenda, as_json=True) as console:
            complete = train(agenda, corpus, Resources(1.0, 0.0, 2), console, 0)
        sys.stdout = sys.__stdout__
        assert complete
        assert len(list((folder / "store").glob("*/records.ndjson"))) == trials
    return marks


def rays(trials: int, folder: Path) -> list[tuple[float, float, float]]:
    """`tune.run` over the same trainings."""
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    import ray
    from ray import tune

    marks = []

    class Watched(tune.Callback):
        """Looks at the clock when a trial ends."""

        def on_trial_complete(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
            marks.append(mark())

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    fields = {"name": "text", "path": str(sentences(folder)), "length": 10}
    tune.run(
        tune.with_parameters(trainable(), corpus=opened(fields)),
        config={"seed": tune.grid_search(list(range(trials)))},
        storage_path=str(folder / "rays"), reuse_actors=True, max_concurrent_trials=2,
        resources_per_trial={"cpu": 1}, callbacks=[Watched()], verbose=0,
        trial_dirname_creator=lambda trial: str(trial.trial_id),
    )  # fmt: skip
    ray.shutdown()
    return marks


def trainable() -> type:
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
            from lmzoo.fit import Training, fit
            from lmzoo.recipe import Recipe

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


def mark() -> tuple[float, float, float]:
    """Seconds by the clock, of this process's processor time; its own megabytes."""
    pages = Path("/proc/self/statm").read_text().split()
    own = (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return time.monotonic(), time.process_time(), own


def spent(marks: list[tuple[float, float, float]]) -> dict[str, float]:
    """What a trial took after the first tenth, and what the driver grew by since."""
    first = len(marks) // 10
    n = len(marks) - 1 - first
    (clock, cpu, low), (clock_end, cpu_end, high) = marks[first], marks[-1]
    return {
        "seconds a trial": round((clock_end - clock) / n, 4),
        "driver cpu seconds a trial": round((cpu_end - cpu) / n, 4),
        "driver MB after a tenth": round(low, 1),
        "driver MB at the end": round(high, 1),
    }


if __name__ == "__main__":
    typer.run(main)
