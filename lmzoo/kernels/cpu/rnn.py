r"""The sweeps of the vanilla recurrent network.

    h' = act( x W_x + b + h W_h )
    with δ = ∂L/∂h':   δa = δ ⊙ act',   ∂L/∂h = δa W_hᵀ,   ∂L/∂W_h = Σ hᵀ δa

    act     tanh       σ             relu         identity
    act'    1 − h'²    h' (1 − h')   [h' > 0]     1

act' is a function of the output for every act here. Derived here.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from lmzoo.kernels.cpu.blas import add_outer, product, product_transposed
from lmzoo.kernels.cpu.compiled import compiled
from lmzoo.kernels.cpu.elementwise import sigmoid, tanh
from lmzoo.kernels.cpu.sweep import Sweep, add_rows, look_up

Activation = Literal["tanh", "sigmoid", "relu", "identity"]
ACTIVATIONS = get_args(Activation)
TANH, SIGMOID, RELU, _ = range(len(ACTIVATIONS))


@compiled
def _forward(projected, tokens, start, hidden, act, states):
    """Write states; return False at an invalid token."""
    steps, members = states.shape[:2]
    for p in range(members):
        for t in range(steps):
            # Computed in place: the state is what the activation leaves.
            a = states[t, p]
            if not look_up(projected[p], tokens[p], t, 0, a):
                return False
            product(states[t - 1, p] if t else start[p], hidden[p], a, 1)
            _activate(act, a.ravel())
    return True


@compiled
def _backward(upstream, tokens, start, hidden, act, states, sums, delta, hidden_grad):
    """Write ∂L/∂h_0 to delta (P, B, H); add to the gradients of inputs and weights."""
    steps, members, rows, width = states.shape
    da = np.empty((rows, width), states.dtype)
    da_ = da.ravel()
    for p in range(members):
        d = delta[p]
        for t in range(steps - 1, -1, -1):
            _activation_backward(
                act,
                d.ravel(),
                upstream[t, p].ravel(),
                states[t, p].ravel(),
                da_,
            )
            product_transposed(da, hidden[p], d, 0)
            add_outer(states[t - 1, p] if t else start[p], da, hidden_grad[p])
            add_rows(sums[p], tokens[p], t, 0, da)


@compiled
def _activate(act, a):
    """Replace a by act(a)."""
    zero = a.dtype.type(0)
    if act == TANH:
        for i in range(len(a)):
            a[i] = tanh(a[i])
    elif act == SIGMOID:
        for i in range(len(a)):
            a[i] = sigmoid(a[i])
    elif act == RELU:
        for i in range(len(a)):
            a[i] = zero if a[i] < zero else a[i]  # NaN stays NaN


# From the outputs alone, so that forward stores no pre-activations.
@compiled
def _activation_backward(act, d, g, h, da):
    """Write δa = (d + g) ⊙ act'(h), where d comes from the next step and g from upstream."""
    zero = h.dtype.type(0)
    one = h.dtype.type(1)
    if act == TANH:
        for i in range(len(da)):
            da[i] = (d[i] + g[i]) * (one - h[i] * h[i])
    elif act == SIGMOID:
        for i in range(len(da)):
            da[i] = (d[i] + g[i]) * h[i] * (one - h[i])
    elif act == RELU:
        for i in range(len(da)):
            da[i] = zero if h[i] <= zero else d[i] + g[i]
    else:
        for i in range(len(da)):
            da[i] = d[i] + g[i]


@dataclass(frozen=True)
class Scan(Sweep):
    """Weight W_h; `projected` has the columns x W_x + b."""

    kernels = _forward, _backward
    activation: Activation = "tanh"

    def settings(self) -> tuple[Any, ...]:
        return (ACTIVATIONS.index(self.activation),)
