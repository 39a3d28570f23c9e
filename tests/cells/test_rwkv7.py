"""RWKV-7 in the paper's orientation: S is (V, K), one head, channel and token at a time."""

import torch
from torch import Tensor

from lmzoo.cells.base import Cell
from tests.cells.support import make
from tests.laws.support import assert_close
from tests.tiny import FINE

H, T, SIZE = 6, 5, 3


def reference(cell: Cell, x: Tensor) -> Tensor:
    """Compute y of one sequence (T, E) by the equations of the docstring."""
    w, mu = cell.w, cell.w.mu.view(6, H)
    outputs, states = [], [torch.zeros(SIZE, SIZE).double() for _ in range(2)]
    for t in range(T):
        before = x[t - 1] if t else torch.zeros(H).double()
        xr, xw, xk, xv, xa, xg = ((1 - m) * x[t] + m * before for m in mu)
        r, k, v = w.r @ xr, w.k @ xk, w.v @ xv
        decay = torch.exp(-(torch.e**-0.5) * torch.sigmoid(w.w2 @ (w.w1 @ xw).tanh() + w.bias_w))
        a = torch.sigmoid(w.a2 @ (w.a1 @ xa) + w.bias_a)
        gate, removal = w.g2 @ torch.sigmoid(w.g1 @ xg), k * w.xi
        written, parts = k * (1 + (a - 1) * w.alpha), []
        for n in range(2):
            c = slice(n * SIZE, (n + 1) * SIZE)
            key = removal[c] / (removal[c] @ removal[c] + 1e-6).sqrt()
            move = torch.diag(decay[c]) - torch.outer(key, a[c] * key)
            states[n] = states[n] @ move + torch.outer(v[c], written[c])
            o = states[n] @ r[c]
            o = o / (o.square().mean() + 1e-5).sqrt() * w.norm[c]
            parts.append(o + (r[c] * w.rho[c] * written[c]).sum() * v[c])
        outputs.append(w.out @ (torch.cat(parts) * gate))
    return torch.stack(outputs)


def test_it_computes_its_equations() -> None:
    cell = make("rwkv7", width=H, length=T)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(3, T, H, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        for weight in cell.w.parameters():  # the published constants would hide mistakes
            weight.add_(0.2 * torch.randn(weight.shape, generator=generator, dtype=torch.float64))
        start = torch.ones(3, cell.num_state_vectors * H, dtype=torch.float64)
        expected = torch.stack([reference(cell, sequence) for sequence in x])
        assert_close(cell.scan(x, start), expected, FINE, "outputs")
