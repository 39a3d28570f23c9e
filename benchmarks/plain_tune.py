"""Train the runs of a sweep with torch and Tune alone: one trial per run, in torch operations.

    python benchmarks/plain_tune.py RUNS.json OUT.json

RUNS is a list of run configs, each with the number of `epochs` that the run trained. OUT is a list
in the same order: the validation loss after the first epoch and the seconds of training. A trial is
a function, as in Tune's manual: it gets the corpus from the object store and reports every epoch.
Recurrences are loops over steps with inputs projected before the loop, and no kernel of ours runs.
Weights, batches, recipe and validation are the same, so the losses must be the same. Unlike a
sweep, it writes no checkpoint and no records, only Tune's own logs.
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
from lmzoo.data.corpus import Corpus, open_corpus
from lmzoo.kernels import dispatch
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training, fit


def main(
    runs: Annotated[Path, typer.Argument(help="A list of configs, each with `epochs`.")],
    out: Annotated[Path, typer.Argument(help="The file of losses and seconds.")],
    cores: Annotated[int, typer.Option(min=1, help="Concurrent trials, one core each.")] = 2,
    *,
    reuse: Annotated[bool, typer.Option(help="Reuse a process for several trials.")] = False,
) -> None:
    """Train all runs."""
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
    by_index = {metrics["at"]: metrics for result in results if (metrics := result.metrics)}
    rows = [{key: by_index[i][key] for key in ("first", "seconds")} for i in range(len(configs))]
    out.write_text(json.dumps(rows))


def trial(config: dict[str, Any], corpus: Corpus) -> None:
    """Train one run and report every epoch."""
    dispatch.DTYPES.clear()  # kernels accept no tensor
    Cell.scan = Cell.naive_scan
    run = config["configs"][config["at"]]
    recipe = from_dict(Recipe, run["recipe"])
    model = zoo.build(MODELS.parse(run["model"]), corpus.task, run["seed"], recipe.init)
    first, seconds = None, 0.0
    for record in fit(Training(model, recipe, run["seed"]), corpus, run["epochs"]):
        loss, seconds = record["valid_token"], seconds + record["seconds"]
        first = first or loss
        tune.report({"at": config["at"], "first": first, "loss": loss, "seconds": seconds})


if __name__ == "__main__":
    run_command(main)
