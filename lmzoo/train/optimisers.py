"""The optimisers of torch that recipes name, without the import of torch's compiler.

torch wraps most optimiser methods in a function that hides them from `torch.compile`. The first
call of such a wrapper imports the compiler, which costs every training process 0.9 s and 70 MB.
`inspect.unwrap` returns the method below all wrappers.
"""

import inspect
from typing import Any

import torch
from torch.optim.optimizer import ParamsT

from lmzoo.train.recipe import Optimiser, Recipe


def make_optimiser(recipe: Recipe, parameters: ParamsT) -> torch.optim.Optimizer:
    """Return the recipe's optimiser over these parameters or parameter groups."""
    lr, decay, betas = recipe.lr, recipe.weight_decay, (0.9, recipe.beta2)
    if recipe.optimiser is Optimiser.RMSPROP:
        return RMSprop(parameters, lr=lr, alpha=0.99, eps=0.01, weight_decay=decay)
    if recipe.optimiser is Optimiser.ADAMW:
        return AdamW(parameters, lr=lr, betas=betas, weight_decay=decay, fused=True)
    return Adam(parameters, lr=lr, betas=betas, weight_decay=decay, fused=True)


def _without_wrappers(cls: type[torch.optim.Optimizer]) -> Any:
    """Return a subclass with the unwrapped methods; its steps are not differentiable."""
    names = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")
    methods: dict[str, Any] = {name: inspect.unwrap(getattr(cls, name)) for name in names}
    methods["step"] = torch.no_grad()(inspect.unwrap(cls.step))
    return type(cls.__name__, (cls,), methods)


Adam = _without_wrappers(torch.optim.Adam)
AdamW = _without_wrappers(torch.optim.AdamW)
RMSprop = _without_wrappers(torch.optim.RMSprop)
