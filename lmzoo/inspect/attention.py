r"""What a model's attentions look at: how widely, from how far out, and along how many edges.

    H_i      = −Σ_j α_ij log α_ij        0 where one j takes all, as one always does where it
                                         is picked; log |{j seen by i}| where all are alike
    entropy, widest    the means of H_i and of that bound over sequences and queries i
    ‖q‖, ‖k‖           as they are compared, τ left out: 1 where they are normed
    edges              heads × queries × memory, seen or not, of one sequence: summed over
                       layers, layers × heads × T² of a Transformer
    seen               those of them that the mask leaves

If a model can change its attention by changing the norms of vectors, it will (S1).
S1; zoo.md 4.1.
"""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from lmzoo.blocks.attention import Attention
from lmzoo.inspect.hooks import Activity, AttentionCall


@dataclass(frozen=True)
class Head:
    """One head of one attention; entropies in nats."""

    layer: str
    head: int
    entropy: float
    widest: float
    query_norm: float
    key_norm: float


@dataclass(frozen=True)
class Edges:
    """Pairs of query and key of one sequence, over all heads."""

    layer: str
    edges: int
    seen: int


def heads(model: nn.Module, seen: Activity) -> list[Head]:
    """Every head of every attention that was asked."""
    found = []
    for layer, looks in seen.looks.items():
        attention = cast("Attention", model.get_submodule(layer))
        told = [_told(attention, look) for look in looks]
        means = [torch.cat(column, dim=1).mean(1).tolist() for column in zip(*told, strict=True)]
        found += [Head(layer, h, *facts) for h, facts in enumerate(zip(*means, strict=True))]
    return found


def edges(model: nn.Module, seen: Activity, sequences: int) -> list[Edges]:
    """Edges of every attention that was asked, given how many sequences there were."""
    found = []
    for layer, looks in seen.looks.items():
        attention = cast("Attention", model.get_submodule(layer))
        logits = [_logits(attention, look) for look in looks]
        total = sum(one.numel() for one in logits)
        open_ = sum(int((one > -torch.inf).sum()) for one in logits)
        found.append(Edges(layer, total // sequences, open_ // sequences))
    return found


def _logits(attention: Attention, look: AttentionCall) -> Tensor:
    return attention.compare(look.x, look.remembered[0], look.see)


def _told(attention: Attention, look: AttentionCall) -> tuple[Tensor, ...]:
    """(heads, n) of each: entropy, its bound, ‖q‖ and ‖k‖."""
    logits = _logits(attention, look)
    entropy = torch.special.entr(attention.weigh(logits)).sum(-1)
    visible = logits > -torch.inf
    q, k = attention.directions(look.x), look.remembered[0]
    every = (entropy, visible.sum(-1).log(), q.norm(dim=-1), k.norm(dim=-1))
    # (*N, heads, n) as (heads, all of them)
    return tuple(one.transpose(0, -2).flatten(1) for one in every)
