"""Initial weights: each module draws from a stream of its own."""

import torch
from torch import nn

from lmzoo.base.seeds import derive_seed
from lmzoo.functional.initialisers import redraw_parameter


def initialise(model: nn.Module, seed: int, init: str = "default") -> None:
    """Draw the initial parameters of a model.

    Each module draws from its own stream, derived from the seed and the module's name. Models that
    share a module therefore share its initial weights, which pairs them in comparisons. A named
    `init` (functional/initialisers.py) draws every matrix again. The global random generator does
    not change.
    """
    # `torch.manual_seed` also formats a stack trace for every other device.
    generator = torch.default_generator
    with torch.random.fork_rng(devices=[]):
        for name, module in model.named_modules():
            reset = getattr(module, "reset_parameters", None)
            if reset is not None:
                generator.manual_seed(derive_seed(seed, name))
                reset()
        for name, _ in model.named_parameters() if init != "default" else ():
            generator.manual_seed(derive_seed(seed, "init", name))
            redraw_parameter(model, name, init)
