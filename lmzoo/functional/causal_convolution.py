r"""Causal convolutions with one kernel per channel, as long as the sequence.

    y_t = Σ_{j=0..t} k_j ⊙ x_{t-j}

The convolution is a product with a Toeplitz matrix of every channel, T² products each. It reads no
later input, not even by rounding, which a convolution by FFT does; at the lengths of the zoo it
takes no longer.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn


def causal_convolution(
    x: Float[Tensor, "B t E ..."], kernel: Float[Tensor, "E T"]
) -> Float[Tensor, "B t E ..."]:
    """Return y from the inputs x and a kernel of T taps, the one of lag 0 first, then zeros.

    Inputs with further dimensions are convolved with the kernel of their channel e < E.
    """
    t = torch.arange(x.shape[1], device=x.device)
    lag = t[:, None] - t
    kernel = nn.functional.pad(kernel, (0, max(0, len(t) - kernel.shape[1])))
    toeplitz = kernel[:, lag.clamp(min=0)] * (lag >= 0)
    return torch.einsum("ets,bse...->bte...", toeplitz, x)
