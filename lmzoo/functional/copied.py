"""Copies of modules that other people wrote."""

import copy
import itertools

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from lmzoo.base.errors import UserError, describe_error


def copied(module: nn.Module) -> nn.Module:
    """Return a copy of a module; a `UserError` if it cannot be copied.

    Weights that a module computes before each call from others, as `torch.nn.utils.weight_norm` and
    `prune` do, are copied as values; torch refuses to copy them. A recurrent layer has them in a
    list.
    """
    computed = {}
    for own in module.modules():
        for values in vars(own).values():
            if not isinstance(values, list):
                values = [values]
            for value in values:
                # Computed from other weights: torch copies leaves only.
                if isinstance(value, Tensor) and not value.is_leaf:
                    constant = value.detach()
                    computed[id(value)] = constant.clone()
    try:
        return copy.deepcopy(module, computed)
    except Exception as error:
        hint = "give it a __deepcopy__"
        values = itertools.chain(module.parameters(), module.buffers())
        if any(map(is_lazy, values)):
            hint = "call the lazy module once before"
        text = describe_error(error).partition(". ")[0]
        raise UserError(f"the module cannot be copied ({text}); {hint}") from error


def trained_weights(module: nn.Module) -> list[nn.Parameter]:
    """Return the weights that are trained, all real ones if none is; a frozen one may be a mask."""
    # A lazy weight has no shape before the first call.
    own = [p for p in module.parameters() if not is_lazy(p)]
    trained = [p for p in own if p.requires_grad]
    if trained:
        return trained
    return [p for p in own if p.is_floating_point()]
