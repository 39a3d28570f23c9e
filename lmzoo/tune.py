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

import contextlib
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
from ray.tune.search import Searcher

from lmzoo import zoo
from lmzoo.api import build, corpus_spec
from lmzoo.base.arguments import called, texts, whole
from lmzoo.base.command_line import nest_settings
from lmzoo.base.environment import NUMERIC, differences, environment, present
from lmzoo.base.errors import UserError
from lmzoo.base.plain import Fields, FieldsDict
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
Train = Callable[[FieldsDict], None]
LOG = logging.getLogger("lmzoo")


@called
def trainable(
    row: str | Callable[..., Any],
    corpus: str | Fields = "captions",
    *,
    points: Mapping[str, Fields] | None = None,
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
    epochs = whole("epochs", epochs, 1)
    if callable(row):
        return _of_function(row, epochs)
    name = zoo.row(row).name
    spec = corpus_spec(corpus)
    by_point = _fields_by_point(points, fields)
    for shared in by_point.values():
        zoo.config(row, **shared)

    def train(config: FieldsDict):
        settings = dict(config)
        point = settings.pop(POINT, None)
        seed = settings.pop(SEED, 0)
        recipe = Recipe().with_fields(nest_settings(settings, "recipe"))
        # The schedule ends with the last epoch, whenever a scheduler stops the trial.
        recipe = recipe.with_budget(epochs)
        if point not in by_point:
            known = ", ".join(map(str, points or ["none"]))
            raise UserError(f"{POINT} {point!r} is not one of trainable(points=...): {known}")
        own = zoo.overlay(by_point[point], nest_settings(settings, "model"))
        model = build(row, spec, recipe=recipe, seed=seed, data_dir=data_dir, **own)
        training = model._training
        assert training is not None
        checkpoint = tune.get_checkpoint()
        if checkpoint is not None:
            with checkpoint.as_directory() as folder:
                donor = Path(folder, CONFIG).read_text()
                _check_same(json.loads(donor), config)
                state = torch.load(Path(folder, STATE), weights_only=True)
            training.load(state)
        for record in model.stream(epochs - training.epoch):
            losses = {"train": record["train_token"], "valid": record["valid_token"]}
            if training.epoch == epochs:
                # As in a sweep, the test is of the best epoch, not of the last one.
                model.module.load_state_dict(training.best_weights)
                losses["test"] = model.test().token
            _report(training, losses, config)

    # Ray Tune names experiments and trials after the function.
    train.__name__ = name
    return train


def _report(training: Any, losses: Mapping[str, float | None], config: FieldsDict):
    """Report the losses of an epoch to Tune, with a checkpoint."""
    report: FieldsDict = {"epoch": training.epoch}
    for split, loss in losses.items():
        if loss is None:
            # Tune compares numbers; a loss that diverged is none.
            loss = math.nan
        report[split] = loss
    report["environment"] = _recorded(NUMERIC)
    with tempfile.TemporaryDirectory() as folder:
        torch.save(training.dump(), Path(folder, STATE))
        text = json.dumps(config, default=str)
        # With the state: a trial that goes on from it checks what cannot change.
        Path(folder, CONFIG).write_text(text)
        checkpoint = tune.Checkpoint.from_directory(folder)
        tune.report(report, checkpoint=checkpoint)


def _fields_by_point(points: Any, fields: Fields) -> dict[Any, FieldsDict]:
    """Return the fields of the model for each point; without points, those of no point."""
    if not points:
        return {None: dict(fields)}
    owners = [points]
    if isinstance(points, Mapping):
        owners += points.values()
    for own in owners:
        if not isinstance(own, Mapping):
            raise UserError(f"points has {own!r:.60}; give {{'NAME': {{FIELD: VALUE}}}}")
    found = {}
    for point, own in points.items():
        settings = {f"model.{name}": value for name, value in own.items()}
        nested = nest_settings(settings, "model")
        found[point] = zoo.overlay(fields, nested)
    return found


def _of_function(function: Callable[..., Any], epochs: int) -> Train:
    name = getattr(function, "__name__", "function")
    try:
        inspect.signature(function).bind({}, 0, epochs)
    except TypeError as error:
        raise UserError(f"{name}: {error}; write def {name}(settings, seed, epochs)") from None

    names = ("python",) + NUMERIC + ("packages", "variables")

    def train(config: FieldsDict):
        settings = dict(config)
        seed = settings.pop(SEED, 0)
        for record in function(settings, seed, epochs):
            if not isinstance(record, Mapping):
                raise UserError(f"{name} yields {record!r:.60}; yield a dict of metrics")
            found = {"environment": _recorded(names, source)}
            tune.report(dict(record) | found)

    # A notebook has no file, and what is read from stdin has no source.
    source = b""
    # The file, where there is one, as it may name variables outside of the function.
    owners: list[Any] = [function, sys.modules.get(function.__module__)]
    for owner in owners:
        with contextlib.suppress(OSError, TypeError):
            source = inspect.getsource(owner).encode()
    train.__name__ = name
    return train


def _recorded(names: Sequence[str], *sources: bytes) -> FieldsDict:
    """Return what is recorded of the environment of a trial."""
    found = environment(sources=sources)
    return {name: found[name] for name in names if name in found}


def _say_changes(grid: tune.ResultGrid):
    """Say which trials were trained in another environment."""
    changed = Counter[str]()
    for result in grid:
        metrics = result.metrics or {}
        then = metrics.get("environment", {})
        found = differences(then, present(then), program="packages" in then)
        for name, (old, new) in found.items():
            changed[f"{name} {old} (now {new})"] += 1
    for text, count in changed.items():
        LOG.warning(
            "%d trials, whose losses choose the settings, were trained with %s", count, text
        )


def _check_same(donor: Fields, own: Fields):
    """Raise a `UserError` if the training of one config cannot go on with another one."""
    for name in sorted(donor.keys() | own.keys()):
        if name not in FIXED and not name.startswith("model."):
            continue
        before = donor.get(name)
        now = own.get(name)
        text = json.dumps(now, default=str)
        # The donor's config has passed through JSON, which makes lists of tuples.
        stored = json.loads(text)
        if before != stored:
            raise UserError(
                f"a checkpoint with {name}={before} cannot go on with {now}; leave {name} out of "
                "hyperparam_mutations"
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
    texts("by", by)
    seeds = whole("seeds", seeds, 1)
    _say_changes(grid)
    trained = _losses(grid, metric)
    for name in by:
        if name != POINT and not any(name in config for _, config in trained):
            raise UserError(f"by: no trial has {name!r}; known: {', '.join(trained[0][1])}")
    # The best one of a group is the last to be written.
    trained.sort(key=lambda own: own[0], reverse=mode == "min")
    best: dict[str, FieldsDict] = {}
    for _, config in trained:
        values = [config.get(name) for name in by]
        # As text, because a value may be a list, which is no key.
        best[repr(values)] = config
    last_seed = max(int(config.get(SEED, 0)) for _, config in trained)
    configs: list[FieldsDict] = []
    for config in best.values():
        for number in range(1, seeds + 1):
            # The choice has favoured the seeds of the search, so that none is used again.
            configs.append(config | {SEED: last_seed + number})
    search = Listed(configs)
    tuning = tune.TuneConfig(search_alg=search, num_samples=len(configs))
    tuner = tune.Tuner(train, tune_config=tuning, run_config=run_config)
    return tuner.fit()


def _losses(grid: tune.ResultGrid, metric: str) -> list[tuple[float, FieldsDict]]:
    """Return the loss and the config of each trial that has a loss."""
    found = []
    for result in grid:
        metrics = result.metrics or {}
        loss = metrics.get(metric)
        if isinstance(loss, int | float) and not math.isnan(loss):
            found.append((loss, result.config or {}))
    if not found:
        raise UserError(f"no trial of {grid.experiment_path} has reported {metric!r}")
    return found


class Listed(Searcher):
    """Suggests these configs. A branch of a conditional space lacks names that others have."""

    def __init__(self, configs: list[FieldsDict]):
        super().__init__()
        self.left = configs

    def suggest(self, trial_id: str) -> Any:
        """Return the next config."""
        if self.left:
            return self.left.pop(0)
        return Searcher.FINISHED

    def on_trial_complete(self, trial_id: str, *results: Any, **how: Any):
        """Do nothing: no config follows from a result."""

    def save(self, checkpoint_path: str):
        """Write how many are left, for `Tuner.restore`."""
        Path(checkpoint_path).write_text(str(len(self.left)))

    def restore(self, checkpoint_path: str):
        """Leave out those that were suggested."""
        count = int(Path(checkpoint_path).read_text())
        suggested = len(self.left) - count
        del self.left[:suggested]


@called
def param_space(row: str, *names: str, **fields: Any) -> FieldsDict:
    """Return Ray Tune's search space of a row: the ranges that its fields declare.

    Args:
        row: Name or alias of a row.
        *names: Fields, such as `recipe.dropout` or `model.width`; the learning rate by default.
        **fields: Fields of the model, as in `trainable`.

    Raises:
        UserError: A field declares no range.
    """
    config = zoo.config(row, **fields)
    known: FieldsDict = {}
    for part, kind in {"recipe": Recipe, "model": type(config)}.items():
        for name, bounds in ranges(kind).items():
            known[f"{part}.{name}"] = bounds
    return {name: _domain(known, name) for name in names or ("recipe.lr",)}


def _domain(known: Fields, name: str) -> Any:
    if name not in known:
        raise UserError(f"{name!r} declares no range; known: {', '.join(known)}")
    bounds = known[name]
    if isinstance(bounds, Choice):
        return tune.choice(list(bounds.values))
    if isinstance(bounds, IntRange):
        # Ray Tune leaves the upper bound out; a range of lmzoo has it.
        end = bounds.high + 1
        if bounds.log:
            return tune.lograndint(bounds.low, end)
        return tune.randint(bounds.low, end)
    if bounds.log:
        return tune.loguniform(bounds.low, bounds.high)
    return tune.uniform(bounds.low, bounds.high)
