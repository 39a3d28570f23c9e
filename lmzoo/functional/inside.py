r"""The inside algorithm and prefix probabilities, for grammars in Chomsky normal form.

    β[i, i+1](q) = leaves[i, q]                                           q in Q
    β[i, j](A)   = Σ_{k, B, C} rules[A, B, C] β[i, k](B) β[k, j](C)

The symbols are A nonterminals, then Q preterminals; B and C are any of the M = A + Q. A chart is
a list by width: `chart[w-1][:, i]` has log β of the span [i, i+w) for all M symbols (−∞ where
impossible).

Autograd would save every split of every span, n³/6 · M elements per sentence. Above `limit`
elements, spans are processed in chunks, and the backward pass computes their splits again.

    ψ[i, j](X) = P(X yields a string that begins with w_i .. w_{j-1})
    ψ[i, j](A) = Σ_BC rules[A, B, C] ( ψ[i, j](B) + Σ_k β[i, k](B) ψ[k, j](C) )

In the first summand B alone covers the prefix, over the same span. This is a linear system in the
nonterminals, solved once for all spans by the left-corner closure

    L[A, X] = Σ_C rules[A, X, C]        R = (I − L_N)^{-1}        X in N or Q
    ψ[i, i+1](A) = Σ_q (R L_Q)[A, q] leaves[i, q]
    ψ[i, j](A)   = Σ_A' R[A, A'] Σ_{k, B, C} rules[A', B, C] β[i, k](B) ψ[k, j](C)

The rows of L_N sum to less than one, so R exists. P(next word | prefix) is exact even if the
grammar's strings are infinite with positive probability.

Baker 1979; Lari & Young 1990; Jelinek & Lafferty 1991; Stolcke 1995 (arXiv:cmp-lg/9411029).
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lmzoo.functional.logspace import safe_log

Leaves = Float[Tensor, "B n Q"]
"""log P(w | q) of each word."""

Rules = Float[Tensor, "A M M"]
"""log P(A → B C)."""

Chart = list[Tensor]
"""By width: (B, n-w+1, M)."""

LIMIT = 1 << 24
"""The most elements in memory at once: 64 MB."""
FINITE_MIN = -1e30
"""Replaces −∞ where −∞ − (−∞) would give NaN."""


def inside(
    log_leaves: Leaves,
    log_rules: Rules,
    limit: int = LIMIT,
) -> Chart:
    """Return the chart of all spans."""
    nonterminals = len(log_rules)
    chart = [pad(log_leaves, (nonterminals, 0))]

    def compute(width: int, spans: slice) -> Tensor:
        left, right = splits(chart, chart, width, spans)
        return log_bilinear(left, right, log_rules)

    shape = log_leaves.shape
    _, words, classes = shape
    # From narrow spans to wide ones, which are made of them.
    for width in range(2, words + 1):
        spans = compute_spans(compute, width, shape, log_rules.shape[1], limit)
        chart.append(pad(spans, (0, classes)))
    return chart


def log_bilinear(
    left: Float[Tensor, "*N K M"],
    right: Float[Tensor, "*N K M"],
    rules: Rules,
) -> Float[Tensor, "*N A"]:
    """Return log Σ_kbc exp(rules_abc + left_kb + right_kc), over the K splits of a span."""
    # Splits differ by hundreds of nats, symbols within a split by few. So each split has its own
    # scale. Terms more than 87 nats below the best are dropped.
    left_scale = _finite_peak(left)
    right_scale = _finite_peak(right)
    splits = left_scale + right_scale
    top = splits.amax(-2, keepdim=True)
    weight = splits - top
    left = (left - left_scale + weight).exp()
    right = (right - right_scale).exp()
    pairs = left.mT @ right
    products = rules.exp().flatten(1)
    total = pairs.flatten(-2) @ products.T
    return safe_log(total) + top[..., 0]


def _finite_peak(scores: Tensor) -> Tensor:
    """Return the largest score of each split, which is finite and a constant."""
    peak = scores.detach().amax(-1, keepdim=True)
    # A split without a tree has −∞, whose difference with itself is no number.
    return peak.clamp_min(FINITE_MIN)


def initial_spans(chart: Chart) -> Float[Tensor, "B n M"]:
    """Return the spans [0, w) for w = 1..n."""
    return torch.cat([spans[:, :1] for spans in chart], 1)


def splits(
    lefts: Sequence[Tensor],
    rights: Sequence[Tensor],
    width: int,
    spans: slice,
) -> tuple[Float[Tensor, "B s K M"], Float[Tensor, "B s K M"]]:
    """Return the left and right parts of all K splits of the given spans of one width."""
    first = spans.start
    stop = spans.stop
    left = []
    right = []
    for w in range(1, width):  # the width of the left part
        narrow = lefts[w - 1]
        left.append(narrow[:, first:stop])
        # The right part begins where the left one ends.
        rest = rights[width - w - 1]
        right.append(rest[:, first + w : stop + w])
    return torch.stack(left, 2), torch.stack(right, 2)


def compute_spans(
    compute: Callable[[int, slice], Tensor],
    width: int,
    leaves: torch.Size,
    symbols: int,
    limit: int,
) -> Float[Tensor, "B s A"]:
    """Compute all spans of one width, in checkpointed chunks if a chart exceeds the limit."""
    batch, words, _ = leaves
    count = words - width + 1
    rows = batch * symbols
    per_span = rows * max(width - 1, symbols)
    # All splits of all spans, n³/6, and what the product with the rules needs.
    total = rows * words**2 * (words + 3 * symbols) // 6
    if total <= limit:
        return compute(width, slice(0, count))
    size = max(1, limit // per_span)
    # Nothing is drawn, so that no state of a generator has to be kept.
    checkpointed = partial(
        checkpoint,
        compute,
        use_reentrant=False,
        preserve_rng_state=False,
    )
    parts = []
    for first in range(0, count, size):
        stop = min(first + size, count)
        chunk = slice(first, stop)
        parts.append(checkpointed(width, chunk))
    return torch.cat(parts, 1)


def pad(x: Tensor, sides: tuple[int, int]) -> Tensor:
    """Pad the last axis to all M symbols, with −∞."""
    return torch.nn.functional.pad(x, sides, value=-torch.inf)


def left_corner_closure(
    log_rules: Rules,
) -> tuple[Float[Tensor, "A A"], Float[Tensor, "A Q"]]:
    """Return R and R L_Q; the inverse is computed in double precision."""
    nonterminals = len(log_rules)
    rules = log_rules.double().exp()
    corner = rules.sum(-1)
    labels = corner[:, :nonterminals]
    classes = corner[:, nonterminals:]
    eye = torch.eye(nonterminals, dtype=corner.dtype, device=corner.device)
    # `inv` would wait for the device to say whether the inverse exists.
    closure = torch.linalg.inv_ex(eye - labels).inverse
    leaf = closure @ classes
    return closure.to(log_rules), leaf.to(log_rules)


def prefix_chart(
    log_leaves: Leaves,
    log_rules: Rules,
    chart: Chart,
    limit: int = LIMIT,
) -> Chart:
    """Return log ψ of all spans, in the layout of the inside chart."""
    closure, leaf = left_corner_closure(log_rules)
    shape = log_leaves.shape
    _, words, classes = shape
    labels = _log_linear(log_leaves, leaf)
    prefix = [torch.cat([labels, log_leaves], -1)]

    def compute(width: int, spans: slice) -> Tensor:
        left, right = splits(chart, prefix, width, spans)
        return log_bilinear(left, right, log_rules)

    for width in range(2, words + 1):
        spans = compute_spans(compute, width, shape, log_rules.shape[1], limit)
        closed = _log_linear(spans, closure)
        prefix.append(pad(closed, (0, classes)))
    return prefix


def next_class_log_prob(
    log_rules: Rules,
    chart: Chart,
    like: Leaves,
) -> Float[Tensor, "B Q M"]:
    """Return log P(X yields a string that begins with w_1..w_n and a word of class q).

    This is ψ[0, n+1] with e_q as the last leaf: one column of the chart, computed from the last
    word to the first, for all classes at once.
    """
    closure, leaf = left_corner_closure(log_rules)
    batch, words, classes = like.shape
    # log of one-hot: 0 at the class, −∞ elsewhere.
    eye = torch.eye(classes, dtype=like.dtype, device=like.device)
    one_hot = eye.log().expand(batch, -1, -1)
    labels = _log_linear(one_hot, leaf)
    column = [torch.cat([labels, one_hot], -1)]
    for i in reversed(range(words)):
        spans = [chart[k - i - 1][:, i] for k in range(i + 1, words + 1)]
        stacked = torch.stack(spans, 1)
        left = stacked[:, None].expand(-1, classes, -1, -1)
        right = torch.stack(column, 2)
        span = log_bilinear(left, right, log_rules)
        closed = _log_linear(span, closure)
        column.insert(0, pad(closed, (0, classes)))
    return column[0]


def _log_linear(
    log_x: Float[Tensor, "*N I"], weights: Float[Tensor, "J I"]
) -> Float[Tensor, "*N J"]:
    """Return log(W exp(log_x)) for a small W without near-zero rows."""
    top = log_x.detach().amax(-1, keepdim=True)
    weight = (log_x - top).exp()
    product = weight @ weights.T
    return safe_log(product) + top
