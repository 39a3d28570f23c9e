"""Short causal convolutions over time, of each channel by itself.

    y_t = Σ_j w_j z_{t+j}        z = (past, x), j = 0 .. W − 1

It is a sum of W shifted products, each of which passes over all numbers; GPUs have kernels.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.dispatch import Backward, CustomFunction, has_gpu_kernels


def convolve(
    x: Float[Tensor, "B T C"],
    past: Float[Tensor, "B P C"],
    taps: Float[Tensor, "C W"],
    bias: Float[Tensor, "C"] | None = None,
) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B P C"]]:
    """Convolve each channel over time, causally, after P = W − 1 inputs; return the last P, too."""
    steps, size = x.shape[1], past.shape[1]
    if has_gpu_kernels(x) and steps >= size:
        mixed, after = _Convolve.apply(x, past, taps)[0], x[:, steps - size :]
    else:
        window = torch.cat([past, x], dim=1)
        shifted = [window[:, j : j + steps] * taps[:, j] for j in range(taps.shape[-1])]
        mixed, after = torch.stack(shifted).sum(0), window[:, steps:]
    return mixed if bias is None else mixed + bias, after


class _Convolve(CustomFunction):
    """(x, past, taps), all or none with a member axis first -> (y,)."""

    axes = 3

    @staticmethod
    def compute(x: Tensor, past: Tensor, taps: Tensor) -> tuple[Tensor]:
        from lmzoo.kernels.gpu import convolution as kernels

        return (kernels.forward(x, past, taps),)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        return _ConvolveBackward.apply(*upstream, *ctx.saved_tensors)


class _ConvolveBackward(Backward):
    """(∂L/∂y, x, past, taps) -> gradients of x, past and taps."""

    axes = 3

    @staticmethod
    def compute(*tensors: Tensor) -> tuple[Tensor, ...]:
        from lmzoo.kernels.gpu import convolution as kernels

        return kernels.backward(*tensors)
