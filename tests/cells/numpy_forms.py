"""Cells in float64 numpy, one sequence and one head at a time, without a recurrence.

Every output is a sum over the past, with the transitions between two positions multiplied out:

    o_t = q_tᵀ ( M_t .. M_1 S_0 + Σ_{s≤t} M_t .. M_{s+1} k_s v_sᵀ )

x is (T, E), S_0 is (n, K, V), `w` maps the names of the cell's weights to arrays.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Weights = dict[str, Array]


def sigmoid(u: Array) -> Array:
    return (1 + np.tanh(u / 2)) / 2


def silu(u: Array) -> Array:
    return u * sigmoid(u)


def softplus(u: Array) -> Array:
    return np.logaddexp(0, u)


def rms(u: Array) -> Array:
    """Divide the vectors of the last axis by their root mean square."""
    return u / np.sqrt((u**2).mean(-1, keepdims=True) + 1e-5)


def unit(u: Array) -> Array:
    return u / np.sqrt((u**2).sum(-1, keepdims=True) + 1e-6)


def convolution(u: Array, taps: Array) -> Array:
    """Convolve each column with its taps, the last of which reads the newest row."""
    columns = [np.convolve(c, t[::-1])[: len(u)] for c, t in zip(u.T, taps, strict=True)]
    return np.stack(columns, axis=1)


def by_head(u: Array, heads: int) -> list[Array]:
    return np.split(u, heads, axis=1)


def unrolled(q: Array, k: Array, v: Array, transitions: list[Array], start: Array) -> Array:
    """Return o_1 .. o_T of one head, (T, V); `transitions` are the M_t, (K, K)."""
    outputs = []
    for t in range(len(q)):
        reading = q[t]  # q_tᵀ M_t .. M_{s+1}, from s = t down
        o = np.zeros(v.shape[1])
        for s in range(t, -1, -1):
            o += (reading @ k[s]) * v[s]
            reading = reading @ transitions[s]
        outputs.append(o + reading @ start)
    return np.stack(outputs)


def retention(w: Weights, x: Array, start: Array) -> Array:
    """Sun et al. 2023, eq. 5 and 8: the parallel form, with complex numbers for the rotation."""
    heads, size = start.shape[:2]
    half, t = size // 2, np.arange(len(x))
    turn = np.exp(1j * t[:, None] * 10000.0 ** (-2 * np.arange(half) / size))
    parts = []
    for h, columns in enumerate(zip(*(by_head(x @ w[n].T, heads) for n in "qkv"), strict=True)):
        q, k, v = columns
        q, k = (
            np.concatenate([turned.real, turned.imag, u[:, 2 * half :]], axis=1)
            for u in (q, k)
            for turned in ((u[:, :half] + 1j * u[:, half : 2 * half]) * turn,)
        )
        gamma = 1 - 2.0 ** (-5 - h)
        lag = t[:, None] - t
        scores = (q @ k.T) * np.where(lag >= 0, gamma ** np.maximum(lag, 0), 0.0)
        parts.append((scores @ v + gamma ** (t + 1)[:, None] * (q @ start[h])) / size**0.5)
    return gated_output(w, parts, x)


def gla(w: Weights, x: Array, start: Array) -> Array:
    """Yang et al. 2024 (arXiv:2312.06635), eq. 4."""
    heads, size = start.shape[:2]
    alpha = sigmoid(x @ w["low"].T @ w["alpha"].T + w["bias_alpha"]) ** (1 / 16)
    q, k, v = (by_head(x @ w[name].T, heads) for name in "qkv")
    parts = [
        unrolled(q[h] / size**0.5, k[h], v[h], [np.diag(a) for a in decay], start[h])
        for h, decay in enumerate(by_head(alpha, heads))
    ]
    return gated_output(w, parts, x)


def gated_output(w: Weights, parts: list[Array], x: Array) -> Array:
    normed = np.concatenate([rms(o) for o in parts], axis=1) * w["norm"]
    return (normed * silu(x @ w["gate"].T) if "gate" in w else normed) @ w["out"].T


def delta_rule(w: Weights, x: Array, start: Array) -> Array:
    """Yang et al. 2025 (arXiv:2412.06464), eq. 10; without α and gate Yang et al. 2024, eq. 2."""
    heads, size = start.shape[:2]
    taps = dict(zip("qkv", np.split(w["conv"], 3), strict=True))
    q, k, v = (by_head(silu(convolution(x @ w[n].T, taps[n])), heads) for n in "qkv")
    beta = sigmoid(x @ w["beta"].T)
    alpha = np.ones_like(beta)
    if "alpha" in w:
        alpha = np.exp(-np.exp(w["log_rate"]) * softplus(x @ w["alpha"].T + w["bias_alpha"]))
    parts = []
    for h in range(heads):
        key = unit(k[h])
        moves = [
            alpha[t, h] * (np.eye(size) - beta[t, h] * np.outer(key[t], key[t]))
            for t in range(len(x))
        ]
        parts.append(unrolled(unit(q[h]), beta[:, h : h + 1] * key, v[h], moves, start[h]))
    return gated_output(w, parts, x)


def mamba(w: Weights, x: Array, start: Array) -> Array:
    """Gu & Dao 2023, eq. 2: each channel is a sum of decaying exponentials of its past."""
    u = silu(convolution(x @ w["x"].T, w["conv"]))
    delta = softplus(u @ w["low_delta"].T @ w["delta"].T + w["bias_delta"])
    b, c, elapsed = u @ w["b"].T, u @ w["c"].T, delta.cumsum(0)
    rate = np.exp(w["log_rate"]).reshape(len(b[0]), -1)  # (N, D)
    y = np.zeros_like(u)
    for t in range(len(x)):
        for d in range(u.shape[1]):
            y[t, d] = c[t] @ (np.exp(-rate[:, d] * elapsed[t, d]) * start[0, :, d])
            for s in range(t + 1):
                kernel = np.exp(-rate[:, d] * (elapsed[t, d] - elapsed[s, d])) * b[s]
                y[t, d] += (c[t] @ kernel) * delta[s, d] * u[s, d]
    return ((y + w["skip"] * u) * silu(x @ w["gate"].T)) @ w["out"].T


def mamba2(w: Weights, x: Array, start: Array) -> Array:
    """Dao & Gu 2024, eq. 16: masked attention with the 1-semiseparable mask of the decays."""
    heads, states = start.shape[:2]
    projected = np.concatenate([x @ w[name].T for name in "xbc"], axis=1)
    mixed = silu(convolution(projected, w["conv"]))
    u, b, c = mixed[:, : -2 * states], mixed[:, -2 * states : -states], mixed[:, -states:]
    delta = softplus(x @ w["delta"].T + w["bias_delta"])
    parts = []
    for h, values in enumerate(by_head(u, heads)):
        log_a = -np.exp(w["log_rate"][h]) * delta[:, h]
        mask = np.array(
            [[log_a[s + 1 : t + 1].sum() for s in range(len(x))] for t in range(len(x))]
        )
        scores = np.tril(np.exp(mask) * (c @ b.T))
        o = scores @ (delta[:, h : h + 1] * values) + w["skip"][h] * values
        parts.append(o + np.exp(log_a.cumsum())[:, None] * (c @ start[h]))
    gated = np.concatenate(parts, axis=1) * silu(x @ w["gate"].T)
    return rms(gated) * w["norm"] @ w["out"].T


def mlstm(w: Weights, x: Array, start: Array) -> Array:
    """Beck et al. 2024, appendix A.3: the parallel form, without a stabiliser."""
    heads, size = start.shape[:2]
    taps = np.split(w["conv"], 2)
    q, k = (
        by_head(silu(convolution(x @ w[n].T, t)), heads) for n, t in zip("qk", taps, strict=True)
    )
    v = by_head(x @ w["v"].T, heads)
    i, f = np.exp(x @ w["i"].T + w["bias_i"]), sigmoid(x @ w["f"].T + w["bias_f"])
    parts = []
    for h in range(heads):
        kept = np.cumprod(f[:, h])
        weights = np.tril((q[h] @ k[h].T) / size**0.5 * kept[:, None] / kept * i[:, h])
        memory, normaliser = start[h, :, :-1], start[h, :, -1]
        total = weights.sum(1) + kept * (q[h] @ normaliser)
        read = weights @ v[h] + kept[:, None] * (q[h] @ memory)
        parts.append(read / np.maximum(np.abs(total), 1)[:, None])
    normed = np.concatenate([rms(o) for o in parts], axis=1) * w["norm"]
    return normed * sigmoid(x @ w["o"].T) @ w["out"].T


FORMS: dict[str, Callable[[Weights, Array, Array], Array]] = {
    "retention": retention,
    "gla": gla,
    "deltanet": delta_rule,
    "gated_deltanet": delta_rule,
    "mamba": mamba,
    "mamba2": mamba2,
    "mlstm": mlstm,
}
