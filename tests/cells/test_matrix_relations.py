"""Cells with a matrix state: the papers' relations, where the cuts of one leave another."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from lmzoo.cells.base import Cell
from lmzoo.functional.matrix_state import matrix_scan
from lmzoo.laws.support import assert_close
from tests.cells.support import make
from tests.tiny import FINE

H, T = 6, 9


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


def heads(x: Tensor, weight: Tensor, count: int = 2) -> Tensor:
    return nn.functional.linear(x, weight).unflatten(-1, (count, -1)).transpose(1, 2)


def test_gla_and_retention_without_decay_are_linear_attention() -> None:
    gla = built("gla", cuts=["decay", "gate", "norm"], expand_k=1.0)
    cuts = ["decay", "gate", "norm", "rotation"]
    retention = share(built("retention", cuts=cuts, expand_v=1), gla)
    (x, _), w = pair(gla), gla.w
    o = attention(heads(x, w.q) / (H / 2) ** 0.5, heads(x, w.k), heads(x, w.v))
    expected = o.transpose(1, 2).flatten(-2) @ w.out.T
    assert_close(scan(gla), expected, FINE, "linear attention")
    assert_close(scan(retention), expected, FINE, "linear attention")


def test_gated_deltanet_without_alpha_and_gate_is_deltanet() -> None:
    gated = built("gated_deltanet", cuts=["alpha", "gate"], expand_v=1)
    assert_close(scan(gated), scan(share(built("deltanet"), gated)), FINE, "outputs")


@pytest.mark.parametrize("cuts", [[], ["alpha", "gate"]], ids=str)
def test_deltaproduct_with_one_step_is_gated_deltanet(cuts: list[str]) -> None:
    one = built("deltaproduct", products=1, cuts=cuts, expand_v=1 if cuts else 2)
    other = "gated_deltanet" if not cuts else "deltanet"
    assert_close(scan(one), scan(share(built(other, beta_max=2.0), one)), FINE, "outputs")


def test_mamba3_without_its_three_ideas_is_mamba2() -> None:
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


def test_m2rnn_without_tanh_and_transition_is_a_gated_linear_recurrence() -> None:
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


def test_kda_without_vector_decays_by_head() -> None:
    """It differs from gated DeltaNet in the low-rank maps of α and of the gate alone."""
    gated = built("gated_deltanet", cuts=["gate"], expand_v=1)
    cell = built("kda", cuts=["vector", "gate"])
    with torch.no_grad():
        for name, weight in gated.w.named_parameters():
            full = cell.w.up_alpha @ cell.w.alpha if name == "alpha" else getattr(cell.w, name)
            weight.copy_(full)
    assert_close(scan(cell), scan(gated), FINE, "outputs")


def test_deltanet_without_delta_is_linear_attention() -> None:
    cell = built("deltanet", cuts=["delta", "beta", "unit", "norm", "convolution"])
    (x, _), w = pair(cell), cell.w
    q, k, v = (nn.functional.silu(heads(x, weight)) for weight in (w.q, w.k, w.v))
    o = attention(q / (H / 2) ** 0.5, k, v)
    expected = o.transpose(1, 2).flatten(-2) @ w.out.T
    assert_close(scan(cell), expected, FINE, "linear attention")


def test_mamba2_is_retention_with_a_decay_that_reads_the_token() -> None:
    """Its state space duality: attention with decays exp(−A Σ Δ) between positions."""
    cell = built("mamba2", cuts=["convolution", "skip", "gate", "norm"], states=4)
    (x, _), w = pair(cell), cell.w
    silu, size = nn.functional.silu, 12 // 2
    values = silu(x @ w.x.T).unflatten(-1, (2, size)).transpose(1, 2)
    b, c = (silu(x @ weight.T)[:, None] for weight in (w.b, w.c))
    delta = nn.functional.softplus(x @ w.delta.T + w.bias_delta).mT
    total = (-w.log_rate.exp()[:, None] * delta).cumsum(-1)
    decay = torch.exp((total[..., :, None] - total[..., None, :]).tril())
    o = attention(c, b, delta[..., None] * values, decay)
    expected = o.transpose(1, 2).flatten(-2) @ w.out.T
    assert_close(scan(cell), expected, FINE, "attention form")


def test_mamba_without_selection_is_a_convolution() -> None:
    """A linear time-invariant system: y = Σ_s kernel_{t−s} x_s, kernel_d = Σ_n C_n a_n^d Δ B_n."""
    cell = built("mamba", cuts=["delta", "b", "c", "convolution", "gate"])
    (x, _), w = pair(cell), cell.w
    u = nn.functional.silu(x @ w.x.T)
    delta = nn.functional.softplus(w.bias_delta)
    a = torch.exp(-w.log_rate.exp().view(16, -1) * delta)
    powers = a ** torch.arange(T, dtype=torch.float64)[:, None, None]
    kernel = ((w.fixed_c * w.fixed_b)[:, None] * powers * delta).sum(1)  # (T, D)
    y = torch.stack([(kernel[: t + 1].flip(0) * u[:, : t + 1]).sum(1) for t in range(T)], dim=1)
    assert_close(scan(cell), (y + w.skip * u) @ w.out.T, FINE, "convolution")


def test_mlstm_without_a_normaliser_has_no_exponential_gate() -> None:
    assert built("mlstm", cuts=["normaliser"]).config == built("mlstm", cuts=[2, 3]).config


def test_rwkv7_without_removal_is_gated_linear_attention() -> None:
    cuts = ["removal", "token_shift", "rate", "bonus", "gate", "norm"]
    cell = built("rwkv7", heads=1, cuts=cuts)
    (x, _), w = pair(cell), cell.w
    rate = torch.sigmoid(torch.tanh(x @ w.w1.T) @ w.w2.T + w.bias_w)
    total = (-(torch.e**-0.5) * rate).cumsum(1)
    r, k, v = x @ w.r.T, x @ w.k.T, x @ w.v.T
    scores = (r * total.exp()) @ (k * (-total).exp()).mT  # short enough not to overflow
    assert_close(scan(cell), torch.tril(scores) @ v @ w.out.T, FINE, "gated linear attention")


def test_rwkv7_with_a_rate_of_beta_is_deltanet() -> None:
    """Without decay, with ξ = 1 and a = 1 it erases and writes under the same unit key."""
    cuts = ["decay", "rate", "removal_key", "token_shift", "bonus", "gate", "norm"]
    cell = built("rwkv7", cuts=cuts)
    (x, start), w = pair(cell), cell.w
    matrix, outputs = cell.initial_state(start)[0], []
    for t in range(T):
        r, k, v = (heads(x[:, t : t + 1], weight)[:, :, 0] for weight in (w.r, w.k, w.v))
        key = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + 1e-6)
        eye = torch.eye(H // 2, dtype=torch.float64)
        matrix = (eye - key[..., :, None] * key[..., None, :]) @ matrix
        matrix = matrix + k[..., :, None] * v[..., None, :]
        outputs.append((matrix.mT @ r[..., None])[..., 0].flatten(1) @ w.out.T)
    assert_close(scan(cell), torch.stack(outputs, 1), FINE, "the delta rule")
