"""MesaNet against a loop over the tokens, and its optimum."""

import pytest
import torch
from torch import nn

from lmzoo.laws.probes import disturb
from tests.cells.reference_forms import conv, heads, rms
from tests.cells.support import make

T, E, N = 9, 8, 2
F = nn.functional


@pytest.mark.parametrize(
    "cuts", [[], ["ridge", "beta"], ["solve"], ["gamma", "norm", "unit"]], ids=str
)
@torch.no_grad()
def test_outputs_are_those_of_the_loop(cuts: list[str]) -> None:
    """As `ops/mesa_net/naive.py` of flash-linear-attention computes them exactly."""
    cell = make("mesa", E, T, cuts=cuts)
    disturb(cell)
    w = {name: weight for name, weight in cell.w.named_parameters()}
    x = torch.randn(T, E, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    q, k = conv(x @ torch.cat([w["q"], w["k"]]).T, w["conv"]).chunk(2, dim=1)
    q, k, v = heads(q, N), heads(k, N), heads(x @ w["v"].T, N)
    if "unit" not in cuts:
        q, k = (u / torch.sqrt(u.pow(2).sum(-1, keepdim=True) + 1e-6) for u in (q, k))
    one = x.new_ones(T, N)
    beta = one if "beta" in cuts else torch.sigmoid(x @ w["beta"].T + w["bias_beta"])
    gamma = one if "gamma" in cuts else torch.sigmoid(x @ w["gamma"].T + w["bias_gamma"])
    ridge = F.softplus(w["ridge"]) + 0.25 if "ridge" in w else x.new_ones(E)
    kk, kv, outputs = x.new_zeros(N, E // N, E // N), x.new_zeros(N, E // N, E // N), []
    for t in range(T):
        kept, written = gamma[t][:, None, None], (beta[t][:, None] * k[t])[..., None]
        kk, kv = kept * kk + written * k[t][:, None], kept * kv + written * v[t][:, None]
        solved = torch.linalg.solve(kk + torch.diag_embed(ridge.view(N, -1)), q[t])
        read = q[t] if "solve" in cuts else solved
        outputs.append(torch.einsum("nkv,nk->nv", kv, read))
    o = torch.stack(outputs)
    o = (o if "norm" in cuts else rms(o, w["norm"])).flatten(1) @ w["out"].T
    actual = cell.scan(x[None], x.new_ones(1, cell.num_state_vectors * E))[0]
    assert (actual - o).abs().max() < 1e-10


@torch.no_grad()
def test_the_memory_is_the_least_squares_map_of_the_keys() -> None:
    """The last key reads what the normal equations give it, with the least ridge."""
    cell = make("mesa", 6, 3, heads=1, cuts=["beta", "gamma", "convolution", "norm"])
    cell.w.ridge.fill_(-50.0)
    cell.w.q.copy_(cell.w.k)
    x = torch.eye(6, dtype=torch.float64)[None, :3]
    o = cell.scan(x, x.new_ones(1, 6 * cell.num_state_vectors)) @ torch.linalg.inv(cell.w.out).T
    k = F.normalize(F.silu(x[0] @ cell.w.k.T), dim=-1)
    solved = torch.linalg.solve(k.T @ k + 0.25 * torch.eye(6), k.T @ (x[0] @ cell.w.v.T))
    assert torch.allclose(o[0, -1], k[-1] @ solved, atol=1e-5)
