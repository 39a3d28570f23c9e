"""Which parameters weight decay leaves alone.

Decay pulls a weight to 0. That regularises a matrix, but moves a rate, a bias or a norm away from
where it was put: a decay rate exp(A) to 1, a Δ with softplus(b) = 0.001 to 0.69. So parameters
with fewer than two axes do not decay, nor do those that a module makes as `Undecayed`, because
they have an axis for heads, channels or states. The codes of Mamba, of the xLSTM's and
flash-linear-attention's cells mark single parameters, and nanoGPT has the rule by axes.
"""

from torch import Tensor, nn


class Undecayed(nn.Parameter):
    """A parameter that does not decay, whatever its axes."""


def decays(parameter: Tensor) -> bool:
    """Whether weight decay acts on a parameter."""
    return parameter.dim() > 1 and not isinstance(parameter, Undecayed)
