"""Short causal convolutions over time, of each channel by itself.

    y_t = Σ_j w_j z_{t+j}        z = (past, x), j = 0 .. W − 1

It is a sum of W shifted products, each of which passes over all numbers; GPUs have kernels.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.dispatch import CustomFunction, has_gpu_kernels


def convolve(
    x: Float[Tensor, "B T C"],
    past: Float[Tensor, "B P C"],
    taps: Float[Tensor, "C W"],
    bias: Float[Tensor, "C"] | None = None,
) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B P C"]]:
    """Convolve each channel over time, causally, after P = W − 1 inputs; return the last P, too."""
    steps = x.shape[1]
    size = past.shape[1]
    # A kernel returns no window, and the last inputs are one only if there are enough.
    if has_gpu_kernels(x) and steps >= size:
        mixed = _Convolve.apply(x, past, taps)[0]
        after = x[:, steps - size :]
    else:
        window = torch.cat([past, x], dim=1)
        shifted = []
        for j, tap in enumerate(taps.unbind(-1)):
            shifted.append(window[:, j : j + steps] * tap)
        mixed = torch.stack(shifted).sum(0)
        after = window[:, steps:]
    return mixed if bias is None else mixed + bias, after


class _Convolve(CustomFunction):
    """(x, past, taps), all or none with a member axis first -> (y,)."""

    axes = 3

    @staticmethod
    def compute(x: Tensor, past: Tensor, taps: Tensor) -> tuple[Tensor]:
        from lmzoo.kernels.gpu import convolution as kernels

        return (kernels.forward(x, past, taps),)

    @staticmethod
    def gradients(x: Tensor, g: Tensor, past: Tensor, taps: Tensor) -> tuple[Tensor, ...]:
        from lmzoo.kernels.gpu import convolution as kernels

        return kernels.backward(g, x, past, taps)
