"""Equal parameter counts: the widest model that a budget allows."""

from collections.abc import Collection
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.contract import MODELS, Task
from lmzoo.laws.learned import learned

MAX_WIDTH = 4096


def fit_width(model: object, task: Task, parameters: int) -> object:
    """Return the model config with the largest `width` that the parameter budget allows.

    A parameter that gets no gradient is not paid for.

    For a model that wraps another one, the width of the wrapped model is fitted. A model without a
    width (a count model, a grammar) is returned unchanged. A `UserError` says that the model
    exceeds the budget at its smallest width, 2, or not at its largest.
    """
    if not hasattr(model, "width"):
        reader = getattr(model, "reader", None)
        if reader is None:
            return model
        fitted = MODELS.dump(fit_width(reader, task, parameters))
        return MODELS.parse(MODELS.dump(model) | {"reader": fitted})
    # Bisection: `low` fits, `high` does not.
    low = 2
    high = MAX_WIDTH + 1
    dead = learned(model, task).dead
    if count_parameters(_with_width(model, low), task, dead) > parameters:
        raise UserError(
            f"{MODELS.name_of(model)} has more than {parameters:,} parameters at width 2; "
            "raise --parameters, or exclude the point with --points"
        )
    while high - low > 1:
        middle = (low + high) // 2
        if count_parameters(_with_width(model, middle), task, dead) <= parameters:
            low = middle
        else:
            high = middle
    # The search has ended at its bound: the budget is not used.
    if low == MAX_WIDTH:
        raise UserError(
            f"{MODELS.name_of(model)} has less than {parameters:,} parameters at width "
            f"{MAX_WIDTH:,}, the largest; lower --parameters"
        )
    return _with_width(model, low)


def count_parameters(model: object, task: Task, dead: Collection[str] = ()) -> int:
    """Return the number of parameters of a model but the `dead`, without allocating them."""
    with torch.device("meta"), _NothingDrawn():
        named = MODELS.build(model, task).named_parameters()
        return sum(weight.numel() for name, weight in named if name not in dead)


class _NothingDrawn(TorchFunctionMode):
    """Draws and scales no numbers: without memory for them, torch imports its compiler, 1.4 s."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = {}
        if kwargs is not None:
            named = kwargs
        is_scaled = False
        if func is Tensor.div:
            is_scaled = not isinstance(args[1], Tensor)
        if not is_scaled and func not in (Tensor.normal_, nn.init.normal_):
            return func(*args, **named)
        if args:
            return args[0]
        return named["tensor"]


def _with_width(model: object, width: int) -> object:
    """Return the model at this width, or at the next smaller one that its heads divide."""
    # Heads divide few widths.
    for smaller in range(width, 2, -1):
        with suppress(UserError):
            return zoo.change(model, {"width": smaller})
    return zoo.change(model, {"width": 2})
