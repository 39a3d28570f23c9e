"""The vanilla recurrent network's sweeps, `functional/scan/rnn.py` in its symbols, by member.

Arrays are (T, P, B, H). What a step reads and writes stays in the cache from one loop or product
to the next.
"""

from typing import no_type_check

import numpy as np

from lmzoo.kernels.cpu.blas import back, outer, product
from lmzoo.kernels.cpu.compiled import compiled
from lmzoo.kernels.cpu.elementwise import sigmoid, tanh
from lmzoo.kernels.cpu.projection import project_gradients, project_inputs

TANH, SIGMOID, RELU = range(3)
"""Places in `ACTIVATIONS` (`functional/scan/rnn_loops.py`); any other is the identity."""


@compiled
@no_type_check
def forward(into, hidden, start, act, states):
    """Fill states; False at a word that has no row."""
    steps, members = states.shape[:2]
    for p in range(members):
        for t in range(steps):
            a = states[t, p]
            if not project_inputs(into, t, p, a):
                return False
            product(states[t - 1, p] if t else start[p], hidden[p], a, 1)
            _activate(act, a.ravel())
    return True


@compiled
@no_type_check
def reverse(upstream, into, hidden, start, act, states, of_hidden, delta):
    """Fill delta (P, B, H), the gradient of the start, and add to the others."""
    steps, members, rows, width = states.shape
    da = np.empty((rows, width), states.dtype)
    da_ = da.ravel()
    delta[:] = 0
    for p in range(members):
        d = delta[p]
        for t in range(steps - 1, -1, -1):
            _through(act, d.ravel(), upstream[t, p].ravel(), states[t, p].ravel(), da_)
            back(da, hidden[p], d, 0)
            outer(states[t - 1, p] if t else start[p], da, of_hidden[p])
            project_gradients(into, t, p, da)


@compiled
@no_type_check
def _activate(act, a):
    """Put act(a) in a's place."""
    zero = a.dtype.type(0)
    if act == TANH:
        for i in range(len(a)):
            a[i] = tanh(a[i])
    elif act == SIGMOID:
        for i in range(len(a)):
            a[i] = sigmoid(a[i])
    elif act == RELU:
        for i in range(len(a)):
            a[i] = zero if a[i] < zero else a[i]  # NaN stays


@compiled
@no_type_check
def _through(act, d, g, h, da):
    """Fill δa = (d + g) ⊙ act'(h), of a step's states h, what they gave and what was asked."""
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
