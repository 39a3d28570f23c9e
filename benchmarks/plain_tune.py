"""Runs of a sweep as torch and Tune train them by themselves: each a trial in plain operations.

    python benchmarks/plain_tune.py RUNS.json OUT.json

RUNS lists configs, each with the epochs that its run was trained; OUT is given of each, in that
order, its validation loss after the first epoch and the seconds of training. A trial is a
function, as Tune's manual has it: it gets the corpus through the object store and reports every
epoch. Recurrences are loops over steps with inputs projected beforehand, everything else is
operations of torch, one member at a time, without any compiled loop of ours; weights, batches,
recipe and validation are the same, and so must the losses be. No checkpoint is written and
nothing of a run is kept but Tune's own logs, which is less than a sweep does.
"""

import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import ray
import typer
from ray import tune

from lmzoo import zoo
from lmzoo.cells.base import Cell
from lmzoo.command_line import run_command
from lmzoo.config import from_dict
from lmzoo.contract import MODELS
from lmzoo.data.corpus import Corpus
from lmzoo.data.open import open_corpus
from lmzoo.kernels import dispatch as processor
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training, fit


def main(
    runs: Annotated[Path, typer.Argument(help="A list of configs, each with `epochs`.")],
    out: Annotated[Path, typer.Argument(help="Where losses and seconds go.")],
    cores: Annotated[int, typer.Option(min=1, help="Trials at a time, a core each.")] = 2,
    *,
    reuse: Annotated[bool, typer.Option(help="A process for trial after trial.")] = False,
) -> None:
    """Train them all."""
    configs = json.loads(runs.read_text())
    corpus = open_corpus(configs[0]["corpus"])
    ray.init(num_cpus=cores, log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        tuner = tune.Tuner(
            tune.with_parameters(trial, corpus=corpus),
            param_space={"at": tune.grid_search(list(range(len(configs)))), "configs": configs},
            tune_config=tune.TuneConfig(reuse_actors=reuse),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        )
        results = tuner.fit()
    if results.errors:
        raise results.errors[0]
    found = {metrics["at"]: metrics for one in results if (metrics := one.metrics)}
    asked = [{key: found[i][key] for key in ("first", "seconds")} for i in range(len(configs))]
    out.write_text(json.dumps(asked))


def trial(given: dict[str, Any], corpus: Corpus) -> None:
    """One run, reported epoch by epoch."""
    processor.DTYPES.clear()  # no type of numbers is for compiled loops
    Cell.scan = Cell.naive_scan
    config = given["configs"][given["at"]]
    recipe = from_dict(Recipe, config["recipe"])
    model = zoo.build(MODELS.parse(config["model"]), corpus.task, config["seed"], recipe.init)
    first, seconds = None, 0.0
    for record in fit(Training(model, recipe, config["seed"]), corpus, config["epochs"]):
        loss, seconds = record["valid_token"], seconds + record["seconds"]
        first = first or loss
        tune.report({"at": given["at"], "first": first, "loss": loss, "seconds": seconds})


if __name__ == "__main__":
    run_command(main)
