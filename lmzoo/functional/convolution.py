"""Short causal convolutions over time, of each channel by itself.

    y_t = Σ_j w_j z_{t+j}        z = (past, x), j = 0 .. W − 1

On a CPU it is a sum of W shifted products. Elsewhere each of them would pass over all numbers
several times. There it is one product with the banded matrix of each channel, M_ts = w_{s-t}, if
T is at most `LONGEST`. The zeros of this matrix carry a NaN of one step to all steps.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.kernels.dispatch import Backward, CustomFunction, has_kernels

LONGEST = 64
"""The longest sequence whose matrix is formed."""


def convolve(
    x: Float[Tensor, "B T C"],
    past: Float[Tensor, "B P C"],
    taps: Float[Tensor, "C W"],
    bias: Float[Tensor, "C"] | None = None,
) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B P C"]]:
    """Convolve each channel over time, causally, after P = W − 1 inputs; return the last P, too."""
    steps, size = x.shape[1], past.shape[1]
    if has_kernels(x) or not size <= steps <= LONGEST:
        window = torch.cat([past, x], dim=1)
        shifted = [window[:, j : j + steps] * taps[:, j] for j in range(taps.shape[-1])]
        mixed, after = torch.stack(shifted).sum(0), window[:, steps:]
    else:
        mixed, after = _Convolve.apply(x, past, taps)[0], x[:, steps - size :]
    return mixed if bias is None else mixed + bias, after


class _Convolve(CustomFunction):
    """(x, past, taps), all or none with a member axis first -> (y, z, M), channels before B."""

    axes = 3

    @staticmethod
    def compute(x: Tensor, past: Tensor, taps: Tensor) -> tuple[Tensor, ...]:
        steps, size = x.shape[2], x.shape[2] + past.shape[2]
        z = torch.cat([past.movedim(-1, 1), x.movedim(-1, 1)], dim=-1)
        # Rows that are one longer than those of M shift by one column in each row of M.
        rows = nn.functional.pad(taps, (0, steps)).repeat(1, 1, steps)[..., : steps * size]
        band = rows.unflatten(-1, (steps, size))
        return (z @ band.mT).movedim(1, -1), z, band

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*output[1:], *inputs)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        return _ConvolveBackward.apply(upstream[0], *ctx.saved_tensors)


class _ConvolveBackward(Backward):
    """(∂L/∂y, z, M, inputs) -> gradients of x, past and taps."""

    axes = 3

    @staticmethod
    def compute(g: Tensor, z: Tensor, band: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
        g, (steps, size) = g.movedim(-1, 1), band.shape[-2:]
        dz, dband = (g @ band).movedim(1, -1), (g.mT @ z).contiguous()
        past = size - steps
        diagonals = dband.as_strided(
            (*dband.shape[:2], steps, past + 1), (*dband.stride()[:2], size + 1, 1)
        )
        return dz[:, :, past:], dz[:, :, :past], diagonals.sum(2)
