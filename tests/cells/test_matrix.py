"""Cells with a matrix state: relations between them, and loops over the tokens."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear, silu, softplus

from lmzoo.base.docstrings import cut_names
from lmzoo.cells.base import Cell
from lmzoo.functional.matrix_state import matrix_scan
from lmzoo.laws.probes import disturb
from tests.cells.reference_forms import DELTA, Named, delta_rule, outer, unit
from tests.cells.support import make
from tests.tiny import assert_equal_double

H = 6
T = 9


def pair(cell: Cell, count: int = 3, length: int = T) -> tuple[Tensor, Tensor]:
    """Return inputs and the start state of a model."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, length, cell.width, generator=generator, dtype=torch.float64)
    return x, torch.ones(count, cell.num_state_vectors * cell.width, dtype=torch.float64)


def built(name: str, **fields) -> Cell:
    return make(name, width=H, length=T, **fields)


def scan(cell: Cell) -> Tensor:
    with torch.no_grad():
        return cell.scan(*pair(cell))


def share(target: Cell, source: Cell) -> Cell:
    """Copy the weights of `source`."""
    with torch.no_grad():
        for name, weight in target.w.named_parameters():
            weight.copy_(getattr(source.w, name).reshape(weight.shape))
    return target


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return Σ_{s≤t} (q_t · k_s) v_s, from the (T, T) matrix of weights."""
    return torch.tril(q @ k.mT) @ v


def by_head(x: Tensor, count: int = 2) -> Tensor:
    """Return (B, n, T, H / n)."""
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def joined(o: Tensor) -> Tensor:
    """Return (B, T, H) of all heads."""
    return o.transpose(1, 2).flatten(-2)


def test_gla_and_retention_without_decay_are_linear_attention():
    gla = built("gla", cuts=["decay", "gate", "norm"], expand_k=1.0)
    cuts = ["decay", "gate", "norm", "rotation"]
    retention = share(built("retention", cuts=cuts, expand_v=1), gla)
    (x, _) = pair(gla)
    w = gla.w
    # A head has half of the width.
    q = by_head(x @ w.q.T) / (H / 2) ** 0.5
    o = attention(q, by_head(x @ w.k.T), by_head(x @ w.v.T))
    expected = joined(o) @ w.out.T
    assert_equal_double(scan(gla), expected)
    assert_equal_double(scan(retention), expected)


def test_mamba3_without_its_three_ideas_is_mamba2():
    """Without trapezoid, rotation, biases and norms of B and C (Lahoti et al. 2026, table 1)."""
    mamba3 = built("mamba3", cuts=["trapezoid", "rotation", "bias", "norm", "decay"])
    mamba2 = built("mamba2", cuts=["convolution", "norm", "decay"])
    share(mamba2, mamba3)
    x, start = pair(mamba3)
    z, _ = mamba2.prepare(mamba2.project(x), ())
    # Mamba-2 has SiLU after these three projections.
    for name in ("x", "b", "c"):
        z[name] = linear(x, mamba3.w.get_parameter(name))
    update = mamba2.update(z)
    # Three sequences, two heads, 16 states.
    states = torch.zeros(3, 2, 16, H).double()
    o, _ = matrix_scan(update, states)
    expected = mamba2.output(o, z, update)
    assert_equal_double(mamba3.scan(x, start), expected)


@torch.no_grad()
def test_m2rnn_without_tanh_and_transition_is_a_gated_linear_recurrence():
    """S_t = f_t S_{t-1} + (1 − f_t) (S_{t-1} + k_t v_tᵀ): no decay, writes of 1 − f_t."""
    cell = built("m2rnn", cuts=["tanh", "transition"])
    x, start = pair(cell)
    z, _ = cell.prepare(cell.project(x), cell.initial_memory(start))
    update = cell.update(z)
    written = (1 - update.log_decay.exp()) * update.key
    no_decay = torch.zeros_like(update.log_decay)
    linear_form = update._replace(key=written, log_decay=no_decay)
    o, _ = matrix_scan(linear_form, cell.initial_state(start)[0])
    expected = cell.output(o, z, update)
    assert_equal_double(cell.scan(x, start), expected)


def test_mamba2_is_retention_with_a_decay_that_reads_the_token():
    """Its state space duality: attention with decays exp(−A Σ Δ) between positions."""
    cell = built("mamba2", cuts=["convolution", "skip", "gate", "norm"], states=4)
    (x, _) = pair(cell)
    w = cell.w
    values = by_head(silu(x @ w.x.T))
    b = silu(x @ w.b.T)[:, None]
    c = silu(x @ w.c.T)[:, None]
    delta = softplus(x @ w.delta.T + w.bias_delta).mT
    rate = w.log_rate.exp()[:, None]
    total = (-rate * delta).cumsum(-1)
    decay = (total[..., :, None] - total[..., None, :]).tril().exp()
    weights = torch.tril(c @ b.mT) * decay
    o = weights @ (delta[..., None] * values)
    expected = joined(o) @ w.out.T
    assert_equal_double(scan(cell), expected)


def test_mamba_without_selection_is_a_convolution():
    """A linear time-invariant system: y = Σ_s kernel_{t−s} x_s, kernel_d = Σ_n C_n a_n^d Δ B_n."""
    cell = built("mamba", cuts=["delta", "b", "c", "convolution", "gate"])
    (x, _) = pair(cell)
    w = cell.w
    u = silu(x @ w.x.T)
    delta = softplus(w.bias_delta)
    rate = w.log_rate.exp().view(16, -1)
    lags = torch.arange(T, dtype=torch.float64)[:, None, None]
    powers = torch.exp(-rate * delta * lags)
    cb = (w.fixed_c * w.fixed_b)[:, None]
    kernel = (cb * powers * delta).sum(1)  # (T, D)
    y = w.skip * u
    for lag in range(T):
        y[:, lag:] += kernel[lag] * u[:, : T - lag]
    assert_equal_double(scan(cell), y @ w.out.T)


def test_rwkv7_without_removal_is_gated_linear_attention():
    cuts = ["removal", "token_shift", "rate", "bonus", "gate", "norm"]
    cell = built("rwkv7", heads=1, cuts=cuts)
    (x, _) = pair(cell)
    w = cell.w
    rate = torch.sigmoid(torch.tanh(x @ w.w1.T) @ w.w2.T + w.bias_w)
    total = (-(torch.e**-0.5) * rate).cumsum(1)
    # Short enough that the decays need not be subtracted before they are exponentials.
    r = x @ w.r.T * total.exp()
    k = x @ w.k.T * (-total).exp()
    expected = attention(r, k, x @ w.v.T) @ w.out.T
    assert_equal_double(scan(cell), expected)


def test_rwkv7_with_a_rate_of_beta_is_deltanet():
    """Without decay, with ξ = 1 and a = 1 it erases and writes under the same unit key."""
    cuts = ["decay", "rate", "removal_key", "token_shift", "bonus", "gate", "norm"]
    cell = built("rwkv7", cuts=cuts)
    (x, start) = pair(cell)
    w = cell.w
    matrix = cell.initial_state(start)[0]
    r = by_head(x @ w.r.T)
    k = by_head(x @ w.k.T)
    v = by_head(x @ w.v.T)
    outputs = []
    for t in range(T):
        key = unit(k[:, :, t])
        erased = outer(key, key) @ matrix
        matrix = matrix - erased + outer(k[:, :, t], v[:, :, t])
        outputs.append(matrix.mT @ r[:, :, t, :, None])
    o = torch.stack(outputs, dim=1)
    expected = o.flatten(2) @ w.out.T
    assert_equal_double(scan(cell), expected)


CASES: list[dict[str, Any]] = [
    {"name": "kda", "beta_max": 2.0, "expand_v": 2},
    {"name": "comba", "cuts": ["feedback"], "beta_max": 2.0},
    {"name": "comba", "unit_feedback": True},
    {"name": "comba", "unit_feedback": True, "cuts": ["correction"]},
    {"name": "deltaproduct", "products": 1},
]
for name in DELTA:
    CASES += [{"name": name, "cuts": [cut]} for cut in cut_names(name)]


@torch.no_grad()
@pytest.mark.parametrize("fields", CASES, ids=str)
def test_cuts_and_options_compute_their_equations(fields):
    cell = make(**fields, width=12, length=11)
    disturb(cell)
    x, start = pair(cell, count=1, length=11)
    weights = Named(cell.w.named_parameters())
    expected = delta_rule(cell, weights, x[0])
    assert_equal_double(cell.scan(x, start)[0], expected)


def test_comba_starts_at_its_published_values():
    w = make("comba", width=16).w
    assert (w.bias_b == 1).all()
    assert (w.skip == 1).all()
