r"""Statistics of attention: entropy, norms of queries and keys, and number of edges.

    H_i      = −Σ_j α_ij log α_ij        0 where one j has all the weight (always, for hard
                                         attention); log |{j visible to i}| where all are equal
    entropy, widest    means of H_i and of this upper bound over sequences and queries i
    ‖q‖, ‖k‖           norms in the dot product, without τ; 1 where they are normalised
    edges              heads × queries × memory of one sequence, visible or not; summed over
                       layers, layers × heads × T² for a Transformer
    visible            edges that the mask allows

A model that can change its attention through the norms of queries and keys learns to do so (S1).

Source: S1.

Attention maps: the attention weights of one sentence, by layer and head.

    weight[l, h, i, j] = α_ij of head h in layer l,   Σ_j α_ij = 1

The memory of an attention map is the prefix or the source. With the prefix, token i has been read
and attends to the tokens j <= i. With the source, token i is predicted and attends to the source
tokens j.

Source: S0 (DLM40), S3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.blocks.attention import Attention
from lmzoo.contract import LanguageModel
from lmzoo.inspect.hooks import Activity, AttentionCall
from lmzoo.inspect.posterior import number_tokens


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
    """Number of query-key pairs of one sequence, over all heads."""

    layer: str
    edges: int
    seen: int
    """Edges that the mask allows."""


def heads(model: nn.Module, activity: Activity) -> list[Head]:
    """Return the statistics of every head that was used."""
    found = []
    for layer, calls in activity.attention_calls.items():
        attention = cast("Attention", model.get_submodule(layer))
        columns = [_head_statistics(attention, call) for call in calls]
        means = [torch.cat(column, dim=1).mean(1).tolist() for column in zip(*columns, strict=True)]
        found += [Head(layer, h, *values) for h, values in enumerate(zip(*means, strict=True))]
    return found


def edges(model: nn.Module, activity: Activity, sequences: int) -> list[Edges]:
    """Return the edges of every attention that was used, for this number of sequences."""
    found = []
    for layer, calls in activity.attention_calls.items():
        attention = cast("Attention", model.get_submodule(layer))
        logits = [_logits(attention, call) for call in calls]
        total = sum(values.numel() for values in logits)
        visible = sum(int((values > -torch.inf).sum()) for values in logits)
        found.append(Edges(layer, total // sequences, visible // sequences))
    return found


def _logits(attention: Attention, call: AttentionCall) -> Tensor:
    return attention.logits_for_keys(call.x, call.cache[0], call.mask)


def _head_statistics(attention: Attention, call: AttentionCall) -> tuple[Tensor, ...]:
    """Return entropy, its upper bound, ‖q‖ and ‖k‖, each (heads, n)."""
    logits = _logits(attention, call)
    entropy = torch.special.entr(attention.attention_weights(logits)).sum(-1)
    visible = logits > -torch.inf
    q, k = attention.unscaled_queries(call.x), call.cache[0]
    statistics = (entropy, visible.sum(-1).log(), q.norm(dim=-1), k.norm(dim=-1))
    # from (*N, heads, n) to (heads, N · n)
    return tuple(values.transpose(0, -2).flatten(1) for values in statistics)


@runtime_checkable
class HasAttentionMaps(Protocol):
    """The two members that a model class needs for attention maps."""

    attention_memory: Literal["prefix", "source"]

    def attention_maps(
        self, tokens: Tensor, *source: Tensor
    ) -> Float[Tensor, "layers B heads i j"]: ...


@dataclass(frozen=True)
class AttentionMaps:
    """Attention weights of one sentence."""

    axes: tuple[str, str]
    """Names of the last two axes of `weight`."""
    looking: tuple[str, ...]
    """Tokens of axis i."""
    looked_at: tuple[str, ...]
    """Tokens of axis j."""
    weight: Float[Tensor, "layers heads i j"]


def has_attention_maps(model: LanguageModel) -> bool:
    """Return whether the model has attention maps over the tokens of a sentence."""
    return isinstance(model, HasAttentionMaps)


@torch.no_grad()
def attention_maps(
    model: LanguageModel,
    ids: Sequence[int],
    tokens: Sequence[str],
    sources: tuple[Tensor, ...] = (),
    source_tokens: Sequence[str] = (),
) -> AttentionMaps:
    """Compute the attention maps of one sentence, given as ids and as text, `<start>` first.

    A model that reads a source needs its ids (1, S), length (1) and text.
    """
    assert isinstance(model, HasAttentionMaps), "see `has_attention_maps`"
    was_training, prefix = model.training, torch.tensor([list(ids[:-1])])
    model.eval()
    if model.attention_memory == "source":
        axes = "predicted token", "source token"
        looking = number_tokens(tokens[1:], start=1)
        looked_at = number_tokens(source_tokens, start=1)
        weight = model.attention_maps(prefix, *sources)[:, 0]
    else:
        axes = "token that looks", "token looked at"
        looking = looked_at = number_tokens(tokens[:-1])
        weight = model.attention_maps(prefix)[:, 0]
    model.train(was_training)
    return AttentionMaps(axes, looking, looked_at, weight)
