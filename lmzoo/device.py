"""The device that a model computes on: the device of its parameters.

Code that calls a model does so inside `with device_scope(model):`, so that tensors created during
the call, such as masks and ranges, are on the device of the parameters.
"""

import contextlib

import torch
from torch import nn

CPU = torch.device("cpu")


def best_device() -> torch.device:
    """Return the GPU that this process sees, or the CPU if it sees none.

    Ray shows a worker that has a share of a GPU only that GPU, as number 0. It hides no GPU from a
    worker without a share, so such a worker must not call this function.
    """
    return torch.device("cuda", 0) if torch.cuda.is_available() else CPU


def device_scope(module: nn.Module) -> contextlib.AbstractContextManager[object]:
    """Return a context in which new tensors are created on the module's device.

    For the CPU the context does nothing: a torch device context adds some microseconds to every
    operation, about a tenth of a training step of a small model.
    """
    device = device_of(module)
    return contextlib.nullcontext() if device == CPU else device


def device_of(module: nn.Module) -> torch.device:
    """Return the device of the module's parameters; the CPU if it has none."""
    for parameter in module.parameters():
        return parameter.device
    return CPU
