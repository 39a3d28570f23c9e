"""Rows of the zoo in a `ray.tune.Tuner` of your own: one trial is one run.

    tuner = tune.Tuner(
        lmzoo.tune.trainable("DLM46", "captions", epochs=10),
        param_space=lmzoo.tune.param_space("DLM46"),
        tune_config=tune.TuneConfig(metric="valid", mode="min", num_samples=20),
    )

Schedulers, search algorithms, callbacks, `ResultGrid` and `Tuner.restore` are those of Ray Tune.
`lmzoo judge RESULTS` reads the folder of results.
"""

import math
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from ray import tune

from lmzoo import zoo
from lmzoo.api import build, corpus_spec
from lmzoo.base.arguments import called, whole
from lmzoo.base.command_line import nest_settings
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import Choice, IntRange, ranges
from lmzoo.train.recipe import Recipe

STATE = "training.pt"
POINT, SEED = "point", "seed"
"""Names in the config of a trial, next to `model.FIELD` and `recipe.FIELD`."""


@called
def trainable(
    row: str,
    corpus: str | Mapping[str, Any] = "captions",
    *,
    points: Mapping[str, Mapping[str, Any]] | None = None,
    epochs: int = 10,
    data_dir: Path | None = None,
    **fields: Any,
) -> Callable[[dict[str, Any]], None]:
    """Return a trainable of Ray Tune that trains a row of the zoo on a corpus.

    Each epoch reports `epoch`, `train` and `valid` (nats per token) with a checkpoint; the last one
    also `test`, of the best weights. A trial reads `recipe.FIELD`, `model.FIELD`, `seed` and
    `point` from its config; other names are refused.

    Args:
        row: Name or alias of a row.
        corpus: Name of a corpus, `text:PATH`, or name and fields, as in `lmzoo.build`.
        points: Name of a point -> fields of the model, such as `{"cell.cuts": [4]}`.
        epochs: Epochs of a trial. A scheduler may stop it earlier.
        data_dir: Folder of the corpus files; None downloads them.
        **fields: Fields of the model that all trials share.

    Raises:
        UserError: A name is unknown, or a field is invalid.
    """
    name = zoo.row(row).name
    spec = corpus_spec(corpus)
    epochs = whole("epochs", epochs, 1)
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
        if checkpoint := tune.get_checkpoint():
            with checkpoint.as_directory() as folder:
                training.load(torch.load(Path(folder, STATE), weights_only=True))
        for record in model.stream(epochs - training.epoch):
            losses = {name: record[f"{name}_token"] for name in ("train", "valid")}
            if training.epoch == epochs:
                model.module.load_state_dict(training.best_weights)
                losses["test"] = model.test().token
            with tempfile.TemporaryDirectory() as folder:
                torch.save(training.dump(), Path(folder, STATE))
                saved = tune.Checkpoint.from_directory(folder)
                numbers = {k: math.nan if x is None else x for k, x in losses.items()}
                tune.report({"epoch": training.epoch, **numbers}, checkpoint=saved)

    train.__name__ = name
    return train


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
