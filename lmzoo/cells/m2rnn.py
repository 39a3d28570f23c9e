r"""M²RNN: a recurrence that is not linear and has a matrix as state.

    q_t = SiLU(conv(W_q x_t))      k_t = SiLU(conv(W_k x_t))      v_t = SiLU(conv(W_v x_t))
    f_t = exp( −exp(A) softplus(W_f x_t + b_f) )
    Z_t = tanh( S_{t-1} M + k_t v_tᵀ )
    S_t = f_t S_{t-1} + (1 − f_t) Z_t
    y_t = W_y N( (S_tᵀ q_t + D ⊙ v_t) ⊙ swish(W_g x_t) )

S is (K, V) for each of n heads. q and k are shared by the heads; f, A and M (V, V) are their own. M
starts at the identity, D at 1, A at log U(0, 16), softplus(b_f) log-uniform in [0.001, 0.1]. The
steps have no parallel form: the scan is a loop. Cuts:

    0  tanh         tanh(u) → u: a linear recurrence       4  skip         D ⊙ v_t
    1  transition   S_{t-1} M → S_{t-1}                    5  gate         swish(W_g x_t) → 1
    2  forget       f_t → 0                                6  norm         N(u) → u
    3  convolution  conv(u) → u: q, k, v read one token

Differences from the code of open-lm-engine/lm-engine (`m2rnn.py`, 165efbe):

    there                              here                        why
    K = 64, V = 16                     K = 16, V = E / 4           widths of 32 to 256
    gradients of S clipped             not clipped                 `recipe.clip` does, per step
    models draw at N(0, 0.02²)         U(±1/√fan-in) of the layer  `recipe.init=normal_0.02` does

Mishra et al. 2026 (arXiv:2603.14360); N is RMSNorm over all heads.
"""

from enum import StrEnum
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import linear, silu, softplus

from lmzoo.base.config import config
from lmzoo.cells.base import CELLS, Heads, Parts, States
from lmzoo.cells.cuts import Cuts, removed
from lmzoo.cells.draws import WINDOW, by_columns, delta_bias, log_rates, ones
from lmzoo.cells.matrix import MatrixCell, WeightTable, head_size, normed
from lmzoo.functional.matrix_state import Update, scan_by_steps
from lmzoo.types import Shape

Cut = StrEnum("Cut", "TANH TRANSITION FORGET CONVOLUTION SKIP GATE NORM")
WEIGHTS = {
    Cut.TANH: set[str](),
    Cut.TRANSITION: {"mix"},
    Cut.FORGET: {"f", "log_rate", "bias_f"},
    Cut.CONVOLUTION: {"conv"},
    Cut.SKIP: {"skip"},
    Cut.GATE: {"gate"},
    Cut.NORM: {"norm"},
}


@CELLS("m2rnn")
class M2RNN(MatrixCell):
    """A tanh recurrence of a matrix per head, with a forget gate that reads the token."""

    convolved = ("q", "k", "v")

    @config
    class Config:
        """Sizes and the cuts, by name or number."""

        heads: Heads = 4
        keys: States = 16
        """K, the rows of S."""
        cuts: Cuts[Cut] = frozenset()

    def __init__(self, config: Config, width: int, length: int):
        super().__init__(config, width, length)
        n = config.heads
        k = config.keys
        self.shape_state(n, k, head_size(width, n))
        values = n * self.values
        weights: WeightTable = {
            "q": k,
            "k": k,
            "v": values,
            "f": n,
            "gate": values,
            "conv": ((2 * k + values, WINDOW), by_columns),
            "log_rate": (n, partial(log_rates, low=0.0)),
            "bias_f": (n, delta_bias),
            "mix": ((n, self.values, self.values), identities),
            "skip": (values, ones),
            "norm": (values, ones),
            "out": ((width, values), by_columns),
        }
        self.set_weights(weights, removed(WEIGHTS, config.cuts))

    def update(self, z: Parts) -> Update:
        v = self.split_heads(z["v"])
        # Without a gate f is 0: the state is the new candidate.
        log_f = torch.full_like(v[..., :1], -torch.inf)
        if "f" in z:
            logit = z["f"] + self.w.bias_f
            rate = self.w.log_rate.exp()
            decay = rate * softplus(logit)
            log_f = -decay[..., None]
        # All heads share q and k.
        shared = v.shape[:-1] + z["q"].shape[-1:]
        q = z["q"][..., None, :].expand(shared)
        k = z["k"][..., None, :].expand(shared)
        return Update(q, k, v, log_f)

    def step_memory(self, update: Update, matrix: Tensor) -> tuple[Tensor, Tensor]:
        z = matrix
        if self.w.mix is not None:
            z = matrix @ self.w.mix
        key = update.key[..., None]
        z = z + key * update.value[..., None, :]
        if Cut.TANH not in self.config.cuts:
            z = z.tanh()
        f = update.log_decay.exp()
        f = f[..., None]
        matrix = f * matrix + (1 - f) * z
        read = update.query[..., None] * matrix
        return read.sum(-2), matrix

    def scan_memory(self, update: Update, matrix: Tensor) -> tuple[Tensor, Tensor]:
        # The map and the tanh leave no parallel form.
        return scan_by_steps(self.step_memory, update, matrix)

    def output(self, o: Tensor, z: Parts, update: Update) -> Tensor:
        w = self.w
        o = o.flatten(-2)
        if w.skip is not None:
            o = o + w.skip * z["v"]
        if "gate" in z:
            o = o * silu(z["gate"])
        h = normed(o, w.norm)
        return linear(h, w.out)


def identities(shape: Shape) -> Tensor:
    """Return an identity matrix for each head."""
    # At first the state is not mixed.
    size = shape[-1]
    return torch.eye(size).expand(shape).clone()
