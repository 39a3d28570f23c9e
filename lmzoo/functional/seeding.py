"""Random seeds: one seed per run, and derived seeds for everything that is drawn."""

import hashlib

import torch
from torch import nn

from lmzoo.functional.initialisers import redraw_parameter


def derive_seed(seed: int, *names: object) -> int:
    """Return a 63-bit seed for the purpose that `names` describe.

    Different seeds or names give independent random streams.
    """
    text = "/".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1


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
