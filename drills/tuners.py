"""Rows of the zoo under the schedulers, searchers and options of Ray Tune; one line each.

    python -m drills.tuners FOLDER [NAME ...]

HyperOpt, BOHB and PB2 need `pip install hyperopt hpbandster ConfigSpace GPy scikit-learn`; the
bucket needs moto, the notebook nbclient and ipykernel. The Ray is the user's: the drill starts it.
What fails, or is not installed, is a line, too, and the exit code is 1.
"""

import argparse
import contextlib
import importlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import (
    ASHAScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
)

import lmzoo.tune
from tests.toy_study import WORDS

EPOCHS = 4
LONG = 30
RATE = {"recipe.lr": tune.loguniform(1e-3, 1e-1), "seed": 1}
EXPLOIT: dict[str, Any] = {
    "time_attr": "training_iteration",
    "perturbation_interval": 1,
    "quantile_fraction": 0.5,
    "synch": True,
}
"""Of PBT and PB2. By seconds, their default, all trials may be paused for ever once their times are
equal."""
RATES = {"recipe.lr": tune.grid_search([1e-3, 1e-2]), "seed": 1}
PORT = 5123
BUCKET = f"s3://bucket/tuned{{}}?endpoint_override=http%3A%2F%2F127.0.0.1%3A{PORT}&region=us-east-1"
KILLED = """
import sys
from drills.tuners import LONG, RATES, Tuners, start
start()
tuners = Tuners(sys.argv[1])
tuners.fit("killed", train=tuners.row(LONG), space=RATES, samples=1)
"""


def start() -> None:
    """Start a Ray with two CPUs and a GPU that is not there."""
    ray.init(address="local", num_cpus=2, num_gpus=1, include_dashboard=False, log_to_driver=False)


def told(results: tune.ResultGrid) -> str:
    """Return the last epochs of the trials, and their errors."""
    epochs = sorted(int((own.metrics or {}).get("epoch", 0)) for own in results)
    errors = [str(error).splitlines()[-1] for error in results.errors]
    return f"{len(results)} trials, epochs {epochs}, errors {errors}"


def config(result: tune.Result) -> dict[str, Any]:
    """Return the config of a trial."""
    return result.config or {}


def losses(results: tune.ResultGrid) -> list[tuple[float, float]]:
    """Return the rate and the test loss of each trial."""
    return sorted((config(own)["recipe.lr"], (own.metrics or {})["test"]) for own in results)


def plain(settings: dict[str, Any], seed: int, epochs: int) -> Iterator[dict[str, float]]:
    """A function as a trainable."""
    for epoch in range(1, epochs + 1):
        yield {"epoch": epoch, "valid": settings["recipe.lr"] + 1 / epoch}


def raises(settings: dict[str, Any], seed: int, epochs: int) -> Iterator[dict[str, float]]:
    """Raise at the third epoch if the rate is high."""
    for record in plain(settings, seed, epochs):
        if record["epoch"] == 3 and settings["recipe.lr"] > 5e-3:
            raise RuntimeError("no third epoch")
        yield record


def without_metric(settings: dict[str, Any], seed: int, epochs: int) -> Iterator[dict[str, float]]:
    """Report no metric."""
    yield {"epoch": 1}


def nan(settings: dict[str, Any], seed: int, epochs: int) -> Iterator[dict[str, float]]:
    """Report NaN if the rate is high."""
    for record in plain(settings, seed, epochs):
        if settings["recipe.lr"] > 5e-3:
            record["valid"] = math.nan
        yield record


def branches(trial: Any) -> dict[str, Any]:
    """A space of Optuna with a branch."""
    trial.suggest_float("recipe.lr", 1e-3, 1e-1, log=True)
    chosen = trial.suggest_categorical("recipe.optimiser", ["adam", "adamw"])
    if chosen == "adamw":
        trial.suggest_float("recipe.weight_decay", 0.01, 0.2)
    return {"seed": 1}


CELL = """
import ray
from ray import tune
import lmzoo
ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
def train(settings, seed, epochs):
    for epoch in range(1, epochs + 1):
        yield {{"epoch": epoch, "valid": settings["rate"] / epoch}}
tuner = tune.Tuner(
    lmzoo.tune.trainable(train, epochs=3),
    param_space={{"rate": tune.grid_search([1.0, 2.0])}},
    run_config=tune.RunConfig(name="cell", storage_path={!r}, verbose=0),
)
print([own.metrics["valid"] for own in tuner.fit()])
ray.shutdown()
"""


class Tuners:
    """Each public method runs one Tuner, and says what its trials did."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder).resolve()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._text = self._folder / "sentences.txt"
        lines = {" ".join(WORDS[(i * j + i) % 10] for j in range(3 + i % 4)) for i in range(400)}
        self._text.write_text("\n".join(sorted(lines)) + "\n")

    def row(self, epochs: int = EPOCHS) -> Any:
        return lmzoo.tune.trainable("gru", f"text:{self._text}", epochs=epochs, width=8)

    def fit(
        self,
        name: str,
        *,
        train: Any = None,
        space: Any = None,
        samples: int = 3,
        storage: str = "",
        run: dict[str, Any] | None = None,
        **how: Any,
    ) -> tune.ResultGrid:
        """Run a Tuner of this name."""
        return tune.Tuner(
            train or self.row(),
            param_space=space or RATE,
            tune_config=tune.TuneConfig(metric="valid", mode="min", num_samples=samples, **how),
            run_config=tune.RunConfig(
                name=name,
                storage_path=storage or str(self._folder),
                **{"verbose": 0, **(run or {})},
            ),
        ).fit()

    def asha(self) -> str:
        scheduler = ASHAScheduler(max_t=EPOCHS, grace_period=1, reduction_factor=2)
        return told(self.fit("asha", scheduler=scheduler))

    def hyperband(self) -> str:
        """Pauses trials."""
        scheduler = HyperBandScheduler(max_t=EPOCHS, reduction_factor=2)
        return told(self.fit("hyperband", scheduler=scheduler, samples=4))

    def median(self) -> str:
        scheduler = MedianStoppingRule(grace_period=1, min_samples_required=2)
        return told(self.fit("median", scheduler=scheduler, samples=4))

    def pbt(self) -> str:
        """Exploits: a trial goes on from the checkpoint of another one, with another recipe."""
        changes = {"recipe.lr": tune.loguniform(1e-3, 1e-1), "recipe.weight_decay": [0.0, 0.1]}
        scheduler = PopulationBasedTraining(hyperparam_mutations=changes, **EXPLOIT)
        space = {**RATE, "recipe.weight_decay": 0.0, "recipe.optimiser": "adamw"}
        results = self.fit("pbt", scheduler=scheduler, space=space, samples=2)
        return f"{told(results)}; {scheduler._num_perturbations} exploits"

    def pb2(self) -> str:
        from ray.tune.schedulers.pb2 import PB2

        bounds = {"recipe.lr": [1e-3, 1e-1]}
        scheduler = PB2(hyperparam_bounds=bounds, **EXPLOIT)
        results = self.fit("pb2", scheduler=scheduler, samples=2)
        return f"{told(results)}; {scheduler._num_perturbations} exploits"

    def optuna(self) -> str:
        from ray.tune.search.optuna import OptunaSearch

        scheduler = ASHAScheduler(max_t=EPOCHS, grace_period=1)
        return told(self.fit("optuna", search_alg=OptunaSearch(seed=0), scheduler=scheduler))

    def hyperopt(self) -> str:
        from ray.tune.search.hyperopt import HyperOptSearch

        return told(self.fit("hyperopt", search_alg=HyperOptSearch(random_state_seed=0)))

    def bohb(self) -> str:
        from ray.tune.search.bohb import TuneBOHB

        scheduler = HyperBandForBOHB(max_t=EPOCHS, reduction_factor=2, stop_last_trials=False)
        return told(self.fit("bohb", search_alg=TuneBOHB(seed=0), scheduler=scheduler))

    def grid(self) -> str:
        space = {**RATES, "seed": tune.grid_search([1, 2])}
        return told(self.fit("grid", space=space, samples=1))

    def fractions(self) -> str:
        """Half a GPU for each of two trials, which run at the same time."""
        train = tune.with_resources(self.row(), {"cpu": 0.5, "gpu": 0.5})
        return told(self.fit("fractions", train=train, samples=2))

    def budget(self) -> str:
        begun = time.monotonic()
        results = self.fit("budget", time_budget_s=15, samples=50)
        unfinished = sum((own.metrics or {}).get("epoch") != EPOCHS for own in results)
        seconds = time.monotonic() - begun
        return f"{len(results)} trials in {seconds:.0f} s, {unfinished} of them were stopped"

    def stop(self) -> str:
        return told(self.fit("stop", run={"stop": {"training_iteration": 2}}, samples=2))

    def callback(self) -> str:
        class Count(tune.Callback):
            results = 0

            def on_trial_result(self, *_: Any, **__: Any) -> None:
                Count.results += 1

        results = self.fit("callback", run={"callbacks": [Count()]}, samples=2)
        return f"{told(results)}; the callback saw {Count.results} results"

    def reporter(self) -> str:
        """A reporter of one's own."""

        class Lines(tune.ProgressReporter):
            count = 0

            def should_report(self, *given: Any, **named: Any) -> bool:
                return True

            def report(self, *given: Any) -> None:
                Lines.count += 1

        os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
        results = self.fit("reporter", run={"progress_reporter": Lines(), "verbose": 1}, samples=1)
        return f"{told(results)}; Tune called it {Lines.count} times"

    def function(self) -> str:
        train = lmzoo.tune.trainable(plain, epochs=EPOCHS)
        scheduler = ASHAScheduler(max_t=EPOCHS, grace_period=1, reduction_factor=2)
        return told(self.fit("function", train=train, scheduler=scheduler))

    def error(self) -> str:
        """A function that raises at the third epoch; the other trial ends."""
        train = lmzoo.tune.trainable(raises, epochs=EPOCHS)
        results = self.fit("error", train=train, space=RATES, samples=1)
        ends = [str(error).strip().splitlines()[-1] for error in results.errors]
        epochs = sorted((own.metrics or {})["epoch"] for own in results)
        return f"epochs {epochs}, one error {ends}; errors []" * (len(ends) == 1)

    def no_metric(self) -> str:
        """A function that reports no metric, under ASHA."""
        train = lmzoo.tune.trainable(without_metric, epochs=EPOCHS)
        try:
            results = self.fit("no_metric", train=train, samples=1, scheduler=ASHAScheduler())
            return told(results)
        except Exception as error:
            return f"{type(error).__name__}: {str(error).strip().splitlines()[-1][:160]}; errors []"

    def nans(self) -> str:
        """A function that reports NaN under ASHA; `confirm` leaves its trials out."""
        train = lmzoo.tune.trainable(nan, epochs=EPOCHS)
        scheduler = ASHAScheduler(max_t=EPOCHS, grace_period=1, reduction_factor=2)
        grid = self.fit("nans", train=train, space=RATES, samples=1, scheduler=scheduler)
        run_config = tune.RunConfig(name="nans-c", storage_path=str(self._folder), verbose=0)
        fresh = lmzoo.tune.confirm(grid, train, seeds=2, run_config=run_config)
        rates = {config(own)["recipe.lr"] for own in fresh}
        return f"{told(grid)}; confirmed with rates {sorted(rates)}"

    def names(self) -> str:
        """Points with slashes and letters of other scripts; `lmzoo judge` reads their trials."""
        points = {"whole": {}, "ohne/Tor: 門 ¼": {"cell.cuts": ["reset"]}}
        train = lmzoo.tune.trainable("gru", f"text:{self._text}", points=points, epochs=2, width=8)
        space = {"recipe.lr": 0.01, "point": tune.grid_search([*points])}
        space["seed"] = tune.grid_search([1, 2, 3])
        results = self.fit("names/of 門", train=train, space=space, samples=1)
        words = [sys.executable, "-m", "lmzoo", "judge", results.experiment_path]
        words += ["--by", "config.point", "--seed", "config.seed", "--metric", "test"]
        words += ["--reference", "whole", "--lower-is-better"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        said = (done.stdout + done.stderr).strip().splitlines()
        found = any("ohne/Tor" in line for line in said)
        return f"{told(results)}; judge: code {done.returncode}, names the point: {found}"

    def one_at_a_time(self) -> str:
        return told(self.fit("one", samples=2, max_concurrent_trials=1))

    def conditional(self) -> str:
        """A space with a branch, of Optuna; `confirm` trains each branch with its own names."""
        from ray.tune.search.optuna import OptunaSearch

        search = OptunaSearch(branches, metric="valid", mode="min", seed=0)
        tuner = tune.Tuner(
            self.row(2),
            tune_config=tune.TuneConfig(search_alg=search, num_samples=5),
            run_config=tune.RunConfig(name="if", storage_path=str(self._folder), verbose=0),
        )
        grid = tuner.fit()
        run_config = tune.RunConfig(name="if-c", storage_path=str(self._folder), verbose=0)
        by = ["recipe.optimiser"]
        fresh = lmzoo.tune.confirm(grid, self.row(2), by=by, seeds=1, run_config=run_config)
        kinds = sorted(
            (config(own)["recipe.optimiser"], "recipe.weight_decay" in config(own)) for own in fresh
        )
        return f"{told(grid)}; {told(fresh)}; has a weight decay: {kinds}"

    def unknown_point(self) -> str:
        """A point that the trainable does not have is an error of its trial."""
        results = self.fit("point", space={**RATE, "point": "other"}, samples=1)
        ends = [str(error).strip().splitlines()[-1] for error in results.errors]
        return f"{ends}; errors []" * (len(ends) == 1)

    def notebook(self) -> str:
        """A function, a Ray and a Tuner in a cell."""
        nbclient: Any = importlib.import_module("nbclient")
        nbformat: Any = importlib.import_module("nbformat")
        cells = [nbformat.v4.new_code_cell(CELL.format(str(self._folder)))]
        notebook = nbformat.v4.new_notebook(cells=cells)
        nbclient.NotebookClient(notebook, timeout=300).execute()
        said = "".join(own.get("text", "") for own in notebook.cells[0].outputs)
        return f"the cell printed {said.strip().splitlines()[-1]}; errors []"

    def confirm(self) -> str:
        grid = self.fit("search", samples=2)
        run_config = tune.RunConfig(name="confirmed", storage_path=str(self._folder), verbose=0)
        results = lmzoo.tune.confirm(grid, self.row(), seeds=2, run_config=run_config)
        return f"{told(results)}; seeds {sorted(config(own)['seed'] for own in results)}"

    def restore(self) -> str:
        """SIGKILL of the driver, `Tuner.restore`, and the losses of an undisturbed search."""
        folder = self._folder / "killed"

        def reports() -> int:
            return sum(path.read_text().count("\n") for path in folder.glob("*/result.json"))

        own = {**os.environ, "TUNE_GLOBAL_CHECKPOINT_S": "1"}
        words = [sys.executable, "-c", KILLED, str(self._folder)]
        with subprocess.Popen(words, env=own, stderr=subprocess.DEVNULL) as driver:
            while reports() < 10 and driver.poll() is None:
                time.sleep(0.2)
            driver.send_signal(signal.SIGKILL)
        time.sleep(5)  # its processes end
        before = reports()
        train = self.row(LONG)
        restored = tune.Tuner.restore(str(folder), train, resume_errored=True).fit()
        whole = self.fit("whole", train=train, space=RATES, samples=1)
        equal = losses(restored) == losses(whole)
        return f"{told(restored)}; SIGKILL after {before} reports; losses as undisturbed: {equal}"

    def bucket(self) -> str:
        from moto.server import ThreadedMotoServer
        from pyarrow import fs

        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        os.environ.update(keys, AWS_DEFAULT_REGION="us-east-1")
        server = ThreadedMotoServer(port=PORT)
        server.start()
        try:
            where = {"endpoint_override": f"127.0.0.1:{PORT}", "scheme": "http"}
            store = fs.S3FileSystem(**where, region="us-east-1", allow_bucket_creation=True)
            store.create_dir("bucket")
            results = self.fit("s3", storage=BUCKET.format(""), samples=2)
            files = store.get_file_info(fs.FileSelector("bucket/tuned", recursive=True))
            read = tune.Tuner.restore(BUCKET.format("/s3"), self.row()).get_results()
            return f"{told(results)}; {len(files)} files; {len(read)} trials are read back"
        finally:
            server.stop()


def main(folder: str, *names: str) -> int:
    """Run the Tuners of these names, or all; return the exit code."""
    start()
    tuners = Tuners(folder)
    failed = 0
    others = ("row", "fit")
    known: dict[str, Callable[[], str]] = {
        name: getattr(tuners, name)
        for name in vars(Tuners)
        if not name.startswith("_") and name not in others
    }
    for name in names or known:
        begun = time.monotonic()
        try:
            text = known[name]()
            failed += "errors []" not in text and name != "budget"
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            failed += 1
        print(f"{name:10} {time.monotonic() - begun:4.0f} s  {text}", flush=True)  # noqa: T201
    with contextlib.suppress(Exception):
        ray.shutdown()
    return int(failed > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", help="where the trials write")
    parser.add_argument("names", nargs="*", help="which Tuners; none: all")
    given = parser.parse_args()
    sys.exit(main(given.folder, *given.names))
