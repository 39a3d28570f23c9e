"""Rows of the zoo in a `ray.tune.Tuner` of your own: one trial is one run.

    tuner = tune.Tuner(
        lmzoo.tune.trainable("DLM46", "captions", epochs=10),
        param_space=lmzoo.tune.param_space("DLM46"),
        tune_config=tune.TuneConfig(metric="valid", mode="min", num_samples=20),
    )

Schedulers, search algorithms, callbacks, `ResultGrid` and `Tuner.restore` are those of Ray Tune.
Each report has what may change its numbers, as `environment`: versions, and variables that the file
of a function names. `lmzoo judge` and `confirm` say where trials differ in it.
`confirm` trains the best setting of each point on new seeds; `lmzoo judge RESULTS` reads the folder
of results.
"""

import inspect
import json
import logging
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from ray import tune
from ray.tune.search.basic_variant import BasicVariantGenerator

from lmzoo import zoo
from lmzoo.api import build, corpus_spec
from lmzoo.base.arguments import called, whole
from lmzoo.base.command_line import nest_settings
from lmzoo.base.environment import NUMERIC, differences, environment, present
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import Choice, IntRange, ranges
from lmzoo.train.recipe import Recipe

STATE = "training.pt"
CONFIG = "trial.json"
"""Files of a checkpoint: the state of the training, and the config of its trial."""
POINT = "point"
SEED = "seed"
"""Names in the config of a trial, next to `model.FIELD` and `recipe.FIELD`."""
FIXED = (POINT, "recipe.optimiser", "recipe.init", "recipe.parametrisation", "recipe.base_width")
"""Names that decide the weights or the optimiser's state, as all fields of the model do."""
Train = Callable[[dict[str, Any]], None]
LOG = logging.getLogger("lmzoo")


@called
def trainable(
    row: str | Callable[..., Any],
    corpus: str | Mapping[str, Any] = "captions",
    *,
    points: Mapping[str, Mapping[str, Any]] | None = None,
    epochs: int = 10,
    data_dir: Path | None = None,
    **fields: Any,
) -> Train:
    """Return a trainable of Ray Tune that trains a row of the zoo on a corpus, or a function.

    Each epoch reports `epoch`, `train` and `valid` (nats per token) with a checkpoint; the last one
    also `test`, of the best weights. A trial reads `recipe.FIELD`, `model.FIELD`, `seed` and
    `point` from its config; other names are refused. A trial that goes on from the checkpoint of
    another one, as PBT lets it, trains with the recipe of its own config; what cannot change, such
    as the optimiser, is refused.

    A function takes settings, a seed and the number of epochs, and yields a dict for each epoch, as
    the function of a point does. It has no checkpoints: a trial that was paused begins again.

    Args:
        row: Name or alias of a row, or a function.
        corpus: Name of a corpus, `text:PATH`, or name and fields, as in `lmzoo.build`.
        points: Name of a point -> fields of the model, such as `{"cell.cuts": [4]}`.
        epochs: Epochs of a trial. A scheduler may stop it earlier.
        data_dir: Folder of the corpus files; None downloads them.
        **fields: Fields of the model that all trials share.

    Raises:
        UserError: A name is unknown, or a field is invalid.
    """
    if isinstance(row, type):
        raise UserError(f"row is {row!r:.60}; give the name of a row, or a function")
    if callable(row):
        return _of_function(row, whole("epochs", epochs, 1))
    name = zoo.row(row).name
    spec = corpus_spec(corpus)
    epochs = whole("epochs", epochs, 1)
    mappings = [points or {}]
    if isinstance(points, Mapping):
        mappings += points.values()
    for own in mappings:
        if not isinstance(own, Mapping):
            raise UserError(f"points has {own!r:.60}; give {{'NAME': {{FIELD: VALUE}}}}")
    by_point = {
        point: zoo.overlay(
            fields, nest_settings({f"model.{k}": v for k, v in own.items()}, "model")
        )
        for point, own in (points or {}).items()
    }
    for shared in by_point.values() if points else [fields]:
        zoo.config(row, **shared)

    def train(config: dict[str, Any]) -> None:
        settings = {name: value for name, value in config.items() if name not in (POINT, SEED)}
        recipe = Recipe().with_fields(nest_settings(settings, "recipe")).with_budget(epochs)
        shared = by_point[config[POINT]] if points else fields
        own = zoo.overlay(shared, nest_settings(settings, "model"))
        seed = config.get(SEED, 0)
        model = build(row, spec, recipe=recipe, seed=seed, data_dir=data_dir, **own)
        training = model._training
        assert training is not None
        checkpoint = tune.get_checkpoint()
        if checkpoint is not None:
            with checkpoint.as_directory() as folder:
                _check_same(json.loads(Path(folder, CONFIG).read_text()), config)
                training.load(torch.load(Path(folder, STATE), weights_only=True))
        for record in model.stream(epochs - training.epoch):
            losses = {name: record[f"{name}_token"] for name in ("train", "valid")}
            if training.epoch == epochs:
                model.module.load_state_dict(training.best_weights)
                losses["test"] = model.test().token
            with tempfile.TemporaryDirectory() as folder:
                torch.save(training.dump(), Path(folder, STATE))
                Path(folder, CONFIG).write_text(json.dumps(config, default=str))
                saved = tune.Checkpoint.from_directory(folder)
                numbers = {k: math.nan if x is None else x for k, x in losses.items()}
                report = {"epoch": training.epoch, **numbers, "environment": _recorded(NUMERIC)}
                tune.report(report, checkpoint=saved)

    train.__name__ = name
    return train


def _of_function(function: Callable[..., Any], epochs: int) -> Train:
    def train(config: dict[str, Any]) -> None:
        settings = {name: value for name, value in config.items() if name != SEED}
        for record in function(settings, config.get(SEED, 0), epochs):
            found = _recorded(("python", *NUMERIC, "packages", "variables"), source)
            tune.report({**record, "environment": found})

    try:
        source = inspect.getsource(sys.modules[function.__module__]).encode()
    except (OSError, TypeError):  # of a notebook
        source = inspect.getsource(function).encode()
    train.__name__ = getattr(function, "__name__", "function")
    return train


def _recorded(names: Sequence[str], *sources: bytes) -> dict[str, Any]:
    """Return what is recorded of the environment of a trial."""
    found = environment(sources=sources)
    return {name: found[name] for name in names if name in found}


def _say_changes(results: Sequence[tune.Result]) -> None:
    """Say which trials were trained in another environment."""
    changed = Counter[str]()
    for result in results:
        then = (result.metrics or {}).get("environment", {})
        found = differences(then, present(then), program="packages" in then)
        changed.update(f"{name} {old} (now {new})" for name, (old, new) in found.items())
    for text, count in changed.items():
        LOG.warning(
            "%d trials, whose losses choose the settings, were trained with %s", count, text
        )


def _check_same(donor: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Raise a `UserError` if the training of one config cannot go on with another one."""
    for name in sorted(donor.keys() | own.keys()):
        is_fixed = name in FIXED or name.startswith("model.")
        if is_fixed and donor.get(name) != json.loads(json.dumps(own.get(name), default=str)):
            raise UserError(
                f"a checkpoint with {name}={donor.get(name)} cannot go on with {own.get(name)}; "
                f"leave {name} out of hyperparam_mutations"
            )


@called
def confirm(
    grid: tune.ResultGrid,
    train: Train,
    *,
    by: Sequence[str] = (POINT,),
    seeds: int = 5,
    metric: str = "valid",
    mode: str = "min",
    run_config: tune.RunConfig | None = None,
) -> tune.ResultGrid:
    """Train the best setting of each group of trials on new seeds; return their results.

    Args:
        grid: The results of a search.
        train: Its trainable.
        by: Names in the configs; trials with the same values are one group.
        seeds: Trials of each group, with seeds that no trial of the search has.
        metric: Name of the result that says which setting is best.
        mode: min or max.
        run_config: Of the new Tuner: its name and storage path, for example.

    Raises:
        UserError: No trial has the metric.
    """
    if mode not in ("min", "max"):
        raise UserError(f"mode {mode!r} is neither min nor max")
    if mode == "min":
        sign = 1
    else:
        sign = -1
    _say_changes([*grid])
    trained: list[tuple[float, dict[str, Any]]] = []
    for result in grid:
        loss = (result.metrics or {}).get(metric, math.nan)
        if not math.isnan(loss):
            trained.append((sign * loss, result.config or {}))
    if not trained:
        raise UserError(f"no trial of {grid.experiment_path} has reported {metric!r}")
    best: dict[str, dict[str, Any]] = {}
    for _, config in sorted(trained, key=lambda own: -own[0]):
        best[repr([config.get(name) for name in by])] = config
    first = 1 + max(int(config.get(SEED, 0)) for _, config in trained)
    configs = [
        {**config, SEED: first + seed}
        for config in best.values()
        for seed in range(whole("seeds", seeds, 1))
    ]
    names = dict.fromkeys(name for config in configs for name in config)
    space = {name: tune.choice([config.get(name) for config in configs]) for name in names}
    given = BasicVariantGenerator(points_to_evaluate=configs)
    tuning = tune.TuneConfig(search_alg=given, num_samples=len(configs))
    return tune.Tuner(train, param_space=space, tune_config=tuning, run_config=run_config).fit()


@called
def param_space(row: str, *names: str, **fields: Any) -> dict[str, Any]:
    """Return Ray Tune's search space of a row: the ranges that its fields declare.

    Args:
        row: Name or alias of a row.
        *names: Fields, such as `recipe.dropout` or `model.width`; the learning rate by default.
        **fields: Fields of the model, as in `trainable`.

    Raises:
        UserError: A field declares no range.
    """
    parts = {"recipe": Recipe, "model": type(zoo.config(row, **fields))}
    known = {f"{part}.{name}": r for part, own in parts.items() for name, r in ranges(own).items()}
    return {name: _domain(known, name) for name in names or ("recipe.lr",)}


def _domain(known: Mapping[str, Any], name: str) -> Any:
    if name not in known:
        raise UserError(f"{name!r} declares no range; known: {', '.join(known)}")
    bounds = known[name]
    if isinstance(bounds, Choice):
        return tune.choice(list(bounds.values))
    if isinstance(bounds, IntRange):
        return (tune.lograndint if bounds.log else tune.randint)(bounds.low, bounds.high + 1)
    return (tune.loguniform if bounds.log else tune.uniform)(bounds.low, bounds.high)
