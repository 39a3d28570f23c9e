r"""The recurrence of a selective state space with one decay per state and channel.

    S_t = exp(−A ⊙ Δ_t) ⊙ S_{t-1} + b_t (Δ_t ⊙ x_t)ᵀ        y_t = S_tᵀ c_t

S and A are (N, D), A > 0; x_t and Δ_t > 0 have D channels, b_t and c_t N. The kernels of
`kernels/cpu` read these vectors and write y, so that no tensor of all states is stored; those of
`kernels/gpu` also write the state before every fourth step, from which backward begins. Elsewhere
decays and states of all steps are stored, and nothing else of their size; G_t is the gradient of
S_t. The gradients are derived here.

    z_t = −A ⊙ Δ_t      ∂L/∂z_t = e^{z_t} ⊙ G_t ⊙ S_{t-1}      ∂L/∂(Δ_t ⊙ x_t) = G_tᵀ b_t

Gu & Dao 2023 (arXiv:2312.00752), section 3.3.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.functional.linear_recurrence import linear_recurrence, recurrence_gradients
from lmzoo.kernels.dispatch import (
    CustomFunction,
    as_arrays,
    has_gpu_kernels,
    has_kernels,
    run_kernel,
    without_autocast,
)


def selective_scan(
    x: Float[Tensor, "B T D"],
    delta: Float[Tensor, "B T D"],
    rate: Float[Tensor, "N D"],
    b: Float[Tensor, "B T N"],
    c: Float[Tensor, "B T N"],
    start: Float[Tensor, "B N D"],
    *,
    signed: bool = False,
) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B N D"]]:
    """Return (y_1 .. y_T, S_T); `rate` is A. With `signed` the decay is 2 exp(−A ⊙ Δ_t) − 1."""
    parts = (part.to(start.dtype) for part in (x, delta, rate, b, c))
    with without_autocast(start):
        return _Scan.apply(*parts, start, has_kernels(delta) and not signed, signed)[:2]


class _Scan(CustomFunction):
    """(x, Δ, A, b, c, S_0, by the CPU's kernel?, signed) -> (y, S_T, *stored).

    The kernel of a CPU stores nothing, that of a GPU some states, torch operations decays and
    states of all steps. All tensors have a member axis first, or none has.
    """

    axes = 3
    results = 2

    @staticmethod
    def compute(*args: Any) -> tuple[Tensor, ...]:
        x, delta, rate, b, c, start, by_kernel, signed = args
        if by_kernel:
            from lmzoo.kernels.cpu import selective_scan as kernels

            y = x.new_empty(x.shape)
            end = x.new_empty(start.shape)
            run_kernel(kernels.forward, *as_arrays(*args[:6], y, end))
            return y, end
        if has_gpu_kernels(start):
            from lmzoo.kernels.gpu import selective_scan as gpu_kernels

            return gpu_kernels.forward(*args[:6], signed=signed)
        decay = (-rate[:, None, None] * delta[..., None, :]).exp_()
        if signed:
            decay = decay.mul_(2).sub_(1)
        written = b[..., None] * (delta * x)[..., None, :]
        states = linear_recurrence(decay.flatten(-2), written.flatten(-2), start.flatten(-2))
        states = states.view(written.shape)
        y = (c[..., None, :] @ states)[..., 0, :]
        return y, states[:, :, -1].clone(), decay, states

    @staticmethod
    def gradients(x: Tensor, g: Tensor | None, g_end: Tensor | None, *rest: Any) -> Any:
        """Return the gradients of all tensors from ∂L/∂y and ∂L/∂S_T."""
        *others, by_kernel, signed = rest[:7]
        inputs = (x, *others)
        stored = rest[7:]
        if g is None:
            g = torch.zeros_like(x)
        if by_kernel:
            from lmzoo.kernels.cpu import selective_scan as kernels

            _, _, rate, _, _, start = inputs
            if g_end is None:
                g_end = torch.zeros_like(start)
            # The kernel adds to the gradient of A, and writes the others.
            gradients = [
                x.new_zeros(y.shape) if y is rate else x.new_empty(y.shape) for y in inputs
            ]
            run_kernel(
                kernels.backward,
                *as_arrays(g, g_end, *inputs, *gradients),
            )
            return tuple(gradients)
        if len(stored) == 1:
            from lmzoo.kernels.gpu import selective_scan as gpu_kernels

            return gpu_kernels.backward(g, g_end, *inputs, *stored, signed=signed)
        with without_autocast(x):
            return _naive_gradients(g, g_end, inputs, stored, signed=signed)


def _naive_gradients(
    g: Tensor,
    g_end: Tensor | None,
    inputs: Any,
    stored: Any,
    *,
    signed: bool,
) -> tuple[Tensor, ...]:
    """Return the gradients of (x, Δ, A, b, c, S_0) from decays and states of all steps."""
    x, delta, rate, b, c, start = inputs
    decay, states = stored
    dstates = c[..., None] * g[..., None, :]
    if g_end is not None:
        dstates[:, :, -1] += g_end
    rows = (tensor.flatten(-2) for tensor in (dstates, decay, states, start))
    *steps, dstart = recurrence_gradients(*rows)
    dz, dwritten = (part.view(states.shape) for part in steps)
    dz = dz.mul_(decay + 1 if signed else decay)
    dproduct = (b[..., None, :] @ dwritten)[..., 0, :]
    db = (dwritten @ (delta * x)[..., None])[..., 0]
    dc = (states @ g[..., None])[..., 0]
    ddelta = dproduct * x - (dz * rate[:, None, None]).sum(-2)
    drate = -dz.mul_(delta[..., None, :]).sum((1, 2))
    return (
        dproduct * delta,
        ddelta,
        drate,
        db,
        dc,
        dstart.view(start.shape),
    )
