r"""The recurrence of a selective state space with one decay per state and channel.

    S_t = exp(−A ⊙ Δ_t) ⊙ S_{t-1} + b_t (Δ_t ⊙ x_t)ᵀ        y_t = S_tᵀ c_t

S and A are (N, D), A > 0; x_t and Δ_t > 0 have D channels, b_t and c_t N. The kernels of
`kernels/cpu` read these vectors and write y, so that no tensor of all states is stored. Elsewhere
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
    Backward,
    CustomFunction,
    as_arrays,
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
    if has_kernels(delta) and not signed:
        return _Scan.apply(x, delta, rate, b, c, start)
    parts = (part.to(start.dtype) for part in (x, delta, rate, b, c))
    with without_autocast(start):
        return _Stored.apply(*parts, start, signed)[:2]


class _Scan(CustomFunction):
    """(x, Δ, A, b, c, S_0), all or none with a member axis first -> (y, S_T)."""

    axes = 3

    @staticmethod
    def compute(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        from lmzoo.kernels.cpu import selective_scan as kernels

        x, start = tensors[0], tensors[-1]
        y, end = x.new_empty(x.shape), x.new_empty(start.shape)
        run_kernel(kernels.forward, *as_arrays(*tensors, y, end))
        return y, end

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        return _ScanBackward.apply(*upstream, *ctx.saved_tensors)


class _ScanBackward(Backward):
    """(∂L/∂y, ∂L/∂S_T, *inputs) -> gradients of all inputs."""

    axes = 3

    @staticmethod
    def compute(*tensors: Tensor) -> tuple[Tensor, ...]:
        from lmzoo.kernels.cpu import selective_scan as kernels

        x, delta, rate, *rest = tensors[2:]
        gradients = [x.new_empty(tensor.shape) for tensor in (x, delta)]
        gradients += [x.new_zeros(rate.shape), *(x.new_empty(tensor.shape) for tensor in rest)]
        run_kernel(kernels.backward, *as_arrays(*tensors, *gradients))
        return tuple(gradients)


class _Stored(CustomFunction):
    """(x, Δ, A, b, c, S_0, signed) -> (y, S_T, decays, states), without kernels."""

    axes = 3

    @staticmethod
    def compute(*tensors: Any) -> tuple[Tensor, ...]:
        x, delta, rate, b, c, start, signed = tensors
        decay = (-rate[:, None, None] * delta[..., None, :]).exp_()
        decay = decay.mul_(2).sub_(1) if signed else decay
        written = b[..., None] * (delta * x)[..., None, :]
        states = linear_recurrence(decay.flatten(-2), written.flatten(-2), start.flatten(-2))
        states = states.view(written.shape)
        y = (c[..., None, :] @ states)[..., 0, :]
        return y, states[:, :, -1].clone(), decay, states

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(*output[2:])
        ctx.set_materialize_grads(False)
        ctx.signed = inputs[-1]
        ctx.save_for_backward(*inputs[:-1], *output[2:])

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> Any:
        g = torch.zeros_like(ctx.saved_tensors[0]) if upstream[0] is None else upstream[0]
        with without_autocast(g):
            return *_StoredBackward.apply(g, upstream[1], ctx.signed, *ctx.saved_tensors), None


class _StoredBackward(Backward):
    """(∂L/∂y, ∂L/∂S_T, signed, *saved) -> gradients of all tensors."""

    axes = 3

    @staticmethod
    def compute(g: Tensor, g_end: Tensor | None, *rest: Any) -> tuple[Tensor, ...]:
        signed, x, delta, rate, b, c, start, decay, states = rest
        dstates = c[..., None] * g[..., None, :]
        if g_end is not None:
            dstates[:, :, -1] += g_end
        rows = (tensor.flatten(-2) for tensor in (dstates, decay, states, start))
        parts = recurrence_gradients(*rows)
        dz, dwritten = (part.view(states.shape) for part in parts[:2])
        dz = dz.mul_(decay + 1 if signed else decay)
        dproduct = (b[..., None, :] @ dwritten)[..., 0, :]
        db = (dwritten @ (delta * x)[..., None])[..., 0]
        dc = (states @ g[..., None])[..., 0]
        ddelta = dproduct * x - (dz * rate[:, None, None]).sum(-2)
        drate = -dz.mul_(delta[..., None, :]).sum((1, 2))
        return dproduct * delta, ddelta, drate, db, dc, parts[2].view(start.shape)
