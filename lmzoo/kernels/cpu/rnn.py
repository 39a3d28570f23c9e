r"""The sweeps of the vanilla recurrent network.

    h' = act( x W_x + b + h W_h )
    with δ = ∂L/∂h':   δa = δ ⊙ act',   ∂L/∂h = δa W_hᵀ,   ∂L/∂W_h = Σ hᵀ δa

    act     tanh       σ             relu         identity
    act'    1 − h'²    h' (1 − h')   [h' > 0]     1

act' is a function of the output for every act here. Derived here.

Arrays are (T, P, B, H). A kernel runs one pack member at a time, so that what a step reads and
writes stays in the cache.
"""

from dataclasses import dataclass
from typing import Literal, get_args, no_type_check

import numpy as np
from torch import Tensor

from lmzoo.kernels.cpu.blas import add_outer, product, product_transposed
from lmzoo.kernels.cpu.compiled import compiled
from lmzoo.kernels.cpu.elementwise import sigmoid, tanh
from lmzoo.kernels.cpu.inputs import KernelInputs, zero_gradient
from lmzoo.kernels.cpu.projection import project_gradients, project_inputs
from lmzoo.kernels.cpu.recurrence import Recurrence, Saved, Weights
from lmzoo.kernels.dispatch import run_kernel

Activation = Literal["tanh", "sigmoid", "relu", "identity"]
ACTIVATIONS = get_args(Activation)
TANH, SIGMOID, RELU, _ = range(len(ACTIVATIONS))


@dataclass(frozen=True)
class RNNScan(Recurrence):
    """Weights W_x, b, W_h."""

    activation: Activation = "tanh"

    def forward(self, x: KernelInputs, start: Tensor, weights: Weights) -> Saved:
        input_weight, bias, hidden = weights
        states = start.new_empty(*x.shape, start.shape[-1])
        inputs = x.projection(input_weight, bias)
        args = inputs, *x.arrays(hidden, start), self._act, *x.step_arrays(states)
        if not run_kernel(_forward, *args):
            raise x.token_error()
        return [states]

    def backward(
        self, upstream: Tensor, x: KernelInputs, start: Tensor, weights: Weights, saved: Saved
    ) -> tuple[Tensor, Tensor, Weights]:
        input_weight, bias, hidden = weights
        inputs, input_gradients = x.gradient(input_weight, bias)
        hidden_grad, delta = zero_gradient(hidden), start.new_empty(start.shape)
        args = inputs, *x.arrays(hidden, start), self._act, *x.step_arrays(*saved)
        outputs = x.arrays(hidden_grad, delta)
        run_kernel(_backward, *x.step_arrays(upstream), *args, *outputs)
        return x.input_gradient(), delta, (*input_gradients(), hidden_grad)

    @property
    def _act(self) -> int:
        return ACTIVATIONS.index(self.activation)


@compiled
@no_type_check
def _forward(inputs, hidden, start, act, states):
    """Write states; return False at an invalid token."""
    steps, members = states.shape[:2]
    for p in range(members):
        for t in range(steps):
            a = states[t, p]
            if not project_inputs(inputs, t, p, a):
                return False
            product(states[t - 1, p] if t else start[p], hidden[p], a, 1)
            _activate(act, a.ravel())
    return True


@compiled
@no_type_check
def _backward(upstream, inputs, hidden, start, act, states, hidden_grad, delta):
    """Write ∂L/∂h_0 to delta (P, B, H); add to the gradients of inputs and weights."""
    steps, members, rows, width = states.shape
    da = np.empty((rows, width), states.dtype)
    da_ = da.ravel()
    delta[:] = 0
    for p in range(members):
        d = delta[p]
        for t in range(steps - 1, -1, -1):
            _activation_backward(act, d.ravel(), upstream[t, p].ravel(), states[t, p].ravel(), da_)
            product_transposed(da, hidden[p], d, 0)
            add_outer(states[t - 1, p] if t else start[p], da, hidden_grad[p])
            project_gradients(inputs, t, p, da)


@compiled
@no_type_check
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


@compiled
@no_type_check
def _activation_backward(act, d, g, h, da):
    """Write δa = (d + g) ⊙ act'(h), where d comes from the next step and g from upstream."""
    zero, one = h.dtype.type(0), h.dtype.type(1)
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
