"""Comba, gated DeltaNet-2 and the preconditioned delta rule against loops over the tokens.

The loops follow flash-linear-attention: `ops/comba/naive.py`, `layers/gdn2.py` and
`ops/precond_gated_delta_rule/naive.py`.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lmzoo.cells.base import Cell
from lmzoo.laws.cells import UNCUT_LAWS, law_equal_functions_have_equal_configs
from lmzoo.laws.probes import disturb
from tests.cells.reference_forms import conv, heads, rms
from tests.cells.support import make

T, E = 11, 12
F = nn.functional
CASES: list[dict[str, Any]] = [
    {"name": "comba"},
    {"name": "comba", "cuts": ["feedback"], "beta_max": 2.0},
    {"name": "comba", "cuts": ["correction", "gate"]},
    {"name": "comba", "preconditioned": True},
    {"name": "gated_deltanet2"},
    {"name": "gated_deltanet2", "beta_max": 2.0, "expand_v": 2},
    {"name": "gated_deltanet2", "cuts": ["erase"]},
    {"name": "gated_deltanet2", "cuts": ["write", "vector"]},
    {"name": "gated_deltanet2", "preconditioned": True},
    {"name": "gated_deltanet", "preconditioned": True},
    {"name": "kda", "preconditioned": True},
]


def decay(w: dict[str, Tensor], logits: Tensor, end: str = "") -> Tensor:
    rate, bias = w[f"log_rate{end}"].exp(), w[f"bias_alpha{end}"]
    delta = F.softplus(logits + bias)
    repeats = delta.shape[-1] // len(rate)
    return torch.exp(-rate.repeat_interleave(repeats) * delta)


def loop(cell: Any, w: dict[str, Tensor], x: Tensor) -> Tensor:
    """Compute the outputs (T, E) of one sequence, from a state of zeros."""
    n, keys, values, c = cell.heads, cell.keys, cell.values, cell.config
    q, k, v = conv(x @ torch.cat([w["q"], w["k"], w["v"]]).T, w["conv"]).split(
        [n * keys, n * keys, n * values], dim=1
    )
    q, k, v = heads(q, n), heads(k, n), heads(v, n)
    strength = torch.sigmoid(w["bias_b"]) if "bias_b" in w else torch.ones(n)
    if "skip" in w:
        q = q - (w["skip"] * strength)[:, None] * k
    q, k = (u / torch.sqrt(u.pow(2).sum(-1, keepdim=True) + 1e-6) for u in (q, k))
    logits = x @ w["alpha"].T
    alpha = decay(w, logits @ w["up_alpha"].T if "up_alpha" in w else logits).view(T, n, -1)
    beta = torch.sigmoid(x @ w["beta"].T) * c.beta_max if "beta" in w else torch.ones(T, n)
    erase, write = (
        heads(torch.sigmoid(x @ w[name].T), n) if name in w else torch.ones(T, n, 1)
        for name in ("erase", "write")
    )
    erase = erase * c.beta_max if "erase" in w else erase
    state, curvature, outputs = x.new_zeros(n, keys, values), x.new_zeros(n, keys), []
    for t in range(T):
        m = torch.ones(n, keys)
        if c.preconditioned:
            kept = decay(w, x[t] @ w["alpha_a"].T, "_a")
            new = torch.sigmoid(x[t] @ w["beta_a"].T)
            curvature = kept[:, None] * curvature + new[:, None] * k[t] ** 2
            r = torch.log(curvature + 1e-6) - w["log_centre"][:, None]
            m = torch.exp(-math.log(1.5) * r / (1 + r.abs()))
        state = alpha[t][..., None] * state
        p = strength[:, None] * erase[t] * k[t]
        error = beta[t][:, None] * (write[t] * v[t] - torch.einsum("nkv,nk->nv", state, p))
        state = state + torch.einsum("nk,nv->nkv", k[t] * m, error)
        outputs.append(torch.einsum("nkv,nk->nv", state, q[t] * keys**-0.5))
    o = rms(torch.stack(outputs), w["norm"]).flatten(1)
    if "gate" in w:
        gate = x @ w["gate"].T
        gate = gate @ w["up_gate"].T + w["bias_gate"] if "up_gate" in w else gate
        o = o * (F.silu(gate) if cell.name == "gated_deltanet" else torch.sigmoid(gate))
    return o @ w["out"].T


def built(**fields: Any) -> tuple[Cell, Tensor, Tensor]:
    cell = make(**fields, width=E, length=T)
    disturb(cell)
    x = torch.randn(T, E, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return cell, x, torch.ones(1, cell.num_state_vectors * E, dtype=torch.float64)


@pytest.mark.parametrize("fields", CASES, ids=str)
def test_outputs_are_those_of_the_loop(fields: dict[str, Any]) -> None:
    cell, x, start = built(**fields)
    weights = {name.removeprefix("w."): w.detach() for name, w in cell.named_parameters()}
    torch.set_default_dtype(torch.float64)
    try:
        expected = loop(cell, weights, x)
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.no_grad():
        assert (cell.scan(x[None], start)[0] - expected).abs().max() < 1e-10


@pytest.mark.parametrize("fields", CASES[-3:], ids=str)
@pytest.mark.parametrize("law", [*UNCUT_LAWS, law_equal_functions_have_equal_configs])
def test_a_preconditioned_cell_obeys_every_law(fields: dict[str, Any], law: Any) -> None:
    cell = make(**fields, width=8)
    disturb(cell)
    law(cell)


def test_equal_gates_are_those_of_kda() -> None:
    kda, x, start = built(name="kda", heads=1)
    apart, *_ = built(name="gated_deltanet2", heads=1)
    with torch.no_grad():
        for name, weight in apart.w.named_parameters():
            own = "beta" if name in ("erase", "write") else name
            weight.copy_(getattr(kda.w, own).expand_as(weight))
        assert torch.allclose(apart.scan(x[None], start), kda.scan(x[None], start), atol=1e-12)


def test_comba_without_its_two_ideas_is_gated_deltanet() -> None:
    comba, x, start = built(name="comba", cuts=["feedback", "correction", "gate"])
    gated, *_ = built(name="gated_deltanet", cuts=["gate"])
    with torch.no_grad():
        for name, weight in gated.w.named_parameters():
            weight.copy_(getattr(comba.w, name))
        assert torch.allclose(comba.scan(x[None], start), gated.scan(x[None], start), atol=1e-12)


def test_the_options_leave_the_other_initial_weights() -> None:
    """So that a difference between a cell and its option is no difference of the draws."""
    for one, other in (
        (make("kda"), make("gated_deltanet2")),
        (make("kda"), make("kda", preconditioned=True)),
        (make("gated_deltanet"), make("gated_deltanet", preconditioned=True)),
    ):
        own = dict(other.w.named_parameters())
        shared = [name for name, _ in one.w.named_parameters() if name in own]
        assert len(shared) >= len([*one.w.parameters()]) - 1
        assert all(getattr(one.w, name).equal(own[name]) for name in shared)


def test_published_initial_values() -> None:
    w = make("comba", width=16, initial_d=0.02, preconditioned=True).w
    assert (w.bias_b == 1).all()
    assert (w.skip == torch.tensor(0.02)).all()
    assert (w.log_centre == torch.tensor(-0.2)).all()
    assert (w.log_rate_a.exp() <= 16).all()
    assert ((F.softplus(w.bias_alpha_a) > 9e-4) & (F.softplus(w.bias_alpha_a) < 0.11)).all()
