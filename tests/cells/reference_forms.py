"""The forward passes of the reference codes, step by step, from the weights of a cell.

Each function follows the layers of the code that the cell's docstring names: its convolutions,
norms, scales and start states. Inputs are (T, E), weights are those of `cell.w` by name. The
letters are those of the equation in the cell's docstring; n counts heads.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from lmzoo.cells.base import Cell

F = nn.functional


class Named(dict):
    """The weights of a cell by name, read as `w.q` or as `w["q"]`."""

    __getattr__ = dict.__getitem__


Form = Callable[[Cell, Named, Tensor], Tensor]
FORMS: dict[str, Form] = {}


def form(function: Form) -> Form:
    FORMS[function.__name__] = function
    return function


def conv(x: Tensor, taps: Tensor, bias: Tensor | None = None) -> Tensor:
    """A causal depthwise convolution as torch has it, and SiLU."""
    channels, width = taps.shape
    padded = F.pad(x.T[None], (width - 1, 0))
    mixed = F.conv1d(padded, taps[:, None], bias, groups=channels)
    return F.silu(mixed[0].T)


def rms(x: Tensor, scales: Tensor | None = None) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], scales, 1e-5)


def heads(x: Tensor, n: int) -> Tensor:
    return x.view(len(x), n, -1)


def outer(k: Tensor, v: Tensor) -> Tensor:
    """Return k vᵀ of every head, (n, K, V)."""
    return k[..., :, None] * v[..., None, :]


def read(state: Tensor, q: Tensor) -> Tensor:
    """Return q S of every head, (n, V)."""
    return torch.einsum("nkv,nk->nv", state, q)


def decays(w: Named, logits: Tensor) -> Tensor:
    """Return exp(−rate Δ); a head has one rate for all of its channels."""
    rate = w.log_rate.exp()
    delta = F.softplus(logits + w.bias_alpha)
    channels = delta.shape[-1] // len(rate)
    return torch.exp(-rate.repeat_interleave(channels) * delta)


SWISH = ("gated_deltanet", "deltaproduct")
"""Cells with the delta rule whose output gate is SiLU; that of the others is a sigmoid."""
DELTA = ("deltanet", *SWISH, "kda", "comba")


def delta_rule(cell, w: Named, x: Tensor) -> Tensor:
    """The cells with the delta rule, and their cuts; α decays before the first step of a token.

    The feedback of Comba reads the state before, as `naive_chunk_comba` and both kernels of
    flash-linear-attention do.
    """
    n = cell.heads
    cuts = cell.config.cuts
    steps = cell.substeps
    size = len(x)
    q, k, v = delta_projections(cell, w, x)
    strength = x.new_ones(n)
    if "bias_b" in w:
        strength = torch.sigmoid(w.bias_b)
    if "skip" in w:
        skip = w.skip * strength
        q = q - skip[:, None] * k[:, 0]
    if "unit" not in cuts:
        q = unit(q)
        k = unit(k)
    feedback = strength
    if getattr(cell.config, "unit_feedback", False):
        feedback = x.new_ones(n)
    alpha = delta_decays(cell, w, x)
    rates = x.new_ones(())
    if "beta" in w:
        rates = torch.sigmoid(x @ w.beta.T) * cell.config.beta_max
    beta = rates.expand(size, steps * n).view(size, steps, n)
    state = x.new_zeros(n, cell.keys, cell.values)
    outputs = []
    for t in range(size):
        before = state
        # The decay acts once a token, before its first step.
        state = alpha[t][..., None] * state
        for i in range(steps):
            remembered = state
            if cell.name == "comba" and "splr" not in cuts:
                remembered = before
            known = read(remembered, feedback[:, None] * k[t, i])
            if "delta" in cuts:
                known = 0
            error = beta[t, i][:, None] * (v[t, i] - known)
            state = state + outer(k[t, i], error)
        query = q[t] * cell.keys**-0.5
        outputs.append(read(state, query))
    return delta_output(cell, w, x, torch.stack(outputs))


FORMS |= dict.fromkeys(DELTA, delta_rule)


def delta_projections(cell, w: Named, x: Tensor) -> list[Tensor]:
    """Return queries (T, n, K), and keys and values of every step, (T, steps, n, ..)."""
    mixed = x @ torch.cat([w.q, w.k, w.v]).T
    if "conv" in w:
        mixed = conv(mixed, w.conv)
    else:
        mixed = F.silu(mixed)
    q, k, v = mixed.split([len(w.q), len(w.k), len(w.v)], dim=1)
    shape = (len(x), cell.substeps, cell.heads, -1)
    return [heads(q, cell.heads), k.view(shape), v.view(shape)]


def delta_decays(cell, w: Named, x: Tensor) -> Tensor:
    if "alpha" not in w:
        return x.new_ones(len(x), cell.heads, 1)
    logits = x @ w.alpha.T
    if "up_alpha" in w:
        logits = logits @ w.up_alpha.T
    return heads(decays(w, logits), cell.heads)


def delta_output(cell, w: Named, x: Tensor, o: Tensor) -> Tensor:
    """Return the norm, the output gate and the last matrix of what was read."""
    if "norm" in w:
        o = rms(o, w.norm)
    o = o.flatten(1)
    if "gate" in w:
        gate = x @ w.gate.T
        if "up_gate" in w:
            gate = gate @ w.up_gate.T + w.bias_gate
        activation = torch.sigmoid
        if cell.name in SWISH:
            activation = F.silu
        o = o * activation(gate)
    return o @ w.out.T


def unit(u: Tensor) -> Tensor:
    squares = u.square().sum(-1, keepdim=True)
    return u / torch.sqrt(squares + 1e-6)


def sums_of_pairs(q: Tensor, k: Tensor, v: Tensor, decay: Tensor) -> Tensor:
    """Return q_t S_t / √K of S_t = Diag(decay_t) S_{t-1} + k_t v_tᵀ, for heads (T, n, K)."""
    scale = q.shape[-1] ** -0.5
    state = 0
    outputs = []
    for t in range(len(q)):
        state = decay[t][..., None] * state + outer(k[t], v[t])
        outputs.append(read(state, q[t]) * scale)
    return torch.stack(outputs)


@form
def gla(cell, w, x):
    n = cell.heads
    q = heads(x @ w.q.T, n)
    k = heads(x @ w.k.T, n)
    v = heads(x @ w.v.T, n)
    low_rank = x @ w.low.T @ w.alpha.T
    # The published code divides by 16, so that the memory is long.
    log_decay = F.logsigmoid(low_rank + w.bias_alpha) / 16
    decay = heads(log_decay.exp(), n)
    summed = sums_of_pairs(q, k, v, decay)
    o = rms(summed, w.norm).flatten(1)
    gate = F.silu(x @ w.gate.T)
    return (o * gate) @ w.out.T


@form
def retention(cell, w, x):
    """The parallel form, with the mask of torchscale; its divisors cancel in the norm."""
    n = cell.heads
    k_dim = cell.keys
    steps = torch.arange(len(x), dtype=x.dtype)
    exponents = torch.linspace(0, 1, k_dim // 2, dtype=x.dtype)
    angles = steps[:, None] / 10000**exponents
    sin = angles.sin()[:, None]
    cos = angles.cos()[:, None]

    def shifted(u: Tensor) -> Tensor:
        # torchscale has the pairs side by side
        a, b = heads(u, n).chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    q = shifted(x @ w.q.T)
    k = shifted(x @ w.k.T * k_dim**-0.5)
    v = heads(x @ w.v.T, n)
    gamma = 1 - 2.0 ** (-5 - torch.arange(n, dtype=x.dtype))
    lag = steps[:, None] - steps
    decay = gamma[:, None, None] ** lag.clamp_min(0)
    mask = torch.where(lag >= 0, decay, 0.0)
    o = torch.einsum("tnk,snk,nts,snv->tnv", q, k, mask, v)
    gate = F.silu(x @ w.gate.T)
    return (gate * rms(o).flatten(1)) @ w.out.T


@form
def mamba(cell, w, u):
    x = conv(u @ w.x.T, w.conv, w.bias_conv)
    low_rank = x @ w.low_delta.T @ w.delta.T
    delta = F.softplus(low_rank + w.bias_delta)
    b = x @ w.b.T
    c = x @ w.c.T
    a = -w.log_rate.exp().view(cell.keys, -1).T
    state = 0
    outputs = []
    for t in range(len(x)):
        decay = torch.exp(delta[t][:, None] * a)
        state = decay * state + outer(delta[t] * x[t], b[t])
        outputs.append(state @ c[t] + w.skip * x[t])
    gate = F.silu(u @ w.gate.T)
    return (torch.stack(outputs) * gate) @ w.out.T


@form
def mamba2(cell, w, u):
    n = cell.heads
    states = cell.keys
    projected = u @ torch.cat([w.x, w.b, w.c]).T
    mixed = conv(projected, w.conv, w.bias_conv)
    x, b, c = mixed.split([len(w.x), states, states], dim=1)
    delta = F.softplus(u @ w.delta.T + w.bias_delta)
    decay = torch.exp(-w.log_rate.exp() * delta)
    x = heads(x, n)
    state = 0
    outputs = []
    for t in range(len(u)):
        written = torch.einsum("n,np,s->nps", delta[t], x[t], b[t])
        state = decay[t][:, None, None] * state + written
        outputs.append(state @ c[t] + w.skip[:, None] * x[t])
    gate = F.silu(u @ w.gate.T)
    gated = torch.stack(outputs).flatten(1) * gate
    return rms(gated, w.norm) @ w.out.T


@form
def mamba3(cell, w, u):
    """In the frame that turns with the state: S itself is turned back by each angle."""
    n = cell.heads
    states = cell.keys
    x = heads(u @ w.x.T, n)
    delta = F.softplus(u @ w.delta.T + w.bias_delta)
    rate = F.softplus(u @ w.rate.T).clamp_min(1e-4)
    decay = torch.exp(-rate * delta)
    new = torch.sigmoid(u @ w.trap.T)
    b = rms(u @ w.b.T, w.norm_b)[:, None] + w.bias_b
    c = rms(u @ w.c.T, w.norm_c)[:, None] + w.bias_c
    turn = torch.tanh(u @ w.angle.T)[:, None]
    angle = math.pi * delta[..., None] * turn
    state = u.new_zeros(n, states, cell.values)
    outputs = []
    for t in range(len(u)):
        # The trapezoid adds a share of the token before, which decays and turns with the state.
        if t:
            left = (1 - new[t]) * delta[t]
            state = state + left[:, None, None] * outer(b[t - 1], x[t - 1])
        state = decay[t][:, None, None] * turned_back(state, angle[t])
        right = new[t] * delta[t]
        state = state + right[:, None, None] * outer(b[t], x[t])
        outputs.append(read(state, c[t]) + w.skip[:, None] * x[t])
    gate = F.silu(u @ w.gate.T)
    return (torch.stack(outputs).flatten(1) * gate) @ w.out.T


def turned_back(state: Tensor, angle: Tensor) -> Tensor:
    """Turn pairs of the first half of the states (n, K, V) by −angle."""
    turning, resting = state.chunk(2, dim=1)
    pairs = turning.mT.unflatten(-1, (-1, 2)).contiguous()
    turn = torch.exp(-1j * angle[:, None])
    turned = torch.view_as_real(torch.view_as_complex(pairs) * turn)
    return torch.cat([turned.flatten(-2).mT, resting], dim=1)


@form
def m2rnn(cell, w, x):
    n = cell.heads
    size = cell.config.keys
    projected = x @ torch.cat([w.q, w.k, w.v]).T
    mixed = conv(projected, w.conv)
    q, k, v = mixed.split([size, size, len(w.v)], dim=1)
    delta = F.softplus(x @ w.f.T + w.bias_f)
    f = torch.exp(-w.log_rate.exp() * delta)
    state = x.new_zeros(n, size, cell.values)
    outputs = []
    for t in range(len(x)):
        mixed_state = torch.einsum("nkv,nvu->nku", state, w.mix)
        written = torch.einsum("k,nv->nkv", k[t], v[t].view(n, -1))
        new = torch.tanh(mixed_state + written)
        state = torch.lerp(new, state, f[t][:, None, None])
        outputs.append((q[t] @ state).flatten() + w.skip * v[t])
    gate = F.silu(x @ w.gate.T)
    return rms(torch.stack(outputs) * gate, w.norm) @ w.out.T


@form
def rwkv7(cell, w, x):
    n = cell.heads
    before = F.pad(x, (0, 0, 1, -1))
    xr, xw, xk, xv, xa, xg = (x + (before - x) * mu for mu in w.mu.view(6, -1))
    v = heads(xv @ w.v.T, n)
    r = heads(xr @ w.r.T, n)
    decay_logits = torch.tanh(xw @ w.w1.T) @ w.w2.T + w.bias_w
    log_decay = -math.exp(-0.5) * torch.sigmoid(decay_logits)
    decay = heads(log_decay.exp(), n)
    rate = torch.sigmoid(xa @ w.a1.T @ w.a2.T + w.bias_a)
    gate = torch.sigmoid(xg @ w.g1.T) @ w.g2.T
    key = xk @ w.k.T
    removal_key = F.normalize(heads(key * w.xi, n), dim=-1)
    k = heads(key + key * (rate - 1) * w.alpha, n)
    a = heads(rate, n)
    state = x.new_zeros(n, cell.keys, cell.keys)
    outputs = []
    for t in range(len(x)):
        removed = read(state, -removal_key[t])
        state = decay[t][..., None] * state
        state = state + outer(removal_key[t] * a[t], removed)
        state = state + outer(k[t], v[t])
        outputs.append(read(state, r[t]))
    flat = torch.stack(outputs).flatten(1)
    o = F.group_norm(flat, n, w.norm, w.bias_norm, eps=cell.keys * 1e-5)
    match = r * k * heads(w.rho[None], n)
    bonus = match.sum(-1, keepdim=True) * v
    return ((o + bonus.flatten(1)) * gate) @ w.out.T


@form
def hgrn2(cell, w, x):
    n = cell.config.heads
    bound = torch.sigmoid(w.bound)
    above = torch.log1p(-bound) + F.logsigmoid(x @ w.xf)
    decay = torch.logaddexp(bound.log(), above).exp()
    q = heads(F.silu(x @ w.xq), n)
    k = heads(1 - decay, n)
    v = heads(x @ w.xv, n)
    o = sums_of_pairs(q, k, v, heads(decay, n))
    return rms(o.flatten(1), w.norm) @ w.out


@form
def mlstm(cell, w, x):
    """The parallel form of `parallel_stabilized_simple`, without its ε."""
    n = cell.heads
    steps = len(x)
    u = x @ w.u.T
    a = conv(u, w.conv, w.bias_conv)

    def blockwise(v: Tensor, blocks: Tensor) -> Tensor:
        parts = heads(v, len(blocks))
        return torch.einsum("thd,hod->tho", parts, blocks).flatten(1)

    q = blockwise(a, w.q)
    k = blockwise(a, w.k)
    v = blockwise(u, w.v)
    qkv = torch.cat([q, k, v], dim=1)
    log_i = (qkv @ w.i.T + w.bias_i).T
    log_f = F.logsigmoid(qkv @ w.f.T + w.bias_f).T.cumsum(1)
    later = torch.ones(steps, steps, dtype=torch.bool).triu(1)
    log_decay = log_f[:, :, None] - log_f[:, None]
    d = (log_decay + log_i[:, None]).masked_fill(later, -torch.inf)
    # Without the largest exponent, the exponentials overflow.
    top = d.amax(-1, keepdim=True)
    q = heads(q, n).transpose(0, 1)
    k = heads(k, n).transpose(0, 1)
    v = heads(v, n).transpose(0, 1)
    scores = q @ k.mT / math.sqrt(k.shape[-1])
    c = scores * (d - top).exp()
    total = c.sum(-1, keepdim=True).abs()
    h = (c / torch.maximum(total, (-top).exp())) @ v
    flat = h.transpose(0, 1).flatten(1)
    normed = F.group_norm(flat, n, w.norm, eps=1e-5)
    gate = F.silu(x @ w.o.T)
    return ((normed + w.skip * a) * gate) @ w.out.T


@form
def slstm(cell, w, x):
    n = cell.heads

    def headwise(v: Tensor, kind: str, gate: str) -> Tensor:
        blocks = w[kind + gate]
        if blocks.dim() != 3:
            blocks = blocks[None]
        parts = v.unflatten(-1, (n, -1))
        return torch.einsum("...hd,hdo->...ho", parts, blocks).flatten(-2)

    a = conv(x, w.conv, w.bias_conv)
    sources = {"i": a, "f": a, "z": x, "o": x}
    inputs = {gate: headwise(source, "x", gate) for gate, source in sources.items()}

    def logit(gate: str, t: int, y: Tensor) -> Tensor:
        total = inputs[gate][t] + headwise(y, "h", gate)
        return total + w.get(f"b{gate}", 0)

    y = c = normaliser = m = torch.zeros_like(x[0])
    outputs = []
    for t in range(len(x)):
        i, f, z, o = (logit(gate, t, y) for gate in "ifzo")
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
    return F.group_norm(torch.stack(outputs), n, w.norm, eps=1e-5)


@form
def rg_lru(cell, w, x):
    r = torch.sigmoid(x @ w.wa + w.ba)
    i = torch.sigmoid(x @ w.wx + w.bx)
    log_a = -8 * r * F.softplus(w.decay)
    # So that the variance of h is that of the inputs.
    multiplier = torch.sqrt(1 - torch.exp(2 * log_a))
    multiplier[0] = 1  # `reset` at position 0
    written = x * i * multiplier
    h = torch.zeros_like(x[0])
    outputs = []
    for t in range(len(x)):
        h = torch.exp(log_a[t]) * h + written[t]
        outputs.append(h)
    return torch.stack(outputs)


def in_logarithms(gate: Tensor, hidden: Tensor) -> Tensor:
    """Return h_t = σ(−gate_t) h_{t-1} + σ(gate_t) g_t, by `heinsen_associative_scan_log`."""
    positive = (F.relu(hidden) + 0.5).log()
    log_g = torch.where(hidden >= 0, positive, -F.softplus(-hidden))
    log_write = -F.softplus(-gate)
    log_keep = (-F.softplus(gate)).cumsum(0)
    log_sum = (log_write + log_g - log_keep).logcumsumexp(0)
    return (log_keep + log_sum).exp()


@form
def min_gru(cell, w, x):
    gate = x @ w.xz + w.bz
    return in_logarithms(gate, x @ w.xh + w.bh)


@form
def min_lstm(cell, w, x):
    f = x @ w.xf + w.bf
    i = x @ w.xi + w.bi
    gate = F.softplus(-f) - F.softplus(-i)
    return in_logarithms(gate, x @ w.xh + w.bh)


@form
def lru(cell, w, x):
    # Their absolute values are below 1 for every ν.
    eigenvalues = torch.exp(-w.nu.exp() + 1j * w.theta.exp())
    b = torch.complex(w.b_re, w.b_im)
    c = torch.complex(w.c_re, w.c_im)
    inputs = (x + 0j) @ b * w.gamma.exp()
    s = torch.zeros_like(inputs[0])
    outputs = []
    for t in range(len(x)):
        s = eigenvalues * s + inputs[t]
        # The state is complex, the output is its real part.
        outputs.append((s @ c).real + w.d * x[t])
    return torch.stack(outputs)
