"""Where and how precisely a model computes: the device of its parameters, products on a GPU.

Code that calls a model does so inside `with device_scope(model):`, so that tensors created during
the call, such as masks and ranges, are on the device of the parameters.

How a GPU multiplies float32 numbers is a named choice, which is part of the recipe of a run:

    tf32x3   three products of TF32 numbers (10 bits of fraction): a float32 product up to 1e-6
    tf32     one product of TF32 numbers
    bf16     the operands are rounded to bfloat16 (7 bits of fraction)

Sums and states are float32 in each. The choice holds for the kernels of recurrences. The products
of torch, such as the projection of the inputs, use float32 with `tf32x3`, and TF32 with `tf32` and
`bf16`: they are limited by memory, and a conversion to bfloat16 would read and write it once more.
A CPU computes in float32 (or float64), so it accepts the default only.

Ootomo and Yokota 2022 (arXiv:2203.03341): three products.
"""

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from functools import partial
from typing import Any

import torch
from torch import nn

from lmzoo.base.environment import cpu
from lmzoo.base.errors import UserError, describe_error
from lmzoo.kernels.dispatch import has_gpu_kernels

CPU = torch.device("cpu")
# Ray shows a worker its GPU as number 0.
GPU = torch.device("cuda", 0)


def best_device() -> torch.device:
    """Return the GPU that this process sees, or the CPU if it sees none."""
    if torch.cuda.is_available():
        return GPU
    return CPU


@functools.cache
def device_name(device: torch.device) -> str:
    """Return the name of a GPU, or the model of this host's CPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return cpu()[0]


def granted_gpu(node: str, share: float = 1.0) -> torch.device:
    """Return the GPU that Ray has granted to this worker; Ray shows it as number 0.

    A worker with a share of a GPU gets at most this share of its memory.

    Raises:
        UserError: torch or a kernel cannot compute on it. Training on the CPU would be a silent
            mistake.
    """
    try:
        # A small operation: a GPU may be listed, but not usable by this build of torch.
        torch.ones(1, device=GPU).add_(1)
    except (AssertionError, RuntimeError) as error:  # a CPU build, no driver, an old GPU
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
        reason = next(iter(str(error).splitlines()), "")
        raise UserError(
            f"node {node} granted a GPU that torch cannot use (torch {torch.__version__}, "
            f"CUDA_VISIBLE_DEVICES={visible}: {reason}); install a CUDA build of torch for its "
            "driver, or use --device cpu"
        ) from None
    _check_kernels(node)
    # Several trials share the GPU: none may take the memory of others.
    if share < 1:
        torch.cuda.set_per_process_memory_fraction(share, GPU)
    return GPU


def _check_kernels(node: str):
    """Launch a kernel: Triton compiles its launcher with the C compiler of the node."""
    # The smallest kernel, compiled here rather than in the first step.
    values = torch.zeros(1, 1, 1, device=GPU)
    if not has_gpu_kernels(values):
        return
    try:
        from lmzoo.kernels.gpu.rows import take_rows

        take_rows(values, torch.zeros(1, 1, 1, dtype=torch.int64, device=GPU))
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"node {node} has a GPU on which no Triton kernel runs ({describe_error(error)}); "
            "Triton needs a C compiler and Python's headers (Debian: gcc, python3-dev), and a GPU "
            "of NVIDIA's sm_80 or later; install them, or use --device cpu"
        ) from None


def device_scope(
    module: nn.Module,
) -> contextlib.AbstractContextManager[object]:
    """Return a context in which new tensors are created on the module's device.

    For the CPU the context does nothing: a torch device context adds some microseconds to every
    operation, about a tenth of a training step of a small model.
    """
    device = device_of(module)
    if device == CPU:
        # No context: entering a device slows every call of torch.
        return contextlib.nullcontext()
    return device


def device_of(module: nn.Module) -> torch.device:
    """Return the device of the module's parameters; the CPU if it has none."""
    for parameter in module.parameters():
        return parameter.device
    return CPU


Precision = StrEnum("Precision", "TF32X3 TF32 BF16")
"""How a GPU multiplies float32 numbers."""
WIDEST = {Precision.TF32X3: 64, Precision.TF32: 128, Precision.BF16: 128}
"""Largest width at which the weights of a recurrence stay on the chip: up to it a thread has enough
registers, or spills a few bytes (`benchmarks/gpu_resources.py`)."""


class _Current(threading.local):
    precision = Precision.TF32X3


_CURRENT = _Current()


def current_precision() -> Precision:
    """Return the precision of this thread's products."""
    return _CURRENT.precision


Setting = tuple[Callable[[], Any], Callable[[Any], Any], Any]
"""How a setting of the process is read and written, and a value."""


def flag(owner: Any, name: str, value: object) -> Setting:
    """Return an attribute as a setting."""
    return partial(getattr, owner, name), partial(setattr, owner, name), value


def precision_flag(owner: Any, value: str) -> Setting:
    """Return `fp32_precision` of a backend of torch as a setting."""
    _, write, _ = flag(owner, "fp32_precision", value)
    return partial(_own_precision, owner), write, value


def _own_precision(owner: Any) -> str:
    """Return the precision of a backend; "none" if it follows torch's general one.

    Written back as its own, an inherited one would stay when the caller takes the general one back.
    """
    backends: Any = torch.backends
    found = owner.fp32_precision
    general = backends.fp32_precision
    if found != general or general == "none":
        return found
    # Torch does not say where a value comes from: does it follow another general one?
    other = "tf32"
    if general == "tf32":
        other = "ieee"
    backends.fp32_precision = other
    follows = owner.fp32_precision != found
    backends.fp32_precision = general
    if follows:
        return "none"
    return found


@contextlib.contextmanager
def settings(wanted: Iterable[Setting]) -> Iterator[None]:
    """Set what differs, and restore it at the end."""
    with contextlib.ExitStack() as after:
        for read, write, value in wanted:
            before = read()
            if before != value:
                write(value)
                # In reverse order at the end, also after an error.
                after.callback(write, before)
        yield


@contextlib.contextmanager
def use_precision(precision: Precision) -> Iterator[None]:
    """Compute this thread's products on a GPU in this precision.

    For the products and convolutions of torch it holds in all threads, because torch has one flag.
    """
    before = _CURRENT.precision
    _CURRENT.precision = precision
    multiplies_tf32 = precision is not Precision.TF32X3
    cuda = torch.backends.cuda.matmul
    cudnn: Any = torch.backends.cudnn
    flags = [
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest"),
        flag(cuda, "allow_tf32", multiplies_tf32),
        flag(cudnn, "allow_tf32", multiplies_tf32),
    ]
    try:
        # Reading a flag already fails if the two sets of names are mixed.
        for read, _, _ in flags:
            read()
    except RuntimeError:  # the process uses the newer names, which torch does not let one mix
        name = "ieee"
        if multiplies_tf32:
            name = "tf32"
        flags = [precision_flag(cuda, name)]
        # Torch's default of these two cannot be written back.
        for owner in (cudnn.conv, cudnn.rnn):
            flags.append(flag(owner, "fp32_precision", name))
    try:
        with settings(flags):
            yield
    finally:
        _CURRENT.precision = before


def check_precision(precision: Precision, device: torch.device):
    """Check that a device computes in this precision.

    Raises:
        UserError: The device is a CPU, and the precision is not the default.
    """
    if device.type == "cpu" and precision is not Precision.TF32X3:
        raise UserError(
            f"recipe.precision={precision} needs a GPU: a CPU multiplies float32 numbers exactly "
            "as float32; drop the setting, or train on a GPU"
        )
