r"""Causal attention with memory: what weighs earlier positions besides q · k.

    l_ij = q_i · k_j / √d                                     i the query, j ≤ i the key
         + Σ_{j<s≤i} log f_s                                  `log_forget`: a forget gate (FoX)
    o_i  = Σ_j softmax_j( l_ij ) v_j
         = Σ_j e^{l_ij} / ( e^s + Σ_j' e^{l_ij'} ) v_j        `sink`: a logit s without a value
         = Σ_{j<i} σ(l_ij) Π_{j<s<i} (1 − σ(l_is)) v_j        `stick`: stick-breaking

The queries are the last positions of the keys.

Lin et al. 2025 (arXiv:2503.02130); Xiao et al. 2024 (arXiv:2309.17453) and Agarwal et al. 2025
(arXiv:2508.10925), for sinks; Tan et al. 2024 (arXiv:2410.17980); Su et al. 2021
(arXiv:2104.09864), for `rotate`.
"""

from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import logsigmoid, scaled_dot_product_attention

from lmzoo.functional.precision import single
from lmzoo.functional.vmapped import is_vmapped


def attend(
    q: Float[Tensor, "*N h Q d"],
    k: Float[Tensor, "*N h M d"],
    v: Float[Tensor, "*N h M d"],
    mask: Bool[Tensor, "Q M"],
    *,
    log_forget: Float[Tensor, "*N h M"] | None = None,
    sink: Float[Tensor, "h"] | None = None,
    stick: bool = False,
) -> Float[Tensor, "*N h Q d"]:
    """Return o of the last Q of M positions."""
    if log_forget is None and sink is None and not stick:
        return weighted_values(q, k, v, mask)
    size = q.shape[-1]
    logits = q @ k.mT / size**0.5
    if log_forget is not None:
        # log Π_{j<s≤i} f_s is a difference of two sums from the start.
        total = single(log_forget).cumsum(-1)
        rows = q.shape[-2]
        until_query = total[..., -rows:, None]
        until_key = total[..., None, :]
        logits = logits + until_query - until_key
    if stick:
        weights = _stick_breaking(single(logits), mask)
        return weights.to(v.dtype) @ v
    logits = logits.masked_fill(~mask, -torch.inf)
    if sink is None:
        weights = logits.softmax(-1)
    else:
        column = sink[:, None, None]
        column = column.expand_as(logits[..., :1])
        logits = torch.cat([logits, column], -1)
        weights = logits.softmax(-1)
        # The sink takes a share of the softmax and has no value.
        weights = weights[..., :-1]
    return weights.to(v.dtype) @ v


def _stick_breaking(
    logits: Float[Tensor, "*N Q M"], mask: Bool[Tensor, "Q M"]
) -> Float[Tensor, "*N Q M"]:
    """Return the weights; the position of the query has none."""
    rows, count = logits.shape[-2:]
    earlier = mask.tril(count - rows - 1)
    rest = logsigmoid(-logits)
    rest = rest.masked_fill(~earlier, 0.0)
    from_j = rest.flip(-1).cumsum(-1).flip(-1)
    later = from_j - rest  # Σ over s with j < s < i
    # Products of many factors below 1 underflow: sums of logarithms do not.
    log_weights = logsigmoid(logits) + later
    weights = log_weights.exp()
    return weights.masked_fill(~earlier, 0.0)


def weighted_values(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Return the values, weighted by torch's attention; `vmap` cannot map its fused kernels."""
    if not is_vmapped(q):
        return scaled_dot_product_attention(q, k, v, mask, dropout, scale=scale)
    with sdpa_kernel(SDPBackend.MATH):
        return scaled_dot_product_attention(q, k, v, mask, dropout, scale=scale)


def rotate(
    z: Float[Tensor, "*N t d"],
    first: int = 0,
) -> Float[Tensor, "*N t d"]:
    """Return R^t z of the positions t = first..first+t-1.

    The numbers 2i and 2i+1 turn together, by t 10000^(−2i/d) (Su et al. 2021, arXiv:2104.09864).
    """
    steps, size = z.shape[-2:]
    # In float64: a position times a frequency loses its fraction in float32.
    double = partial(torch.arange, dtype=torch.float64, device=z.device)
    position = double(first, first + steps)
    even = double(0, size, 2)
    base = 10000 ** (even / size)
    angle = position[:, None] / base
    cos = angle.cos().to(z.dtype)
    sin = angle.sin().to(z.dtype)
    a = z[..., ::2]
    b = z[..., 1::2]
    real = a * cos - b * sin
    imaginary = a * sin + b * cos
    pairs = torch.stack([real, imaginary], -1)
    return pairs.flatten(-2)


def causal_mask(
    count: int,
    device: torch.device | None = None,
    window: int = 0,
    *,
    last: int | None = None,
) -> Bool[Tensor, "rows {count}"]:
    """Return True where position i (row) attends to position j (column): i − window < j <= i.

    `window` 0 is all earlier positions. The rows are those of all `count` positions, or of the
    `last` ones only. D layers with a window read the last D (window − 1) + 1 positions.
    """
    j = torch.arange(count, device=device)
    rows = j
    if last is not None:
        rows = j[count - last :]
    back = rows[:, None] - j
    if window:
        return (back >= 0) & (back < window)
    return back >= 0
