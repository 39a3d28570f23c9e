"""Where a model computes: on the device of its weights.

Whatever calls a model does so `with beside(model):`, so that what is made inside it, a
mask or a range, is made where the weights are.
"""

import contextlib

import torch
from torch import nn

CPU = torch.device("cpu")


def best_device() -> torch.device:
    """The GPU that this process may see, else the CPU.

    A trial that was given a share of a GPU sees that one, as number 0. One that was given none
    may see them all, as Ray hides nothing from it: it must not ask.
    """
    return torch.device("cuda", 0) if torch.cuda.is_available() else CPU


def device_scope(module: nn.Module) -> contextlib.AbstractContextManager[object]:
    """New tensors are made on the module's device.

    On the CPU they are anyway, and a device in force would cost every operation some
    microseconds: a tenth of a step of a small model.
    """
    device = device_of(module)
    return contextlib.nullcontext() if device == CPU else device


def device_of(module: nn.Module) -> torch.device:
    """The device of a module's weights; the CPU if it has none."""
    for weight in module.parameters():
        return weight.device
    return CPU
