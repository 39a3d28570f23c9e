r"""The inside algorithm for grammars in Chomsky normal form.

    β[i, i+1](q) = leaves[i, q]                                           q in Q
    β[i, j](A)   = plus_{k, B, C} rules[A, B, C] times β[i, k](B) times β[k, j](C)

The symbols are A nonterminals, then Q preterminals; B and C are any of the M = A + Q. A chart is
a list by width: `chart[w-1][:, i]` is the span [i, i+w) for all M symbols (zero where impossible).

Autograd would save every split of every span, n³/6 · M elements per sentence. Above `limit`
elements, spans are processed in chunks, and the backward pass computes their splits again.

Baker 1979; Lari & Young 1990.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lmzoo.functional.semiring import Semiring

Chart = list[Tensor]
"""By width: (B, n-w+1, M)."""

LIMIT = 1 << 24
"""The most elements in memory at once: 64 MB."""


def inside(
    leaves: Float[Tensor, "B n Q"],
    rules: Float[Tensor, "A M M"],
    semiring: Semiring,
    limit: int = LIMIT,
) -> Chart:
    """Return the chart of all spans."""
    nonterminals, words = len(rules), leaves.shape[1]
    chart: Chart = [pad(leaves, (nonterminals, 0), semiring.zero)]

    def compute(width: int, spans: slice) -> Tensor:
        left, right = splits(chart, chart, width, spans)
        return semiring.bilinear(left, right, rules)

    for width in range(2, words + 1):
        spans = compute_spans(compute, width, leaves.shape, rules.shape[1], limit)
        chart.append(pad(spans, (0, leaves.shape[2]), semiring.zero))
    return chart


def initial_spans(chart: Chart) -> Float[Tensor, "B n M"]:
    """Return the spans [0, w) for w = 1..n."""
    return torch.cat([spans[:, :1] for spans in chart], dim=1)


def splits(
    lefts: Sequence[Tensor], rights: Sequence[Tensor], width: int, spans: slice
) -> tuple[Float[Tensor, "B s K M"], Float[Tensor, "B s K M"]]:
    """Return the left and right parts of all K splits of the given spans of one width."""
    first, stop = spans.start, spans.stop
    left = torch.stack([lefts[w - 1][:, first:stop] for w in range(1, width)], dim=2)
    right = torch.stack(
        [rights[width - w - 1][:, first + w : stop + w] for w in range(1, width)], dim=2
    )
    return left, right


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
    per_span = batch * symbols * max(width - 1, symbols)
    total = batch * symbols * words**2 * (words + 3 * symbols) // 6
    if total <= limit:
        return compute(width, slice(0, count))
    size = max(1, limit // per_span)
    chunks = [slice(i, min(i + size, count)) for i in range(0, count, size)]
    checkpointed = partial(checkpoint, compute, use_reentrant=False, preserve_rng_state=False)
    return torch.cat([checkpointed(width, chunk) for chunk in chunks], dim=1)


def pad(x: Tensor, sides: tuple[int, int], value: float) -> Tensor:
    """Pad the last axis to all M symbols."""
    return torch.nn.functional.pad(x, sides, value=value)
