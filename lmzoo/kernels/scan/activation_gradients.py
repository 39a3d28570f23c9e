"""A gradient through an activation, from the activation's output y.

σ:  g ⊙ y ⊙ (1 − y)        tanh:  g ⊙ (1 − y²)
"""

import torch
from torch import Tensor


def through_sigmoid(gradient: Tensor, y: Tensor, out: Tensor) -> Tensor:
    """out = g ⊙ y ⊙ (1 − y), in one pass."""
    return torch.ops.aten.sigmoid_backward.grad_input(gradient, y, grad_input=out)


def through_tanh(gradient: Tensor, y: Tensor, out: Tensor) -> Tensor:
    """out = g ⊙ (1 − y²), in one pass."""
    return torch.ops.aten.tanh_backward.grad_input(gradient, y, grad_input=out)
