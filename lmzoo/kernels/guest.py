"""The state of the process that numbers depend on, set for a call and left as it was.

    with guest(module):         dtype, device, autocast, gradients and backends, as torch starts
    with forked_generators():   torch's global generators, which may be seeded inside
    with evaluating(module):    no dropout; each submodule has its own mode again afterwards

Dropout and initial weights are drawn from torch's global generators, of which a process has one,
and its default dtype belongs to all threads. So one lock is held meanwhile, and calls of several
threads run one after the other. Threads gain nothing: two epochs of small models take as long in
two threads as in one. A thread of the user's own that draws meanwhile changes the noise.
"""

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import torch
from torch import nn

from lmzoo.kernels.device import (
    CPU,
    Precision,
    Setting,
    flag,
    precision_flag,
    settings,
    use_precision,
)

Function = TypeVar("Function", bound=Callable[..., Any])
# Reentrant: a guest forks the generators, which needs the lock again.
_LOCK = threading.RLock()
_THREADS = 1
_MKLDNN: Any = torch.backends.mkldnn
_CUDA = torch.backends.cuda
SETTINGS: tuple[Setting, ...] = (
    flag(_MKLDNN, "enabled", value=True),
    precision_flag(_MKLDNN.matmul, "ieee"),
    precision_flag(_MKLDNN.conv, "ieee"),
    precision_flag(_MKLDNN.rnn, "ieee"),
    (_CUDA.flash_sdp_enabled, _CUDA.enable_flash_sdp, True),
    (_CUDA.mem_efficient_sdp_enabled, _CUDA.enable_mem_efficient_sdp, True),
    (_CUDA.math_sdp_enabled, _CUDA.enable_math_sdp, True),
)
"""What changes numbers in a process, at the value with which torch starts."""


def use_threads(count: int):
    """Compute with so many threads from now on; another number changes the last digits of sums.

    One is the default, of sweeps too: small models gain nothing from more.
    """
    # Not torch's setting: that belongs to the caller, outside of `guest`.
    global _THREADS
    _THREADS = count


def threads() -> int:
    """Return the number of threads with which models compute."""
    return _THREADS


def _new_lock():
    """Replace the lock in a child of `fork`: the thread that held it is not there."""
    global _LOCK
    # A forked child must not wait for a lock that a thread of its parent held.
    _LOCK = threading.RLock()


os.register_at_fork(after_in_child=_new_lock)


@contextlib.contextmanager
def guest(
    module: nn.Module | None = None, precision: Precision = Precision.TF32X3
) -> Iterator[None]:
    """Compute as in a new process, whatever the process has set; afterwards it is set again.

    New tensors have the dtype of the module's parameters, float32 without any.
    """
    dtype = torch.float32
    if module is not None:
        for parameter in module.parameters():
            dtype = parameter.dtype
            break
    own = (
        (torch.get_default_dtype, torch.set_default_dtype, dtype),
        (torch.get_num_threads, torch.set_num_threads, _THREADS),
    )
    after = contextlib.ExitStack()
    # One guest at a time: the settings are of the process.
    with _LOCK, use_precision(precision), settings(own + SETTINGS), after:
        for device in ("cpu", "cuda"):
            # The caller's autocast would round what records promise as float32.
            if torch.is_autocast_enabled(device):
                after.enter_context(torch.autocast(device, enabled=False))
        if torch.get_default_device() != CPU:  # the context slows each operation down
            after.enter_context(CPU)
        # The caller may be in inference mode, whose tensors have no gradients.
        after.enter_context(torch.inference_mode(mode=False))
        # The caller may compute without gradients.
        after.enter_context(torch.enable_grad())
        yield


@contextlib.contextmanager
def forked_generators(device: torch.device = CPU) -> Iterator[Callable[[int], None]]:
    """Restore torch's generators of the CPU and of a device; yields what seeds both.

    `torch.manual_seed` would seed those of other devices, too, and format a stack trace.
    """

    def seed(number: int):
        # Only generators that work here uses: `torch.manual_seed` would seed all devices.
        torch.default_generator.manual_seed(number)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(number)

    devices = []
    if device.type != "cpu":
        devices = [device]
    with _LOCK, torch.random.fork_rng(devices=devices):
        yield seed


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module in evaluation mode inside the context."""
    trained = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        # Part by part: a module may be in evaluation inside one in training.
        for part in trained:
            part.training = True


def in_evaluation(function: Function) -> Function:
    """Make a function call its first argument, a module, in evaluation mode."""

    @functools.wraps(function)
    def call(module: nn.Module, *arguments: Any, **options: Any) -> Any:
        with evaluating(module):
            return function(module, *arguments, **options)

    return cast(Function, call)
