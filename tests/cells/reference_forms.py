"""The forward passes of the reference codes, step by step, from the weights of a cell.

Each function follows the layers of the code that the cell's docstring names: its convolutions,
norms, scales and start states. Inputs are (T, E), weights are those of `cell.w` by name. The
letters are those of the equation in the cell's docstring; n counts heads.
"""

import math

import torch
from torch import nn

F = nn.functional


class Named(dict):
    """The weights of a cell by name, read as `w.q` or as `w["q"]`."""

    __getattr__ = dict.__getitem__


# Each takes a cell, its weights and its inputs.
FORMS = {}


def form(function):
    FORMS[function.__name__] = function
    return function


def conv(x, taps, bias=None):
    """A causal depthwise convolution as torch has it, and SiLU."""
    channels, width = taps.shape
    # The width counts the present token, so one less is before the start.
    before = (width - 1, 0)
    padded = F.pad(x.T[None], before)
    kernel = taps[:, None]
    mixed = F.conv1d(padded, kernel, bias, groups=channels)
    return F.silu(mixed[0].T)


def rms(x, scales=None):
    channels = x.shape[-1:]
    return F.rms_norm(x, channels, scales, 1e-5)


def heads(x, n):
    steps = len(x)
    return x.view(steps, n, -1)


def outer(k, v):
    """Return k vᵀ of every head, (n, K, V)."""
    column = k[..., :, None]
    row = v[..., None, :]
    return column * row


def read(state, q):
    """Return q S of every head, (n, V)."""
    return torch.einsum("nkv,nk->nv", state, q)


def decays(w, logits):
    """Return exp(−rate Δ); a head has one rate for all of its channels."""
    rate = w.log_rate.exp()
    delta = F.softplus(logits + w.bias_alpha)
    channels = delta.shape[-1] // len(rate)
    by_channel = rate.repeat_interleave(channels)
    return torch.exp(-by_channel * delta)


SWISH = ("gated_deltanet", "deltaproduct")
"""Cells with the delta rule whose output gate is SiLU; that of the others is a sigmoid."""
DELTA = ("deltanet", *SWISH, "kda", "comba")


def delta_rule(cell, w, x):
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
    beta = delta_rates(cell, w, x)
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
            asked = feedback[:, None] * k[t, i]
            known = read(remembered, asked)
            if "delta" in cuts:
                # Without the delta rule, values are added as they are.
                known = 0
            error = v[t, i] - known
            error = beta[t, i][:, None] * error
            state = state + outer(k[t, i], error)
        # The scale of attention.
        query = q[t] * cell.keys**-0.5
        outputs.append(read(state, query))
    o = torch.stack(outputs)
    return delta_output(cell, w, x, o)


FORMS |= dict.fromkeys(DELTA, delta_rule)


def delta_projections(cell, w, x):
    """Return queries (T, n, K), and keys and values of every step, (T, steps, n, ..)."""
    maps = torch.cat([w.q, w.k, w.v])
    mixed = x @ maps.T
    if "conv" in w:
        mixed = conv(mixed, w.conv)
    else:
        mixed = F.silu(mixed)
    sizes = [len(weight) for weight in (w.q, w.k, w.v)]
    q, k, v = mixed.split(sizes, dim=1)
    # A token has several steps, and one query.
    q = heads(q, cell.heads)
    size = len(x)
    shape = (size, cell.substeps, cell.heads, -1)
    keys = k.view(shape)
    values = v.view(shape)
    return [q, keys, values]


def delta_rates(cell, w, x):
    """Return the share of an error that each step corrects, (T, steps, n)."""
    shape = (len(x), cell.substeps, cell.heads)
    # Without β, each error is corrected as a whole.
    if "beta" not in w:
        return x.new_ones(shape)
    shares = torch.sigmoid(x @ w.beta.T)
    rates = shares * cell.config.beta_max
    return rates.view(shape)


def delta_decays(cell, w, x):
    if "alpha" not in w:
        size = len(x)
        # Nothing decays.
        return x.new_ones(size, cell.heads, 1)
    logits = x @ w.alpha.T
    if "up_alpha" in w:
        logits = logits @ w.up_alpha.T
    alpha = decays(w, logits)
    return heads(alpha, cell.heads)


def delta_output(cell, w, x, o):
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


def unit(u):
    squares = u.square()
    squares = squares.sum(-1, keepdim=True)
    # The ε is inside the root, as in flash-linear-attention.
    return u / torch.sqrt(squares + 1e-6)


def sums_of_pairs(q, k, v, decay):
    """Return q_t S_t / √K of S_t = Diag(decay_t) S_{t-1} + k_t v_tᵀ, for heads (T, n, K)."""
    scale = q.shape[-1] ** -0.5
    state = 0
    outputs = []
    for t in range(len(q)):
        written = outer(k[t], v[t])
        state = decay[t][..., None] * state + written
        output = read(state, q[t])
        outputs.append(output * scale)
    return torch.stack(outputs)


@form
def gla(cell, w, x):
    n = cell.heads
    q = heads(x @ w.q.T, n)
    k = heads(x @ w.k.T, n)
    v = heads(x @ w.v.T, n)
    low_rank = x @ w.low.T @ w.alpha.T
    # The published code divides by 16, so that the memory is long.
    logits = low_rank + w.bias_alpha
    log_decay = F.logsigmoid(logits) / 16
    decay = heads(log_decay.exp(), n)
    summed = sums_of_pairs(q, k, v, decay)
    o = rms(summed, w.norm)
    o = o.flatten(1)
    gate = F.silu(x @ w.gate.T)
    return (o * gate) @ w.out.T


@form
def retention(cell, w, x):
    """The parallel form, with the mask of torchscale; its divisors cancel in the norm."""
    n = cell.heads
    k_dim = cell.keys
    dtype = x.dtype
    steps = torch.arange(len(x), dtype=dtype)
    exponents = torch.linspace(0, 1, k_dim // 2, dtype=dtype)
    rates = 10000**-exponents
    # One frequency for each pair of channels.
    angles = steps[:, None] * rates
    sin = angles.sin()[:, None]
    cos = angles.cos()[:, None]

    def shifted(u):
        # torchscale has the pairs side by side
        by_head = heads(u, n)
        a, b = by_head.chunk(2, dim=-1)
        real = a * cos - b * sin
        imaginary = b * cos + a * sin
        return torch.cat([real, imaginary], dim=-1)

    # Queries and keys turn with their positions.
    q = shifted(x @ w.q.T)
    k = shifted(x @ w.k.T)
    k = k * k_dim**-0.5
    v = heads(x @ w.v.T, n)
    # The first head forgets 1/32 a token, each further one half of that.
    head = torch.arange(n, dtype=dtype)
    gamma = 1 - 2.0 ** (-5 - head)
    lag = steps[:, None] - steps
    rate = gamma[:, None, None]
    decay = rate ** lag.clamp_min(0)
    mask = torch.where(lag >= 0, decay, 0.0)
    o = torch.einsum("tnk,snk,nts,snv->tnv", q, k, mask, v)
    gate = F.silu(x @ w.gate.T)
    o = rms(o).flatten(1)
    return (gate * o) @ w.out.T


@form
def mamba(cell, w, u):
    projected = u @ w.x.T
    x = conv(projected, w.conv, w.bias_conv)
    low_rank = x @ w.low_delta.T @ w.delta.T
    delta = F.softplus(low_rank + w.bias_delta)
    b = x @ w.b.T
    c = x @ w.c.T
    rate = w.log_rate.exp()
    a = -rate.view(cell.keys, -1).T
    state = 0
    outputs = []
    for t in range(len(x)):
        delta_t = delta[t]
        decay = torch.exp(delta_t[:, None] * a)
        written = outer(delta_t * x[t], b[t])
        state = decay * state + written
        output = state @ c[t]
        outputs.append(output + w.skip * x[t])
    gate = F.silu(u @ w.gate.T)
    o = torch.stack(outputs)
    return (o * gate) @ w.out.T


@form
def mamba2(cell, w, u):
    n = cell.heads
    states = cell.keys
    maps = torch.cat([w.x, w.b, w.c])
    projected = u @ maps.T
    mixed = conv(projected, w.conv, w.bias_conv)
    sizes = [len(w.x), states, states]
    x, b, c = mixed.split(sizes, dim=1)
    logits = u @ w.delta.T
    delta = F.softplus(logits + w.bias_delta)
    rate = w.log_rate.exp()
    decay = torch.exp(-rate * delta)
    x = heads(x, n)
    state = 0
    outputs = []
    for t in range(len(u)):
        moved = delta[t][:, None] * x[t]
        written = moved[..., None] * b[t]
        kept = decay[t][:, None, None] * state
        state = kept + written
        passed = w.skip[:, None] * x[t]
        outputs.append(state @ c[t] + passed)
    gate = F.silu(u @ w.gate.T)
    o = torch.stack(outputs).flatten(1)
    # The gate acts before the norm.
    return rms(o * gate, w.norm) @ w.out.T


@form
def mamba3(cell, w, u):
    """In the frame that turns with the state: S itself is turned back by each angle."""
    n = cell.heads
    states = cell.keys
    x = heads(u @ w.x.T, n)
    logits = u @ w.delta.T
    delta = F.softplus(logits + w.bias_delta)
    rate = F.softplus(u @ w.rate.T)
    rate = rate.clamp_min(1e-4)
    decay = torch.exp(-rate * delta)
    new = torch.sigmoid(u @ w.trap.T)
    b = rms(u @ w.b.T, w.norm_b)
    b = b[:, None] + w.bias_b
    c = rms(u @ w.c.T, w.norm_c)
    c = c[:, None] + w.bias_c
    turn = torch.tanh(u @ w.angle.T)
    turn = math.pi * turn[:, None]
    angle = delta[..., None] * turn
    skip = w.skip[:, None]
    state = u.new_zeros(n, states, cell.values)
    outputs = []
    for t in range(len(u)):
        # The trapezoid adds a share of the token before, which decays and turns with the state.
        if t:
            left = (1 - new[t]) * delta[t]
            earlier = outer(b[t - 1], x[t - 1])
            state = state + left[:, None, None] * earlier
        turned = turned_back(state, angle[t])
        state = decay[t][:, None, None] * turned
        right = new[t] * delta[t]
        written = outer(b[t], x[t])
        state = state + right[:, None, None] * written
        output = read(state, c[t])
        outputs.append(output + skip * x[t])
    gate = F.silu(u @ w.gate.T)
    o = torch.stack(outputs).flatten(1)
    return (o * gate) @ w.out.T


def turned_back(state, angle):
    """Turn pairs of the first half of the states (n, K, V) by −angle."""
    # The second half of the states has no rotation.
    turning, resting = state.chunk(2, dim=1)
    # A pair of states is one complex number.
    pairs = turning.mT.unflatten(-1, (-1, 2))
    numbers = torch.view_as_complex(pairs.contiguous())
    turn = torch.exp(-1j * angle[:, None])
    turned = torch.view_as_real(numbers * turn)
    turned = turned.flatten(-2).mT
    return torch.cat([turned, resting], dim=1)


@form
def m2rnn(cell, w, x):
    n = cell.heads
    size = cell.config.keys
    maps = torch.cat([w.q, w.k, w.v])
    projected = x @ maps.T
    mixed = conv(projected, w.conv)
    sizes = [size, size, len(w.v)]
    q, k, v = mixed.split(sizes, dim=1)
    logits = x @ w.f.T
    delta = F.softplus(logits + w.bias_f)
    rate = w.log_rate.exp()
    f = torch.exp(-rate * delta)
    state = x.new_zeros(n, size, cell.values)
    outputs = []
    for t in range(len(x)):
        mixed_state = torch.einsum("nkv,nvu->nku", state, w.mix)
        by_head = v[t].view(n, -1)
        written = torch.einsum("k,nv->nkv", k[t], by_head)
        new = torch.tanh(mixed_state + written)
        kept = f[t][:, None, None]
        state = torch.lerp(new, state, kept)
        output = (q[t] @ state).flatten()
        outputs.append(output + w.skip * v[t])
    gate = F.silu(x @ w.gate.T)
    o = torch.stack(outputs)
    return rms(o * gate, w.norm) @ w.out.T


@form
def rwkv7(cell, w, x):
    n = cell.heads
    # Zeros are before the first token.
    one_earlier = (0, 0, 1, -1)
    before = F.pad(x, one_earlier)
    change = before - x
    # Each projection reads a mixture of its own of a token and the one before.
    shares = w.mu.view(6, -1)
    xr, xw, xk, xv, xa, xg = (x + change * mu for mu in shares)
    v = heads(xv @ w.v.T, n)
    r = heads(xr @ w.r.T, n)
    low_rank = torch.tanh(xw @ w.w1.T)
    logits = low_rank @ w.w2.T + w.bias_w
    scale = -math.exp(-0.5)
    log_decay = scale * torch.sigmoid(logits)
    decay = heads(log_decay.exp(), n)
    rate = xa @ w.a1.T @ w.a2.T
    rate = torch.sigmoid(rate + w.bias_a)
    low_rank = torch.sigmoid(xg @ w.g1.T)
    gate = low_rank @ w.g2.T
    key = xk @ w.k.T
    removal_key = heads(key * w.xi, n)
    removal_key = F.normalize(removal_key, dim=-1)
    change = key * (rate - 1) * w.alpha
    k = heads(key + change, n)
    a = heads(rate, n)
    state = x.new_zeros(n, cell.keys, cell.keys)
    outputs = []
    for t in range(len(x)):
        removed = read(state, -removal_key[t])
        state = decay[t][..., None] * state
        restored = outer(removal_key[t] * a[t], removed)
        written = outer(k[t], v[t])
        state = state + restored + written
        output = read(state, r[t])
        outputs.append(output)
    flat = torch.stack(outputs).flatten(1)
    # The ε is that of the code, which grows with the width of a head.
    epsilon = cell.keys * 1e-5
    o = F.group_norm(flat, n, w.norm, w.bias_norm, epsilon)
    rho = heads(w.rho[None], n)
    products = r * k * rho
    match = products.sum(-1, keepdim=True)
    bonus = (match * v).flatten(1)
    return ((o + bonus) * gate) @ w.out.T


@form
def hgrn2(cell, w, x):
    n = cell.config.heads
    # A learned bound, below which no decay goes.
    bound = torch.sigmoid(w.bound)
    log_share = F.logsigmoid(x @ w.xf)
    above = torch.log1p(-bound) + log_share
    log_decay = torch.logaddexp(bound.log(), above)
    decay = log_decay.exp()
    query = F.silu(x @ w.xq)
    q = heads(query, n)
    k = heads(1 - decay, n)
    v = heads(x @ w.xv, n)
    decay = heads(decay, n)
    o = sums_of_pairs(q, k, v, decay)
    o = o.flatten(1)
    return rms(o, w.norm) @ w.out


@form
def mlstm(cell, w, x):
    """The parallel form of `parallel_stabilized_simple`, without its ε."""
    n = cell.heads
    steps = len(x)
    u = x @ w.u.T
    a = conv(u, w.conv, w.bias_conv)

    def blockwise(v, blocks):
        parts = heads(v, len(blocks))
        mapped = torch.einsum("thd,hod->tho", parts, blocks)
        return mapped.flatten(1)

    q = blockwise(a, w.q)
    k = blockwise(a, w.k)
    v = blockwise(u, w.v)
    qkv = torch.cat([q, k, v], dim=1)
    log_i = qkv @ w.i.T + w.bias_i
    log_i = log_i.T[:, None]
    logits = qkv @ w.f.T + w.bias_f
    log_f = F.logsigmoid(logits)
    # Sums of logarithms are products of forget gates.
    log_f = log_f.T.cumsum(1)
    log_decay = log_f[:, :, None] - log_f[:, None]
    later = torch.ones(steps, steps).triu(1) > 0
    exponents = log_decay + log_i
    d = exponents.masked_fill(later, -torch.inf)
    # Without the largest exponent, the exponentials overflow.
    top = d.amax(-1, keepdim=True)

    def by_head(u):
        return heads(u, n).transpose(0, 1)

    q = by_head(q)
    k = by_head(k)
    v = by_head(v)
    size = k.shape[-1]
    scores = q @ k.mT / math.sqrt(size)
    c = scores * (d - top).exp()
    total = c.sum(-1, keepdim=True)
    total = total.abs()
    # The normaliser is one at least, before the scale of the exponents.
    least = torch.exp(-top)
    h = (c / torch.maximum(total, least)) @ v
    flat = h.transpose(0, 1).flatten(1)
    normed = F.group_norm(flat, n, w.norm, eps=1e-5)
    gate = F.silu(x @ w.o.T)
    o = normed + w.skip * a
    return (o * gate) @ w.out.T


@form
def slstm(cell, w, x):
    n = cell.heads

    def headwise(v, kind, gate):
        blocks = w[kind + gate]
        if blocks.dim() != 3:
            blocks = blocks[None]
        parts = v.unflatten(-1, (n, -1))
        mapped = torch.einsum("...hd,hdo->...ho", parts, blocks)
        return mapped.flatten(-2)

    a = conv(x, w.conv, w.bias_conv)
    sources = {"i": a, "f": a, "z": x, "o": x}
    inputs = {}
    for gate, source in sources.items():
        inputs[gate] = headwise(source, "x", gate)

    def logit(gate, t, y):
        # The memory mixes within a head only.
        recurrent = headwise(y, "h", gate)
        total = inputs[gate][t] + recurrent
        return total + w.get(f"b{gate}", 0)

    y = c = normaliser = m = torch.zeros_like(x[0])
    outputs = []
    for t in range(len(x)):
        i, f, z, o = (logit(gate, t, y) for gate in "ifzo")
        forgotten = m + F.logsigmoid(f)
        # Nothing was kept before the first token.
        m = i
        if t:
            m = torch.maximum(i, forgotten)
        kept = (forgotten - m).exp().clamp_max(1)
        written = (i - m).exp()
        c = kept * c + written * torch.tanh(z)
        normaliser = kept * normaliser + written
        y = torch.sigmoid(o) * c / normaliser
        outputs.append(y)
    o = torch.stack(outputs)
    return F.group_norm(o, n, w.norm, eps=1e-5)


@form
def rg_lru(cell, w, x):
    r = torch.sigmoid(x @ w.wa + w.ba)
    i = torch.sigmoid(x @ w.wx + w.bx)
    log_a = -8 * r * F.softplus(w.decay)
    # So that the variance of h is that of the inputs.
    decay = torch.exp(2 * log_a)
    multiplier = torch.sqrt(1 - decay)
    multiplier[0] = 1  # `reset` at position 0
    written = x * i * multiplier
    h = torch.zeros_like(x[0])
    outputs = []
    for t in range(len(x)):
        kept = torch.exp(log_a[t]) * h
        h = kept + written[t]
        outputs.append(h)
    return torch.stack(outputs)


def in_logarithms(gate, hidden):
    """Return h_t = σ(−gate_t) h_{t-1} + σ(gate_t) g_t, by `heinsen_associative_scan_log`."""
    positive = torch.log(F.relu(hidden) + 0.5)
    negative = -F.softplus(-hidden)
    log_g = torch.where(hidden >= 0, positive, negative)
    log_write = -F.softplus(-gate)
    log_keep = -F.softplus(gate)
    log_keep = log_keep.cumsum(0)
    terms = log_write + log_g - log_keep
    # What was written at s has decayed by log_keep_t − log_keep_s.
    log_sum = terms.logcumsumexp(0)
    return (log_keep + log_sum).exp()


@form
def min_gru(cell, w, x):
    gate = x @ w.xz + w.bz
    hidden = x @ w.xh + w.bh
    return in_logarithms(gate, hidden)


@form
def min_lstm(cell, w, x):
    f = x @ w.xf + w.bf
    i = x @ w.xi + w.bi
    hidden = x @ w.xh + w.bh
    # The log-odds of i against f, so that both gates sum to one.
    log_f = -F.softplus(-f)
    log_i = -F.softplus(-i)
    gate = log_i - log_f
    return in_logarithms(gate, hidden)


@form
def lru(cell, w, x):
    # Their absolute values are below 1 for every ν.
    radius = -w.nu.exp()
    exponents = radius + 1j * w.theta.exp()
    eigenvalues = exponents.exp()
    # Weights are stored as real numbers.
    b = torch.complex(w.b_re, w.b_im)
    c = torch.complex(w.c_re, w.c_im)
    scales = w.gamma.exp()
    inputs = (x + 0j) @ b * scales
    s = torch.zeros_like(inputs[0])
    outputs = []
    for t in range(len(x)):
        s = eigenvalues * s + inputs[t]
        # The state is complex, the output is its real part.
        output = (s @ c).real
        outputs.append(output + w.d * x[t])
    return torch.stack(outputs)
