"""Cells with a matrix state: relations between them, and loops over the tokens."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from lmzoo.base.docstrings import cut_names
from lmzoo.cells.base import Cell
from lmzoo.functional.matrix_state import matrix_scan
from lmzoo.laws.probes import disturb
from lmzoo.laws.tiny import assert_close
from tests.cells.reference_forms import DELTA, delta_rule
from tests.cells.support import make
from tests.tiny import FINE

H = 6
T = 9


def pair(cell: Cell, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(3, T, cell.width, generator=generator, dtype=torch.float64)
    return x, torch.ones(3, cell.num_state_vectors * cell.width, dtype=torch.float64)


def built(name: str, **fields: Any) -> Cell:
    return make(name, width=H, length=T, **fields)


def scan(cell: Cell) -> Tensor:
    with torch.no_grad():
        return cell.scan(*pair(cell))


def share(target: Cell, source: Cell, **renamed: str) -> Cell:
    """Copy the weights of `source`; `renamed` maps names of the target to names of the source."""
    with torch.no_grad():
        for name, weight in target.w.named_parameters():
            weight.copy_(getattr(source.w, renamed.get(name, name)).reshape(weight.shape))
    return target


def attention(q: Tensor, k: Tensor, v: Tensor, decay: Tensor | None = None) -> Tensor:
    """Return Σ_{s≤t} decay_ts (q_t · k_s) v_s of one head, from the (T, T) matrix of weights."""
    weights = torch.tril(q @ k.mT)
    return (weights if decay is None else weights * decay) @ v


def by_head(x: Tensor, weight: Tensor, count: int = 2) -> Tensor:
    return nn.functional.linear(x, weight).unflatten(-1, (count, -1)).transpose(1, 2)


def test_gla_and_retention_without_decay_are_linear_attention():
    gla = built("gla", cuts=["decay", "gate", "norm"], expand_k=1.0)
    cuts = ["decay", "gate", "norm", "rotation"]
    retention = share(built("retention", cuts=cuts, expand_v=1), gla)
    (x, _) = pair(gla)
    w = gla.w
    o = attention(by_head(x, w.q) / (H / 2) ** 0.5, by_head(x, w.k), by_head(x, w.v))
    expected = o.transpose(1, 2).flatten(-2) @ w.out.T
    assert_close(scan(gla), expected, FINE, "linear attention")
    assert_close(scan(retention), expected, FINE, "linear attention")


def test_mamba3_without_its_three_ideas_is_mamba2():
    """Without trapezoid, rotation, biases and norms of B and C (Lahoti et al. 2026, table 1)."""
    cell = built("mamba3", cuts=["trapezoid", "rotation", "bias", "norm", "decay"])
    other = built("mamba2", cuts=["convolution", "norm", "decay"])
    share(other, cell)
    x, start = pair(cell)
    z, _ = other.prepare(other.project(x), ())
    other_z = {**z, **{name: linear(x, cell.w.get_parameter(name)) for name in ("x", "b", "c")}}
    update = other.update(other_z)
    o, _ = matrix_scan(update, torch.zeros(3, 2, 16, H).double())
    assert_close(cell.scan(x, start), other.output(o, other_z, update), FINE, "outputs")


def test_m2rnn_without_tanh_and_transition_is_a_gated_linear_recurrence():
    """S_t = f_t S_{t-1} + (1 − f_t) (S_{t-1} + k_t v_tᵀ): no decay, writes of 1 − f_t."""
    cell = built("m2rnn", cuts=["tanh", "transition"])
    x, start = pair(cell)
    with torch.no_grad():
        z, _ = cell.prepare(cell.project(x), cell.initial_memory(start))
        u = cell.update(z)
        linear_form = u._replace(
            key=(1 - u.log_decay.exp()) * u.key, log_decay=torch.zeros_like(u.log_decay)
        )
        o, _ = matrix_scan(linear_form, cell.initial_state(start)[0])
        assert_close(cell.scan(x, start), cell.output(o, z, u), FINE, "outputs")


def test_mamba2_is_retention_with_a_decay_that_reads_the_token():
    """Its state space duality: attention with decays exp(−A Σ Δ) between positions."""
    cell = built("mamba2", cuts=["convolution", "skip", "gate", "norm"], states=4)
    (x, _) = pair(cell)
    w = cell.w
    silu = nn.functional.silu
    size = 12 // 2
    values = silu(x @ w.x.T).unflatten(-1, (2, size)).transpose(1, 2)
    b, c = (silu(x @ weight.T)[:, None] for weight in (w.b, w.c))
    delta = nn.functional.softplus(x @ w.delta.T + w.bias_delta).mT
    total = (-w.log_rate.exp()[:, None] * delta).cumsum(-1)
    decay = torch.exp((total[..., :, None] - total[..., None, :]).tril())
    o = attention(c, b, delta[..., None] * values, decay)
    expected = o.transpose(1, 2).flatten(-2) @ w.out.T
    assert_close(scan(cell), expected, FINE, "attention form")


def test_mamba_without_selection_is_a_convolution():
    """A linear time-invariant system: y = Σ_s kernel_{t−s} x_s, kernel_d = Σ_n C_n a_n^d Δ B_n."""
    cell = built("mamba", cuts=["delta", "b", "c", "convolution", "gate"])
    (x, _) = pair(cell)
    w = cell.w
    u = nn.functional.silu(x @ w.x.T)
    delta = nn.functional.softplus(w.bias_delta)
    a = torch.exp(-w.log_rate.exp().view(16, -1) * delta)
    powers = a ** torch.arange(T, dtype=torch.float64)[:, None, None]
    kernel = ((w.fixed_c * w.fixed_b)[:, None] * powers * delta).sum(1)  # (T, D)
    y = torch.stack([(kernel[: t + 1].flip(0) * u[:, : t + 1]).sum(1) for t in range(T)], dim=1)
    assert_close(scan(cell), (y + w.skip * u) @ w.out.T, FINE, "convolution")


def test_rwkv7_without_removal_is_gated_linear_attention():
    cuts = ["removal", "token_shift", "rate", "bonus", "gate", "norm"]
    cell = built("rwkv7", heads=1, cuts=cuts)
    (x, _) = pair(cell)
    w = cell.w
    rate = torch.sigmoid(torch.tanh(x @ w.w1.T) @ w.w2.T + w.bias_w)
    total = (-(torch.e**-0.5) * rate).cumsum(1)
    r = x @ w.r.T
    k = x @ w.k.T
    v = x @ w.v.T
    scores = (r * total.exp()) @ (k * (-total).exp()).mT  # short enough not to overflow
    assert_close(scan(cell), torch.tril(scores) @ v @ w.out.T, FINE, "gated linear attention")


def test_rwkv7_with_a_rate_of_beta_is_deltanet():
    """Without decay, with ξ = 1 and a = 1 it erases and writes under the same unit key."""
    cuts = ["decay", "rate", "removal_key", "token_shift", "bonus", "gate", "norm"]
    cell = built("rwkv7", cuts=cuts)
    (x, start) = pair(cell)
    w = cell.w
    matrix = cell.initial_state(start)[0]
    outputs = []
    for t in range(T):
        r, k, v = (by_head(x[:, t : t + 1], weight)[:, :, 0] for weight in (w.r, w.k, w.v))
        key = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + 1e-6)
        eye = torch.eye(H // 2, dtype=torch.float64)
        matrix = (eye - key[..., :, None] * key[..., None, :]) @ matrix
        matrix = matrix + k[..., :, None] * v[..., None, :]
        outputs.append((matrix.mT @ r[..., None])[..., 0].flatten(1) @ w.out.T)
    assert_close(scan(cell), torch.stack(outputs, 1), FINE, "the delta rule")


F = nn.functional
CASES: list[dict[str, Any]] = [
    *({"name": name, "cuts": [cut]} for name in DELTA for cut in cut_names(name)),
    {"name": "kda", "beta_max": 2.0, "expand_v": 2},
    {"name": "comba", "cuts": ["feedback"], "beta_max": 2.0},
    {"name": "comba", "unit_feedback": True},
    {"name": "comba", "unit_feedback": True, "cuts": ["correction"]},
    {"name": "deltaproduct", "products": 1},
]


@torch.no_grad()
@pytest.mark.parametrize("fields", CASES, ids=str)
def test_cuts_and_options_compute_their_equations(fields):
    cell = make(**fields, width=12, length=11)
    disturb(cell)
    x = torch.randn(11, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    start = torch.ones(1, cell.num_state_vectors * 12, dtype=torch.float64)
    expected = delta_rule(cell, dict(cell.w.named_parameters()), x)
    assert_close(cell.scan(x[None], start)[0], expected, FINE, "outputs")


def test_comba_starts_at_its_published_values():
    w = make("comba", width=16).w
    assert (w.bias_b == 1).all()
    assert (w.skip == 1).all()
