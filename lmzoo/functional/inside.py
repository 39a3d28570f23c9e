r"""The inside algorithm for grammars in Chomsky normal form.

    β[i, i+1](q) = leaves[i, q]                                           q in Q
    β[i, j](A)   = plus_{k, B, C} rules[A, B, C] times β[i, k](B) times β[k, j](C)

Symbols are numbered nonterminals first: a B or C is one of M = A + Q. A chart is a list
by width: chart[w-1][:, i] holds span [i, i+w) for all M symbols (zero where impossible).
Training would keep every split of every span, n³/6 · M numbers a sentence. Beyond `limit`
numbers, spans are taken a few at a time and their splits made again on the way back.

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
"""Numbers that may be held at once: 64 MB."""


def inside(
    leaves: Float[Tensor, "B n Q"],
    rules: Float[Tensor, "A M M"],
    semiring: Semiring,
    limit: int = LIMIT,
) -> Chart:
    """The chart of all spans."""
    labels, words = len(rules), leaves.shape[1]
    chart: Chart = [pad(leaves, (labels, 0), semiring.zero)]

    def sums(width: int, spans: slice) -> Tensor:
        left, right = splits(chart, chart, width, spans)
        return semiring.bilinear(left, right, rules)

    for width in range(2, words + 1):
        whole = over_spans(sums, width, leaves.shape, rules.shape[1], limit)
        chart.append(pad(whole, (0, leaves.shape[2]), semiring.zero))
    return chart


def from_first(chart: Chart) -> Float[Tensor, "B n M"]:
    """The spans [0, w) for w = 1..n."""
    return torch.cat([spans[:, :1] for spans in chart], dim=1)


def splits(
    lefts: Sequence[Tensor], rights: Sequence[Tensor], width: int, spans: slice
) -> tuple[Float[Tensor, "B s K M"], Float[Tensor, "B s K M"]]:
    """Both parts of every split of the chosen spans of this width."""
    first, stop = spans.start, spans.stop
    left = torch.stack([lefts[w - 1][:, first:stop] for w in range(1, width)], dim=2)
    right = torch.stack(
        [rights[width - w - 1][:, first + w : stop + w] for w in range(1, width)], dim=2
    )
    return left, right


def over_spans(
    sums: Callable[[int, slice], Tensor],
    width: int,
    leaves: torch.Size,
    symbols: int,
    limit: int,
) -> Float[Tensor, "B s A"]:
    """`sums` for all spans of this width, in pieces that respect the limit."""
    batch, words, _ = leaves
    spans = words - width + 1
    each = batch * symbols * max(width - 1, symbols)
    kept = batch * symbols * words**2 * (words + 3 * symbols) // 6
    if kept <= limit:
        return sums(width, slice(0, spans))
    piece = max(1, limit // each)
    cuts = [slice(i, min(i + piece, spans)) for i in range(0, spans, piece)]
    again = partial(checkpoint, sums, use_reentrant=False, preserve_rng_state=False)
    return torch.cat([again(width, cut) for cut in cuts], dim=1)


def pad(x: Tensor, sides: tuple[int, int], value: float) -> Tensor:
    """Fill the last axis up to all M symbols."""
    return torch.nn.functional.pad(x, sides, value=value)
