"""Cells with a matrix state: relations between them, and loops over the tokens."""

import torch
from torch.nn.functional import linear, silu, softplus

from lmzoo.base.docstrings import cut_names
from lmzoo.functional.matrix_state import matrix_scan
from lmzoo.laws.probes import disturb
from tests.cases import parametrize, rows
from tests.cells.reference_forms import DELTA, Named, delta_rule, outer, unit
from tests.cells.support import make
from tests.tiny import assert_equal_double

H = 6
T = 9


def pair(cell, count=3, length=T):
    """Return inputs and the start state of a model."""
    generator = torch.Generator().manual_seed(1)
    options = {"generator": generator, "dtype": torch.float64}
    x = torch.randn(count, length, cell.width, **options)
    # A model starts from ones.
    start = torch.ones(count, cell.num_state_vectors * cell.width)
    return x, start.double()


def built(name, **fields):
    return make(name, width=H, length=T, **fields)


def scan(cell):
    x, start = pair(cell)
    with torch.no_grad():
        return cell.scan(x, start)


def share(target, source):
    """Copy the weights of `source`."""
    with torch.no_grad():
        for name, weight in target.w.named_parameters():
            value = source.w.get_parameter(name)
            weight.copy_(value.reshape(weight.shape))
    return target


def attention(q, k, v):
    """Return Σ_{s≤t} (q_t · k_s) v_s, from the (T, T) matrix of weights."""
    weights = torch.tril(q @ k.mT)
    return weights @ v


def by_head(x, count=2):
    """Return (B, n, T, H / n)."""
    heads = x.unflatten(-1, (count, -1))
    return heads.transpose(1, 2)


def joined(o):
    """Return (B, T, H) of all heads."""
    return o.transpose(1, 2).flatten(-2)


def test_gla_and_retention_without_decay_are_linear_attention():
    # Both have keys and values of the width.
    gla = built("gla", cuts="decay, gate, norm", expand_k=1.0)
    retention = built("retention", cuts="decay, gate, norm, rotation", expand_v=1)
    share(retention, gla)
    x, _ = pair(gla)
    w = gla.w
    q = by_head(x @ w.q.T)
    k = by_head(x @ w.k.T)
    v = by_head(x @ w.v.T)
    # A head has half of the width.
    scale = (H / 2) ** -0.5
    o = attention(scale * q, k, v)
    expected = joined(o) @ w.out.T
    assert_equal_double(scan(gla), expected)
    assert_equal_double(scan(retention), expected)


def test_mamba3_without_its_three_ideas_is_mamba2():
    """Without trapezoid, rotation, biases and norms of B and C (Lahoti et al. 2026, table 1)."""
    mamba3 = built("mamba3", cuts="trapezoid, rotation, bias, norm, decay")
    mamba2 = built("mamba2", cuts="convolution, norm, decay")
    share(mamba2, mamba3)
    x, start = pair(mamba3)
    projected = mamba2.project(x)
    z, _ = mamba2.prepare(projected, ())
    # Mamba-2 has SiLU after these three projections.
    for name in ("x", "b", "c"):
        weight = mamba3.w.get_parameter(name)
        z[name] = linear(x, weight)
    update = mamba2.update(z)
    # Three sequences, two heads, 16 states.
    states = x.new_zeros(3, 2, 16, H)
    o, _ = matrix_scan(update, states)
    # The output of Mamba-2 has the same weights.
    expected = mamba2.output(o, z, update)
    actual = mamba3.scan(x, start)
    assert_equal_double(actual, expected)


@torch.no_grad()
def test_m2rnn_without_tanh_and_transition_is_a_gated_linear_recurrence():
    """S_t = f_t S_{t-1} + (1 − f_t) (S_{t-1} + k_t v_tᵀ): no decay, writes of 1 − f_t."""
    cell = built("m2rnn", cuts="tanh, transition")
    x, start = pair(cell)
    projected = cell.project(x)
    z, _ = cell.prepare(projected, cell.initial_memory(start))
    update = cell.update(z)
    share_written = 1 - update.log_decay.exp()
    written = share_written * update.key
    no_decay = torch.zeros_like(update.log_decay)
    linear_form = update._replace(key=written, log_decay=no_decay)
    memory, *_ = cell.initial_state(start)
    o, _ = matrix_scan(linear_form, memory)
    expected = cell.output(o, z, update)
    actual = cell.scan(x, start)
    assert_equal_double(actual, expected)


def test_mamba2_is_retention_with_a_decay_that_reads_the_token():
    """Its state space duality: attention with decays exp(−A Σ Δ) between positions."""
    cell = built("mamba2", cuts="convolution, skip, gate, norm", states=4)
    (x, _) = pair(cell)
    w = cell.w
    values = by_head(silu(x @ w.x.T))
    b = silu(x @ w.b.T)
    c = silu(x @ w.c.T)
    b = b[:, None]
    c = c[:, None]
    logits = x @ w.delta.T + w.bias_delta
    delta = softplus(logits).mT
    rate = w.log_rate.exp()[:, None]
    total = (-rate * delta).cumsum(-1)
    later = total[..., :, None]
    between = later - total[..., None, :]
    # Above the diagonal, the other factor is 0.
    decay = between.tril().exp()
    weights = torch.tril(c @ b.mT) * decay
    written = delta[..., None] * values
    o = weights @ written
    expected = joined(o) @ w.out.T
    assert_equal_double(scan(cell), expected)


def test_mamba_without_selection_is_a_convolution():
    """A linear time-invariant system: y = Σ_s kernel_{t−s} x_s, kernel_d = Σ_n C_n a_n^d Δ B_n."""
    cell = built("mamba", cuts="delta, b, c, convolution, gate")
    (x, _) = pair(cell)
    w = cell.w
    u = silu(x @ w.x.T)
    # Nothing reads the token, so Δ is a constant.
    delta = softplus(w.bias_delta)
    rate = w.log_rate.exp().view(16, -1)
    lags = torch.arange(T).double()
    exponents = -rate * delta * lags[:, None, None]
    powers = exponents.exp()
    cb = w.fixed_c * w.fixed_b
    terms = cb[:, None] * powers * delta
    kernel = terms.sum(1)  # (T, D)
    y = w.skip * u
    for lag in range(T):
        earlier = u[:, : T - lag]
        y[:, lag:] += kernel[lag] * earlier
    expected = y @ w.out.T
    assert_equal_double(scan(cell), expected)


def test_rwkv7_without_removal_is_gated_linear_attention():
    cuts = "removal, token_shift, rate, bonus, gate, norm"
    cell = built("rwkv7", heads=1, cuts=cuts)
    (x, _) = pair(cell)
    w = cell.w
    low_rank = torch.tanh(x @ w.w1.T)
    logits = low_rank @ w.w2.T + w.bias_w
    rate = torch.sigmoid(logits)
    log_decay = -(torch.e**-0.5) * rate
    total = log_decay.cumsum(1)
    # Short enough that the decays need not be subtracted before they are exponentials.
    r = x @ w.r.T * total.exp()
    k = x @ w.k.T
    k = k * torch.exp(-total)
    o = attention(r, k, x @ w.v.T)
    expected = o @ w.out.T
    assert_equal_double(scan(cell), expected)


def test_rwkv7_with_a_rate_of_beta_is_deltanet():
    """Without decay, with ξ = 1 and a = 1 it erases and writes under the same unit key."""
    cuts = "decay, rate, removal_key, token_shift, bonus, gate, norm"
    cell = built("rwkv7", cuts=cuts)
    x, start = pair(cell)
    w = cell.w
    matrix, *_ = cell.initial_state(start)
    r = by_head(x @ w.r.T)
    k = by_head(x @ w.k.T)
    v = by_head(x @ w.v.T)
    outputs = []
    for t in range(T):
        key = unit(k[:, :, t])
        # What was known under this key goes.
        erased = outer(key, key) @ matrix
        key_t = k[:, :, t]
        written = outer(key_t, v[:, :, t])
        matrix = matrix - erased + written
        query = r[:, :, t, :, None]
        outputs.append(matrix.mT @ query)
    o = torch.stack(outputs, dim=1)
    o = o.flatten(2)
    expected = o @ w.out.T
    assert_equal_double(scan(cell), expected)


CASES = rows("cells/cases.toml", "delta_rule")
for name in DELTA:
    for cut in cut_names(name):
        CASES.append({"name": name, "cuts": [cut]})


@torch.no_grad()
@parametrize("fields", CASES, ids=str)
def test_cuts_and_options_compute_their_equations(fields):
    cell = make(**fields, width=12, length=11)
    # Weights that start at zero would hide what they multiply.
    disturb(cell)
    x, start = pair(cell, count=1, length=11)
    weights = Named(cell.w.named_parameters())
    expected = delta_rule(cell, weights, x[0])
    actual = cell.scan(x, start)[0]
    assert_equal_double(actual, expected)


def test_comba_starts_at_its_published_values():
    w = make("comba", width=16).w
    assert (w.bias_b == 1).all()
    assert (w.skip == 1).all()
