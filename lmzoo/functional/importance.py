r"""The importance-weighted bound: many draws of a latent, averaged inside the logarithm.

    log w_s = log P(x | z_s) + log p(z_s) − log q(z_s | x),   z_s ~ q(· | x)
    bound_S = log( 1/S Σ_s w_s )

In expectation bound_1 is the ELBO, bound_S never falls with S, and none exceeds log P(x).

Burda, Grosse & Salakhutdinov 2016 (arXiv:1509.00519).
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def importance_bound(log_weights: Float[Tensor, "S B"]) -> Float[Tensor, "B"]:
    """Log of the mean weight."""
    return torch.logsumexp(log_weights, dim=0) - math.log(len(log_weights))
