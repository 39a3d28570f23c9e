"""The forward passes of the reference codes, step by step, from the weights of a cell.

Each function follows the layers of the code that the cell's docstring names: its convolutions,
norms, scales and start states. Inputs are (T, E), weights are those of `cell.w` by name.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lmzoo.cells.base import Cell

W = dict[str, Tensor]
Form = Callable[[Cell, W, Tensor], Tensor]
FORMS: dict[str, Form] = {}
F = nn.functional


def form(function: Form) -> Form:
    FORMS[function.__name__] = function
    return function


def conv(x: Tensor, taps: Tensor, bias: Tensor | None = None) -> Tensor:
    """A causal depthwise convolution as torch has it, and SiLU."""
    padded = F.pad(x.T[None], (taps.shape[1] - 1, 0))
    return F.silu(F.conv1d(padded, taps[:, None], bias, groups=len(taps))[0].T)


def rms(x: Tensor, scales: Tensor | None = None) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], scales, 1e-5)


def heads(x: Tensor, n: int) -> Tensor:
    return x.view(len(x), n, -1)


def decays(w: W, logits: Tensor) -> Tensor:
    rate = w["log_rate"].exp()
    delta = F.softplus(logits + w["bias_alpha"])
    return torch.exp(-rate.repeat_interleave(delta.shape[-1] // len(rate)) * delta)


def delta_rule(cell: Any, w: W, x: Tensor) -> Tensor:
    """The cells with the delta rule, and their cuts; α decays before the first step of a token.

    The feedback of Comba reads the state before, as `naive_chunk_comba` and both kernels of
    flash-linear-attention do.
    """
    n = cell.heads
    c = cell.config
    steps = cell.substeps
    size = len(x)
    mixed = x @ torch.cat([w["q"], w["k"], w["v"]]).T
    if "conv" in w:
        mixed = conv(mixed, w["conv"])
    else:
        mixed = F.silu(mixed)
    q, k, v = mixed.split([len(w[name]) for name in "qkv"], dim=1)
    q = heads(q, n)
    k = k.view(size, steps, n, -1)
    v = v.view(size, steps, n, -1)
    strength = x.new_ones(n)
    if "bias_b" in w:
        strength = torch.sigmoid(w["bias_b"])
    if "skip" in w:
        q = q - (w["skip"] * strength)[:, None] * k[:, 0]
    if "unit" not in c.cuts:
        q, k = (u / torch.sqrt(u.pow(2).sum(-1, keepdim=True) + 1e-6) for u in (q, k))
    feedback = strength
    if getattr(c, "unit_feedback", False):
        feedback = x.new_ones(n)
    alpha = x.new_ones(size, n, 1)
    if "alpha" in w:
        logits = x @ w["alpha"].T
        if "up_alpha" in w:
            logits = logits @ w["up_alpha"].T
        alpha = decays(w, logits).view(size, n, -1)
    if "beta" in w:
        rates = torch.sigmoid(x @ w["beta"].T) * c.beta_max
    else:
        rates = x.new_ones(())
    beta = rates.expand(size, steps * n).view(size, steps, n)
    state = x.new_zeros(n, cell.keys, cell.values)
    outputs = []
    for t in range(size):
        before = state
        state = alpha[t][..., None] * state
        for i in range(steps):
            read = state
            if cell.name == "comba" and "splr" not in c.cuts:
                read = before
            known = torch.einsum("nkv,nk->nv", read, feedback[:, None] * k[t, i])
            if "delta" in c.cuts:
                known = 0
            error = beta[t, i][:, None] * (v[t, i] - known)
            state = state + torch.einsum("nk,nv->nkv", k[t, i], error)
        outputs.append(torch.einsum("nkv,nk->nv", state, q[t] * cell.keys**-0.5))
    o = torch.stack(outputs)
    o = (rms(o, w["norm"]) if "norm" in w else o).flatten(1)
    if "gate" in w:
        gate = x @ w["gate"].T
        if "up_gate" in w:
            gate = gate @ w["up_gate"].T + w["bias_gate"]
        o = o * (F.silu(gate) if cell.name in SWISH else torch.sigmoid(gate))
    return o @ w["out"].T


SWISH = ("gated_deltanet", "deltaproduct")
DELTA = ("deltanet", *SWISH, "kda", "comba")
FORMS |= dict.fromkeys(DELTA, delta_rule)


def sums_of_pairs(q: Tensor, k: Tensor, v: Tensor, decay: Tensor) -> Tensor:
    """Return q_t S_t / √K of S_t = Diag(decay_t) S_{t-1} + k_t v_tᵀ, for heads (T, n, K)."""
    state = 0
    outputs = []
    for t in range(len(q)):
        state = decay[t][..., None] * state + k[t][..., None] * v[t][:, None]
        outputs.append((q[t][..., None] * state).sum(1) * q.shape[-1] ** -0.5)
    return torch.stack(outputs)


@form
def gla(cell: Any, w: W, x: Tensor) -> Tensor:
    q, k, v = (heads(x @ w[name].T, cell.heads) for name in "qkv")
    decay = F.logsigmoid(x @ w["low"].T @ w["alpha"].T + w["bias_alpha"]) / 16
    decay = heads(decay.exp(), cell.heads)
    o = rms(sums_of_pairs(q, k, v, decay), w["norm"]).flatten(1)
    return (o * F.silu(x @ w["gate"].T)) @ w["out"].T


@form
def retention(cell: Any, w: W, x: Tensor) -> Tensor:
    """The parallel form, with the mask of torchscale; its divisors cancel in the norm."""
    n = cell.heads
    k_dim = cell.keys
    steps = torch.arange(len(x), dtype=x.dtype)
    angle = 1 / 10000 ** torch.linspace(0, 1, k_dim // 2, dtype=x.dtype)
    sin, cos = (f(steps[:, None] * angle)[:, None] for f in (torch.sin, torch.cos))

    def shifted(u: Tensor) -> Tensor:
        a, b = heads(u, n).chunk(2, dim=-1)  # torchscale has the pairs side by side
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    q = shifted(x @ w["q"].T)
    k = shifted(x @ w["k"].T * k_dim**-0.5)
    v = heads(x @ w["v"].T, n)
    gamma = 1 - 2.0 ** (-5 - torch.arange(n, dtype=x.dtype))
    lag = steps[:, None] - steps
    mask = torch.where(lag >= 0, gamma[:, None, None] ** lag.clamp_min(0), 0.0)
    o = torch.einsum("tnk,snk,nts,snv->tnv", q, k, mask, v)
    return (F.silu(x @ w["gate"].T) * rms(o).flatten(1)) @ w["out"].T


@form
def mamba(cell: Any, w: W, u: Tensor) -> Tensor:
    x = conv(u @ w["x"].T, w["conv"], w["bias_conv"])
    delta = F.softplus(x @ w["low_delta"].T @ w["delta"].T + w["bias_delta"])
    b = x @ w["b"].T
    c = x @ w["c"].T
    a = -w["log_rate"].exp().view(cell.keys, -1).T
    state = 0
    outputs = []
    for t in range(len(x)):
        state = torch.exp(delta[t][:, None] * a) * state + (delta[t] * x[t])[:, None] * b[t]
        outputs.append(state @ c[t] + w["skip"] * x[t])
    return (torch.stack(outputs) * F.silu(u @ w["gate"].T)) @ w["out"].T


@form
def mamba2(cell: Any, w: W, u: Tensor) -> Tensor:
    n = cell.heads
    states = cell.keys
    mixed = conv(u @ torch.cat([w["x"], w["b"], w["c"]]).T, w["conv"], w["bias_conv"])
    x, b, c = mixed.split([len(w["x"]), states, states], dim=1)
    delta = F.softplus(u @ w["delta"].T + w["bias_delta"])
    x = heads(x, n)
    state = 0
    outputs = []
    for t in range(len(u)):
        decay = torch.exp(-w["log_rate"].exp() * delta[t])
        written = torch.einsum("n,np,s->nps", delta[t], x[t], b[t])
        state = decay[:, None, None] * state + written
        outputs.append(state @ c[t] + w["skip"][:, None] * x[t])
    gated = torch.stack(outputs).flatten(1) * F.silu(u @ w["gate"].T)
    return rms(gated, w["norm"]) @ w["out"].T


@form
def mamba3(cell: Any, w: W, u: Tensor) -> Tensor:
    """In the frame that turns with the state: S itself is turned back by each angle."""
    n = cell.heads
    states = cell.keys
    x = heads(u @ w["x"].T, n)
    delta = F.softplus(u @ w["delta"].T + w["bias_delta"])
    rate = F.softplus(u @ w["rate"].T).clamp_min(1e-4)
    new = torch.sigmoid(u @ w["trap"].T)
    b = rms(u @ w["b"].T, w["norm_b"])[:, None] + w["bias_b"]
    c = rms(u @ w["c"].T, w["norm_c"])[:, None] + w["bias_c"]
    angle = math.pi * delta[..., None] * torch.tanh(u @ w["angle"].T)[:, None]
    state = u.new_zeros(n, states, cell.values)
    outputs = []
    for t in range(len(u)):
        if t:
            left = (1 - new[t]) * delta[t]
            state = state + torch.einsum("n,nk,nv->nkv", left, b[t - 1], x[t - 1])
        pairs = state[:, : states // 2].mT.unflatten(-1, (-1, 2)).contiguous()
        pairs = torch.view_as_complex(pairs)
        pairs = torch.view_as_real(pairs * torch.exp(-1j * angle[t][:, None]))
        state = torch.cat([pairs.flatten(-2).mT, state[:, states // 2 :]], dim=1)
        state = torch.exp(-rate[t] * delta[t])[:, None, None] * state
        state = state + torch.einsum("n,nk,nv->nkv", new[t] * delta[t], b[t], x[t])
        outputs.append(torch.einsum("nkv,nk->nv", state, c[t]) + w["skip"][:, None] * x[t])
    return (torch.stack(outputs).flatten(1) * F.silu(u @ w["gate"].T)) @ w["out"].T


@form
def m2rnn(cell: Any, w: W, x: Tensor) -> Tensor:
    n = cell.heads
    size = cell.config.keys
    mixed = conv(x @ torch.cat([w["q"], w["k"], w["v"]]).T, w["conv"])
    q, k, v = mixed.split([size, size, len(w["v"])], dim=1)
    f = torch.exp(-w["log_rate"].exp() * F.softplus(x @ w["f"].T + w["bias_f"]))
    state = x.new_zeros(n, size, cell.values)
    outputs = []
    for t in range(len(x)):
        new = torch.einsum("nkv,nvu->nku", state, w["mix"])
        new = torch.tanh(new + torch.einsum("k,nv->nkv", k[t], v[t].view(n, -1)))
        state = torch.lerp(new, state, f[t][:, None, None])
        outputs.append((q[t] @ state).flatten() + w["skip"] * v[t])
    return rms(torch.stack(outputs) * F.silu(x @ w["gate"].T), w["norm"]) @ w["out"].T


@form
def rwkv7(cell: Any, w: W, x: Tensor) -> Tensor:
    n = cell.heads
    mu = w["mu"].view(6, -1)
    shifted = F.pad(x, (0, 0, 1, -1)) - x
    xr, xw, xk, xv, xa, xg = (x + shifted * mu[i] for i in range(6))
    r = xr @ w["r"].T
    k = xk @ w["k"].T
    v = xv @ w["v"].T
    log_w = -math.exp(-0.5) * torch.sigmoid(torch.tanh(xw @ w["w1"].T) @ w["w2"].T + w["bias_w"])
    a = torch.sigmoid(xa @ w["a1"].T @ w["a2"].T + w["bias_a"])
    g = torch.sigmoid(xg @ w["g1"].T) @ w["g2"].T
    kk = F.normalize(heads(k * w["xi"], n), dim=-1)
    k = k + k * (a - 1) * w["alpha"]
    r, k, v, a, decay = (heads(u, n) for u in (r, k, v, a, log_w.exp()))
    state = x.new_zeros(n, cell.keys, cell.keys)
    outputs = []
    for t in range(len(x)):
        removed = torch.einsum("nkv,nk->nv", state, -kk[t])
        state = decay[t][..., None] * state + (kk[t] * a[t])[..., None] * removed[:, None]
        state = state + k[t][..., None] * v[t][:, None]
        outputs.append((r[t][..., None] * state).sum(1))
    o = F.group_norm(
        torch.stack(outputs).flatten(1), n, w["norm"], w["bias_norm"], cell.keys * 1e-5
    )
    bonus = (r * k * heads(w["rho"][None], n)).sum(-1, keepdim=True) * v
    return ((o + bonus.flatten(1)) * g) @ w["out"].T


@form
def hgrn2(cell: Any, w: W, x: Tensor) -> Tensor:
    n = cell.config.heads
    bound = torch.sigmoid(w["bound"])
    g = torch.logaddexp(bound.log(), torch.log1p(-bound) + F.logsigmoid(x @ w["xf"]))
    q = heads(F.silu(x @ w["xq"]), n)
    k = heads(1 - g.exp(), n)
    v = heads(x @ w["xv"], n)
    o = sums_of_pairs(q, k, v, decay=heads(g.exp(), n))
    return rms(o.flatten(1), w["norm"]) @ w["out"]


@form
def mlstm(cell: Any, w: W, x: Tensor) -> Tensor:
    """The parallel form of `parallel_stabilized_simple`, without its ε."""
    n = cell.heads
    steps = len(x)
    u = x @ w["u"].T
    a = conv(u, w["conv"], w["bias_conv"])

    def headwise(v: Tensor, blocks: Tensor) -> Tensor:
        return torch.einsum("thd,hod->tho", v.view(steps, len(blocks), -1), blocks).flatten(1)

    q = headwise(a, w["q"])
    k = headwise(a, w["k"])
    v = headwise(u, w["v"])
    read = torch.cat([q, k, v], dim=1)
    log_i = (read @ w["i"].T + w["bias_i"]).T
    log_f = F.logsigmoid(read @ w["f"].T + w["bias_f"]).T.cumsum(1)
    later = torch.ones(steps, steps, dtype=torch.bool).triu(1)
    d = (log_f[:, :, None] - log_f[:, None] + log_i[:, None]).masked_fill(later, -torch.inf)
    top = d.amax(-1, keepdim=True)
    q, k, v = (heads(part, n).transpose(0, 1) for part in (q, k, v))
    c = q @ (k.mT / math.sqrt(k.shape[-1])) * (d - top).exp()
    h = (c / torch.maximum(c.sum(-1, keepdim=True).abs(), (-top).exp())) @ v
    h = F.group_norm(h.transpose(0, 1).flatten(1), n, w["norm"], eps=1e-5)
    return ((h + w["skip"] * a) * F.silu(x @ w["o"].T)) @ w["out"].T


@form
def slstm(cell: Any, w: W, x: Tensor) -> Tensor:
    n = cell.heads

    def headwise(v: Tensor, blocks: Tensor) -> Tensor:
        if blocks.dim() != 3:
            blocks = blocks[None]
        return torch.einsum("...hd,hdo->...ho", v.unflatten(-1, (n, -1)), blocks).flatten(-2)

    a = conv(x, w["conv"], w["bias_conv"])
    inputs = {gate: headwise(a if gate in "if" else x, w[f"x{gate}"]) for gate in "ifzo"}
    y = c = normaliser = m = torch.zeros_like(x[0])
    outputs = []
    for t in range(len(x)):
        i, f, z, o = (
            inputs[gate][t] + headwise(y, w[f"h{gate}"]) + w.get(f"b{gate}", torch.zeros(()))
            for gate in "ifzo"
        )
        forgotten = m + F.logsigmoid(f)
        m = i
        if t != 0:
            m = torch.maximum(i, forgotten)
        kept = (forgotten - m).exp().clamp_max(1)
        written = (i - m).exp()
        c = kept * c + written * torch.tanh(z)
        normaliser = kept * normaliser + written
        y = torch.sigmoid(o) * c / normaliser
        outputs.append(y)
    return F.group_norm(torch.stack(outputs), n, w["norm"], eps=1e-5)


@form
def rg_lru(cell: Any, w: W, x: Tensor) -> Tensor:
    r = torch.sigmoid(x @ w["wa"] + w["ba"])
    i = torch.sigmoid(x @ w["wx"] + w["bx"])
    log_a = -8 * r * F.softplus(w["decay"])
    multiplier = torch.sqrt(1 - torch.exp(2 * log_a))
    multiplier[0] = 1  # `reset` at position 0
    h = torch.zeros_like(x[0])
    outputs = []
    for t in range(len(x)):
        h = torch.exp(log_a[t]) * h + x[t] * i[t] * multiplier[t]
        outputs.append(h)
    return torch.stack(outputs)


def in_logarithms(gate: Tensor, hidden: Tensor) -> Tensor:
    """Return h_t = σ(−gate_t) h_{t-1} + σ(gate_t) g_t, by `heinsen_associative_scan_log`."""
    log_g = torch.where(hidden >= 0, (F.relu(hidden) + 0.5).log(), -F.softplus(-hidden))
    total = (-F.softplus(gate)).cumsum(0)
    return (total + (-F.softplus(-gate) + log_g - total).logcumsumexp(0)).exp()


@form
def min_gru(cell: Any, w: W, x: Tensor) -> Tensor:
    return in_logarithms(x @ w["xz"] + w["bz"], x @ w["xh"] + w["bh"])


@form
def min_lstm(cell: Any, w: W, x: Tensor) -> Tensor:
    f, i, hidden = (x @ w[f"x{gate}"] + w[f"b{gate}"] for gate in "fih")
    return in_logarithms(F.softplus(-f) - F.softplus(-i), hidden)


@form
def lru(cell: Any, w: W, x: Tensor) -> Tensor:
    eigenvalues = torch.exp(-w["nu"].exp() + 1j * w["theta"].exp())
    inputs = (x + 0j) @ torch.complex(w["b_re"], w["b_im"]) * w["gamma"].exp()
    s = torch.zeros_like(inputs[0])
    outputs = []
    for t in range(len(x)):
        s = eigenvalues * s + inputs[t]
        outputs.append((s @ torch.complex(w["c_re"], w["c_im"])).real + w["d"] * x[t])
    return torch.stack(outputs)
