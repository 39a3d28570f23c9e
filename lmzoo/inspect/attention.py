"""Attention maps: the attention weights of one sentence, by layer and head.

    weight[l, h, i, j] = α_ij of head h in layer l,   Σ_j α_ij = 1

The memory of an attention map is the prefix or the source. With the prefix, token i has been read
and attends to the tokens j <= i. With the source, token i is predicted and attends to the source
tokens j.

Source: S0 (DLM40), S3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.contract import LanguageModel
from lmzoo.inspect.posterior import number_tokens


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
