"""The device that a model computes on: the device of its parameters.

Code that calls a model does so inside `with device_scope(model):`, so that tensors created during
the call, such as masks and ranges, are on the device of the parameters.
"""

import contextlib
import functools
import os
import platform
from pathlib import Path

import torch
from torch import nn

from lmzoo.errors import UserError

CPU = torch.device("cpu")
GPU = torch.device("cuda", 0)


def best_device() -> torch.device:
    """Return the GPU that this process sees, or the CPU if it sees none."""
    return GPU if torch.cuda.is_available() else CPU


@functools.cache
def device_name(device: torch.device) -> str:
    """Return the name of a GPU, or the model of this host's CPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    with contextlib.suppress(OSError):  # Linux only
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def granted_gpu(node: str) -> torch.device:
    """Return the GPU that Ray has granted to this worker; Ray shows it as number 0.

    Raises:
        UserError: torch cannot compute on it. Training on the CPU would be a silent mistake.
    """
    try:
        torch.ones(1, device=GPU).add_(1)
    except (AssertionError, RuntimeError) as error:  # a CPU build, no driver, an old GPU
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
        reason = next(iter(str(error).splitlines()), "")
        raise UserError(
            f"node {node} granted a GPU that torch cannot use (torch {torch.__version__}, "
            f"CUDA_VISIBLE_DEVICES={visible}: {reason}); install a CUDA build of torch for its "
            "driver, or use --device cpu"
        ) from None
    return GPU


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
