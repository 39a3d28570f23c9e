"""Kernels as functions of torch: which tensors they accept, their calls, autograd and `vmap`.

`torch.func.vmap` calls a function's `vmap` rule with the mapped axis of every tensor. The rules
here move that axis to a fixed position, the member axis P, and call the function once for all
members. Under nested maps both axes become one.
"""

import contextlib
import functools
import importlib.util
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

DTYPES = {torch.float32, torch.float64}
"""The floating point types that kernels are compiled for."""


def has_kernels(tensor: Tensor) -> bool:
    """Return whether kernels accept this tensor.

    They accept none in `without_kernels`, none under autocast, which makes other arguments of a
    kernel bfloat16, and none in `torch.compile`, which cannot trace them.
    """
    # The compiler cannot look into a kernel, and has kernels of its own.
    if torch.compiler.is_compiling():
        return False
    if "cpu" in _CURRENT.disabled or torch.is_autocast_enabled("cpu"):
        return False
    if tensor.device.type != "cpu":
        return False
    return tensor.dtype in DTYPES


def has_product_kernels(tensor: Tensor) -> bool:
    """Return whether kernels that call matrix products accept this tensor.

    They need the BLAS routines of torch's library, which some builds of torch do not have.
    """
    if not has_kernels(tensor):
        return False
    from lmzoo.kernels.cpu import blas  # imports numba, which takes half a second

    return blas.HAS_PRODUCTS


def has_gpu_kernels(tensor: Tensor) -> bool:
    """Return whether the kernels of `kernels/gpu` accept this tensor: float32 or complex64.

    The environment variable TRITON_INTERPRET=1, set before Triton is imported, runs them on CPU
    tensors.
    """
    if "gpu" in _CURRENT.disabled or tensor.dtype not in (torch.float32, torch.complex64):
        return False
    device = tensor.device.type
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if device != "cuda" and not interpreted:
        return False
    if torch.is_autocast_enabled(device):
        return False
    return _has_triton()


@functools.cache
def _has_triton() -> bool:
    # ROCm also has Triton and calls itself "cuda", but products in `tf32x3` do not compile there.
    if torch.version.hip is not None:
        return False
    # Found, not imported: an import takes time, and a CPU needs none.
    return importlib.util.find_spec("triton") is not None


def without_autocast(tensor: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which products have the type of their factors."""
    device = "cpu"
    if tensor.is_cuda:
        device = "cuda"
    # Autocast would make inputs of a kernel bfloat16.
    return torch.autocast(device, enabled=False)


def as_arrays(tensors: Iterable[Tensor]) -> list[Any]:
    """Return the tensors as NumPy arrays in C order.

    A tensor in another memory order is copied, so a kernel's output tensors must be contiguous.
    """
    return [tensor.detach().contiguous().numpy() for tensor in tensors]


Kernel = Callable[..., Any]
Listener = Callable[[Kernel, Sequence[Any]], None]


class _Current(threading.local):
    listener: Listener | None = None
    disabled: frozenset[str] = frozenset()


_CURRENT = _Current()


def run_kernel(kernel: Kernel, args: Sequence[Any]) -> Any:
    """Run a kernel, after reporting the call to this thread's listener if there is one.

    torch's dispatch modes do not see kernels, so a recorder of operations needs this report.
    """
    if _CURRENT.listener is not None:
        _CURRENT.listener(kernel, args)
    return kernel(*args)


def token_error(tokens: Tensor, vocab: int) -> IndexError:
    """Return the error of a kernel that has met a token outside the vocabulary."""
    least = tokens.min()
    most = tokens.max()
    return IndexError(f"token ids must be in 0..{vocab - 1}; found {least}..{most}")


@contextlib.contextmanager
def record_kernels(listener: Listener) -> Iterator[None]:
    """Call `listener(kernel, args)` before every kernel that this thread runs in the context."""
    # Contexts nest: the outer listener comes back at the end.
    previous = _CURRENT.listener
    _CURRENT.listener = listener
    try:
        yield
    finally:
        _CURRENT.listener = previous


@contextlib.contextmanager
def without_kernels(*kinds: str) -> Iterator[None]:
    """Let this thread use torch operations instead of the kernels, all or those of cpu or gpu."""
    before = _CURRENT.disabled
    _CURRENT.disabled = frozenset(kinds or ("cpu", "gpu"))
    try:
        yield
    finally:
        _CURRENT.disabled = before


def uses_kernels() -> bool:
    """Whether this thread uses kernels of some kind."""
    return len(_CURRENT.disabled) < 2


class CustomFunction(torch.autograd.Function):
    """An autograd function of tensors and arguments that contain none; every result is a tensor.

    A function whose tensors all have the member axis first, or none has, defines `compute` in place
    of `forward` and `vmap`: it gets tensors with a member axis, and other arguments as they are.
    `axes` is the number of axes of the first tensor without members. A function that defines
    `forward` without `vmap` takes any number of leading axes, and members are one more.

    A function that defines `gradients` has a backward pass that saves all inputs:

        gradients(input, *upstream, *other inputs, *saved outputs) -> those of the first tensors

    Outputs from number `results` on have no gradient and are saved. One of `upstream` may be None.
    """

    axes: ClassVar[int]
    results: ClassVar[int] = 1

    def __init_subclass__(cls):
        compute = cls.__dict__.get("compute")
        if "gradients" in cls.__dict__:
            _define_backward(cls)
        if compute is None:
            if "vmap" not in cls.__dict__:
                cls.vmap = staticmethod(functools.partial(_map_leading_axes, cls))
            return

        def forward(*args: Any) -> tuple[Tensor, ...]:
            if args[0].dim() > cls.axes:
                return tuple(compute(*args))
            # Kernels always have a member axis: here of one member.
            whole = []
            for arg in args:
                if isinstance(arg, Tensor):
                    arg = arg[None]
                whole.append(arg)
            return tuple(output[0] for output in compute(*whole))

        def vmap(
            info: Any,
            in_dims: Any,
            *args: Any,
        ) -> tuple[Any, Any]:
            moved = _members_first(info.batch_size, in_dims, args, cls.axes)
            outputs = cls.apply(*moved)
            if _axes_without_map(args[0], in_dims[0]) > cls.axes:
                # Both member axes were one for the call.
                outputs = tuple(output.unflatten(0, (info.batch_size, -1)) for output in outputs)
            return outputs, (0,) * len(outputs)

        cls.forward = staticmethod(forward)
        cls.vmap = staticmethod(vmap)


def _define_backward(cls: type[CustomFunction]):
    form = "forward"
    if "compute" in cls.__dict__:
        form = "compute"
    body = {form: cls.__dict__["gradients"], "axes": getattr(cls, "axes", 0)}
    gradient: Any = type(f"{cls.__name__}Backward", (Backward,), body)

    def setup_context(ctx: Any, inputs: Any, output: Any):
        # Only tensors may be saved for backward; the context has a list for the other arguments.
        tensors = []
        ctx.constants = []
        for argument in inputs:
            if isinstance(argument, Tensor):
                tensors.append(argument)
                ctx.constants.append(None)
            else:
                tensors.append(None)
                ctx.constants.append(argument)
        stored = output[cls.results :]
        ctx.mark_non_differentiable(*stored)
        # An output that nothing reads then has None, not zeros.
        ctx.set_materialize_grads(False)
        tensors.extend(stored)
        ctx.save_for_backward(*tensors)

    def backward(
        ctx: Any,
        *upstream: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        count = len(ctx.constants)
        known = upstream[: cls.results]
        # Nothing reads an output: there is no gradient to compute.
        if all(g is None for g in known):
            return (None,) * count
        saved = ctx.saved_tensors
        inputs = []
        # The saved outputs follow the inputs, so that the first list is longer.
        for tensor, constant in zip(saved, ctx.constants, strict=False):
            if tensor is None:
                inputs.append(constant)
            else:
                inputs.append(tensor)
        arguments = inputs[:1] + list(known) + inputs[1:] + list(saved[count:])
        # Gradients come back for the tensors only, in their order.
        found = iter(gradient.apply(*arguments))
        gradients = []
        for constant in ctx.constants:
            if constant is None:
                gradients.append(next(found, None))
            else:
                gradients.append(None)
        return tuple(gradients)

    cls.setup_context = staticmethod(setup_context)
    cls.backward = staticmethod(backward)


def _map_leading_axes(
    cls: Any,
    info: Any,
    in_dims: Any,
    *args: Any,
) -> tuple[Any, Any]:
    outputs = cls.apply(*_members_first(info.batch_size, in_dims, args))
    if isinstance(outputs, Tensor):
        return outputs, 0
    return outputs, (0,) * len(outputs)


def _axes_without_map(tensor: Tensor, dim: int | None) -> int:
    """Return the number of axes besides the one that is mapped."""
    if dim is None:
        return tensor.dim()
    return tensor.dim() - 1


def _members_first(
    size: int,
    in_dims: Sequence[int | None],
    args: Sequence[Any],
    axes: float = math.inf,
) -> Iterator[Any]:
    """Yield the arguments with the mapped axis first; expand a tensor that is not mapped.

    If the first tensor has more than `axes` axes besides, the tensors have a member axis already.
    Both then become one.
    """
    # Under two maps the inner one has put its members in front already.
    nested = _axes_without_map(args[0], in_dims[0]) > axes
    for arg, dim in zip(args, in_dims, strict=True):
        if not isinstance(arg, Tensor):
            yield arg
            continue
        # Kernels read whole arrays: an argument that all members share is repeated.
        if dim is None:
            arg = arg.expand((size,) + arg.shape)
        elif dim > 0:  # movedim costs time, forward and backward, even if it moves nothing
            arg = arg.movedim(dim, 0)
        if nested:
            arg = arg.flatten(0, 1)
        yield arg


class Backward(CustomFunction):
    """The gradient of a custom function, itself a function so that `vmap` can map it."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any):
        """Save nothing: there is no second derivative."""

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        raise NotImplementedError(
            "this custom gradient has no derivative; for second derivatives call the naive "
            "function instead, `naive_scan` in a cell"
        )
