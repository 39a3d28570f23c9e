r"""The recurrence of a selective state space with one decay per state and channel.

    S_t = exp(−A ⊙ Δ_t) ⊙ S_{t-1} + b_t (Δ_t ⊙ x_t)ᵀ        y_t = S_tᵀ c_t

S and A are (N, D), A > 0; x_t and Δ_t > 0 have D channels, b_t and c_t N. The kernels of
`kernels/cpu` read these vectors and write y, so that no tensor of all states is stored; those of
`kernels/gpu` also write the state before every fourth step, from which backward begins. Elsewhere
torch operations store the decays and the states of all steps.

Gu & Dao 2023 (arXiv:2312.00752), section 3.3.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.functional.linear_recurrence import linear_recurrence
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
    # Autocast makes some of them bfloat16, which kernels do not accept.
    inputs = [part.to(start.dtype) for part in (x, delta, rate, b, c)]
    has_kernel = has_gpu_kernels(start)
    if has_kernels(start) and not signed:  # a CPU has no kernel for a signed decay
        has_kernel = True
    x, delta, rate, b, c = inputs
    with without_autocast(start):
        if has_kernel:
            return _Scan.apply(x, delta, rate, b, c, start, signed)[:2]
        return naive_selective_scan(x, delta, rate, b, c, start, signed=signed)


def naive_selective_scan(
    x: Tensor,
    delta: Tensor,
    rate: Tensor,
    b: Tensor,
    c: Tensor,
    start: Tensor,
    *,
    signed: bool,
) -> tuple[Tensor, Tensor]:
    """Compute `selective_scan` in torch operations."""
    exponent = -rate * delta[..., None, :]
    decay = exponent.exp()
    if signed:
        decay = 2 * decay - 1
    value = (delta * x)[..., None, :]
    written = b[..., None] * value
    # States and channels as one axis: the recurrence is elementwise.
    decay = decay.flatten(-2)
    states = linear_recurrence(decay, written.flatten(-2), start.flatten(-2))
    states = states.view(written.shape)
    y = c[..., None, :] @ states
    return y.squeeze(-2), states[:, -1]


class _Scan(CustomFunction):
    """(x, Δ, A, b, c, S_0, signed) -> (y, S_T, *stored).

    The kernel of a CPU stores nothing, that of a GPU some states. All tensors have a member axis
    first, or none has.
    """

    axes = 3
    results = 2

    @staticmethod
    def compute(*args: Any) -> tuple[Tensor, ...]:
        inputs = args[:-1]
        signed = args[-1]
        x = inputs[0]
        start = inputs[-1]
        if has_gpu_kernels(start):
            from lmzoo.kernels.gpu import selective_scan as gpu_kernels

            return gpu_kernels.forward(inputs, signed=signed)
        from lmzoo.kernels.cpu import selective_scan as kernels

        y = x.new_empty(x.shape)
        end = x.new_empty(start.shape)
        arrays = as_arrays(inputs)
        arrays += as_arrays([y, end])
        run_kernel(kernels.forward, arrays)
        return y, end

    @staticmethod
    def gradients(
        x: Tensor,
        g: Tensor | None,
        g_end: Tensor | None,
        *rest: Any,
    ) -> Any:
        """Return the gradients of all tensors from ∂L/∂y and ∂L/∂S_T."""
        inputs = (x,) + rest[:5]
        signed = rest[5]
        stored = rest[6:]
        if g is None:
            g = torch.zeros_like(x)
        if stored:
            from lmzoo.kernels.gpu import selective_scan as gpu_kernels

            tensors = inputs + stored
            return gpu_kernels.backward(g, g_end, tensors, signed=signed)
        from lmzoo.kernels.cpu import selective_scan as kernels

        rate = inputs[2]
        if g_end is None:
            start = inputs[5]
            g_end = torch.zeros_like(start)
        # The kernel adds to the gradient of A, and writes the others.
        gradients = []
        for own in inputs:
            if own is rate:
                gradient = x.new_zeros(own.shape)
            else:
                gradient = x.new_empty(own.shape)
            gradients.append(gradient)
        arrays = as_arrays([g, g_end])
        arrays += as_arrays(inputs)
        arrays += as_arrays(gradients)
        run_kernel(kernels.backward, arrays)
        return tuple(gradients)
