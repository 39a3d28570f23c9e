r"""Prefix probabilities: how likely a grammar's string begins with these words.

    ψ[i, j](X) = P(X yields a string that begins with w_i .. w_{j-1})
    ψ[i, j](A) = Σ_BC rules[A, B, C] ( ψ[i, j](B) + Σ_k β[i, k](B) ψ[k, j](C) )

The first summand lets B alone cover the prefix, at the same span: a linear system in the
nonterminals, solved once for all spans by the left-corner closure

    L[A, X] = Σ_C rules[A, X, C]        R = (I − L_N)^{-1}        X in N or Q
    ψ[i, i+1](A) = Σ_q (R L_Q)[A, q] leaves[i, q]
    ψ[i, j](A)   = Σ_A' R[A, A'] Σ_{k, B, C} rules[A', B, C] β[i, k](B) ψ[k, j](C)

Since L_N's rows sum to less than one, R exists, and P(next word | prefix) is exact even
where the grammar's strings are infinite with positive probability.

Jelinek & Lafferty 1991; Stolcke 1995 (arXiv:cmp-lg/9411029).
"""

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.functional.inside import LIMIT, Chart, over_spans, pad, splits
from lmzoo.functional.semiring import LOG, safe_log


def left_corner_closure(
    log_rules: Float[Tensor, "A M M"],
) -> tuple[Float[Tensor, "A A"], Float[Tensor, "A Q"]]:
    """R and R L_Q; the small inverse is taken in double precision."""
    labels = len(log_rules)
    corner = log_rules.double().exp().sum(-1)
    eye = torch.eye(labels, dtype=corner.dtype, device=corner.device)
    closure = torch.linalg.inv(eye - corner[:, :labels])
    leaf = closure @ corner[:, labels:]
    return closure.to(log_rules.dtype), leaf.to(log_rules.dtype)


def prefixes(
    log_leaves: Float[Tensor, "B n Q"],
    log_rules: Float[Tensor, "A M M"],
    chart: Chart,
    limit: int = LIMIT,
) -> Chart:
    """Log ψ of all spans, in the layout of the inside chart it is given."""
    closure, leaf = left_corner_closure(log_rules)
    words, classes = log_leaves.shape[1:]
    prefix: Chart = [torch.cat([log_linear(log_leaves, leaf), log_leaves], dim=-1)]

    def sums(width: int, spans: slice) -> Tensor:
        left, right = splits(chart, prefix, width, spans)
        return LOG.bilinear(left, right, log_rules)

    for width in range(2, words + 1):
        whole = over_spans(sums, width, log_leaves.shape, log_rules.shape[1], limit)
        prefix.append(pad(log_linear(whole, closure), (0, classes), LOG.zero))
    return prefix


def class_to_come(
    log_rules: Float[Tensor, "A M M"], chart: Chart, like: Float[Tensor, "B n Q"]
) -> Float[Tensor, "B Q M"]:
    """Log P(X yields w_1..w_n, then a word of class q): ψ[0, n+1] were its last leaf e_q.

    One column of the chart, from its last word back, for all classes at once.
    """
    closure, leaf = left_corner_closure(log_rules)
    batch, words, classes = like.shape
    which = torch.eye(classes, dtype=like.dtype, device=like.device).log().expand(batch, -1, -1)
    column = [torch.cat([log_linear(which, leaf), which], dim=-1)]
    for i in reversed(range(words)):
        left = torch.stack([chart[k - i - 1][:, i] for k in range(i + 1, words + 1)], dim=1)
        left = left[:, None].expand(-1, classes, -1, -1)
        whole = LOG.bilinear(left, torch.stack(column, dim=2), log_rules)
        column.insert(0, pad(log_linear(whole, closure), (0, classes), LOG.zero))
    return column[0]


def log_linear(
    log_x: Float[Tensor, "*N I"], weights: Float[Tensor, "J I"]
) -> Float[Tensor, "*N J"]:
    """Log(W exp(log_x)) for a matrix of few rows, none of which is nearly zero."""
    top = log_x.detach().amax(-1, keepdim=True)
    return safe_log((log_x - top).exp() @ weights.T) + top
