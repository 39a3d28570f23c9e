r"""Elementwise linear recurrences, real or complex.

    h_t  = a_t ⊙ h_{t-1} + b_t
    δ_t  = g_t + ā_{t+1} ⊙ δ_{t+1}          g = ∂L/∂h
    ∂L/∂b_t = δ_t,   ∂L/∂a_t = δ_t ⊙ h̄_{t-1},   ∂L/∂h_0 = ā_1 ⊙ δ_1

The parallel form is a scan of the pairs (a_t, b_t) under the associative operation

    (a, b) ∘ (a', b') = (a a', a' b + b'),

by doubling: log T rounds of operations on all positions (Hillis & Steele 1986; Blelloch 1990). The
kernels of `kernels/cpu` and `kernels/gpu` are loops over T. Both forms only multiply and add, so
they do not overflow where |a_t| <= 1.

Martin & Cundy 2018 (arXiv:1709.04057). The gradients are derived here.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Num
from torch import Tensor

from lmzoo.kernels.dispatch import Backward, CustomFunction, has_gpu_kernels, run_kernel

Steps = Num[Tensor, "*N T H"]
"""One vector for each step, real or complex."""

KERNEL_DTYPES = {
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
}


def linear_recurrence(
    a: Steps,
    b: Steps,
    start: Num[Tensor, "*N H"],
) -> Steps:
    """Return h_1 .. h_T from h_0 = start; all have one dtype."""
    if _has_kernels(b):
        return _Recurrence.apply(a, b, start)
    return doubling_recurrence(a, b, start)


def doubling_recurrence(
    a: Steps,
    b: Steps,
    start: Num[Tensor, "*N H"],
) -> Steps:
    """Compute `linear_recurrence` by doubling, in torch operations."""
    step = 1
    kept = a[..., :1, :] * start[..., None, :]
    # The initial state is part of the first input: the rest needs no state.
    first = kept + b[..., :1, :]
    rest = b[..., 1:, :]
    b = torch.cat([first, rest], -2)
    while step < b.shape[-2]:
        late = a[..., step:, :]
        carried = late * b[..., :-step, :]
        joined = carried + b[..., step:, :]
        b = torch.cat([b[..., :step, :], joined], -2)
        decayed = late * a[..., :-step, :]
        a = torch.cat([a[..., :step, :], decayed], -2)
        # After k rounds a position has the effect of the 2^k inputs before it.
        step *= 2
    return b


def _has_kernels(b: Tensor) -> bool:
    if b.device.type == "cpu":
        return b.dtype in KERNEL_DTYPES
    return has_gpu_kernels(b)


class _Recurrence(CustomFunction):
    """(a, b, start) -> h."""

    @staticmethod
    def forward(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
        if has_gpu_kernels(b):
            from lmzoo.kernels.gpu import linear_recurrence as gpu

            a, b_rows = _tensor_rows([a, b])
            # One axis less: a state has no time.
            (start,) = _tensor_rows([start], axes=1)
            states = gpu.forward(a, b_rows, start)
            return states.view(b.shape)
        from lmzoo.kernels.cpu import linear_recurrence as kernels

        h = b.new_empty(b.shape)
        arrays = _rows([a, b])
        arrays += _rows([start], axes=1)
        arrays += _rows([h])
        run_kernel(kernels.forward, arrays)
        return h

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any):
        a, _, start = inputs
        # The outputs are enough: backward needs h_{t−1}, not the inputs.
        ctx.save_for_backward(a, output, start)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        a, h, start = ctx.saved_tensors
        return _RecurrenceBackward.apply(upstream[0], a, h, start)


class _RecurrenceBackward(Backward):
    """(g, a, h, start) -> gradients of a, b and start."""

    @staticmethod
    def forward(
        g: Tensor,
        a: Tensor,
        h: Tensor,
        start: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        if has_gpu_kernels(h):
            from lmzoo.kernels.gpu import linear_recurrence as gpu

            g, a, rows = _tensor_rows([g, a, h])
            (first,) = _tensor_rows([start], axes=1)
            da, db, dstart = gpu.backward(g, a, rows, first)
            return (
                da.view(h.shape),
                db.view(h.shape),
                dstart.view(start.shape),
            )
        from lmzoo.kernels.cpu import linear_recurrence as kernels

        da = h.new_empty(h.shape)
        db = h.new_empty(h.shape)
        dstart = h.new_empty(start.shape)
        arrays = _rows([g, a, h])
        arrays += _rows([start], axes=1)
        arrays += _rows([da, db])
        arrays += _rows([dstart], axes=1)
        run_kernel(kernels.backward, arrays)
        return da, db, dstart


def _rows(tensors: Sequence[Tensor], axes: int = 2) -> list[Any]:
    """Return arrays whose leading axes are one; those of contiguous tensors share their memory."""
    rows = _tensor_rows(tensors, axes=axes)
    return [tensor.numpy() for tensor in rows]


def _tensor_rows(tensors: Sequence[Tensor], axes: int = 2) -> list[Tensor]:
    found = []
    for tensor in tensors:
        # A conjugate is a flag of the view, which a kernel would not see.
        rows = tensor.detach().resolve_conj().contiguous()
        if rows.dim() > axes:
            rows = rows.flatten(0, -axes - 1)
        else:
            rows = rows[None]
        found.append(rows)
    return found
