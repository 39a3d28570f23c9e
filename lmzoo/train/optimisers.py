"""torch's optimisers as recipes ask for them, without the compiler that torch would load.

Around most methods torch puts a function that keeps `torch.compile` out of them. Its first
call imports the compiler: 0.9 s and 70 MB of every process that trains. Inside of it is the
method itself, and `inspect.unwrap` finds it, however much is wrapped around it.
"""

import inspect
from typing import Any

import torch
from torch.optim.optimizer import ParamsT

from lmzoo.train.recipe import Optimiser, Recipe


def make_optimiser(recipe: Recipe, parameters: ParamsT) -> torch.optim.Optimizer:
    """The recipe's optimiser over these parameters, or groups of them with rates of their own."""
    lr, decay = recipe.lr, recipe.weight_decay
    if recipe.optimiser is Optimiser.RMSPROP:
        return RMSprop(parameters, lr=lr, alpha=0.99, eps=0.01, weight_decay=decay)
    if recipe.optimiser is Optimiser.ADAMW:
        return AdamW(parameters, lr=lr, weight_decay=decay, fused=True)
    return Adam(parameters, lr=lr, weight_decay=decay, fused=True)


def _unwrapped(kind: type[torch.optim.Optimizer]) -> Any:
    """The same optimiser; its steps are not differentiated."""
    names = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")
    methods: dict[str, Any] = {name: inspect.unwrap(getattr(kind, name)) for name in names}
    methods["step"] = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind,), methods)


Adam = _unwrapped(torch.optim.Adam)
AdamW = _unwrapped(torch.optim.AdamW)
RMSprop = _unwrapped(torch.optim.RMSprop)
