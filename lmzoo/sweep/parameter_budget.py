"""Equal parameters: the widest model of a kind that a budget allows."""

import torch

from lmzoo import zoo
from lmzoo.contract import MODELS, Task
from lmzoo.errors import UserError

WIDEST = 4096


def fit_width(model: object, task: Task, parameters: int) -> object:
    """The model config with its `width` as large as `parameters` allow.

    A model that wraps another has the width of that one fitted; a model without a width
    (a count model, a grammar) is left as it is.

    Raises:
        UserError: even the narrowest model has more parameters.
    """
    if not hasattr(model, "width"):
        reader = getattr(model, "reader", None)
        if reader is None:
            return model
        fitted = MODELS.write(fit_width(reader, task, parameters))
        return MODELS.read({**MODELS.write(model), "reader": fitted})
    low, high = 2, WIDEST + 1
    if count(_wide(model, low), task) > parameters:
        raise UserError(
            f"{MODELS.name_of(model)} has more than {parameters:,} parameters at width 2; "
            "raise --parameters, or leave the point out with --points"
        )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (middle, high) if count(_wide(model, middle), task) <= parameters else (low, middle)
        )
    return _wide(model, low)


def count(model: object, task: Task) -> int:
    """Parameters of a model, without allocating them."""
    with torch.device("meta"):
        return sum(p.numel() for p in MODELS.build(model, task).parameters())


def _wide(model: object, width: int) -> object:
    return MODELS.read(zoo.overlay(MODELS.write(model), {"width": width}))
