"""Attention that depends on distances."""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lmzoo.base.config import OptionalName
from lmzoo.blocks.attention import Attention, KeysAndValues, masked_logits
from lmzoo.blocks.layers import EmbeddingTable


class Relative(OptionalName):
    """Which parts of attention depend on the distance."""

    NONE = "none"
    KEYS = "keys"
    VALUES = "values"
    BOTH = "both"


class RelativeAttention(Attention):
    """Causal self-attention with learned vectors for distances up to `reach`.

        e_ij = τ q_i · (k_j + a_d)                 d = min(i − j, R)
        α_ij = softmax_j( e_ij )                   over the positions j <= i that the mask allows
        o_i  = W_o [ Σ_j α_ij (v_j + b_d) ] + b_o

    a_d and b_d, d = 0..R, are learned vectors of a head's size that all heads share. Distances
    beyond the reach R are not told apart. There is no absolute position: the same tokens give the
    same e_ij wherever they are. Parts: `keys` has no b, `values` has no a, `both` has both. The
    queries are the last positions of the memory.

    Shaw et al. 2018 (arXiv:1803.02155); the paper's table 3 cuts a and b.
    """

    def __init__(
        self,
        config: Attention.Config,
        width: int,
        *,
        parts: Relative,
        reach: int,
        dropout: float = 0.0,
        std: float | None = None,
        output_std: float | None = None,
    ) -> None:
        super().__init__(config, width, dropout=dropout, std=std, output_std=output_std)
        self.reach = reach
        size = self.query.out_features // config.heads

        def table(part: Relative) -> EmbeddingTable | None:
            return EmbeddingTable(reach + 1, size, std) if parts in (part, Relative.BOTH) else None

        self.key_distances, self.value_distances = table(Relative.KEYS), table(Relative.VALUES)

    def attend(
        self,
        x: Float[Tensor, "*N Q E"],
        cache: KeysAndValues,
        mask: Bool[Tensor, "*S Q M"] | None = None,
    ) -> Float[Tensor, "*N Q E"]:
        keys, values = cache
        weights = self.attention_weights(self.logits_for_keys(x, keys, mask))
        weights = nn.functional.dropout(weights, self.dropout if self.training else 0.0)
        o = weights @ values
        if self.value_distances is not None:
            b = self.value_distances(self.distances(weights))
            o = o + torch.einsum("...qm,qmd->...qd", weights, b)
        return self.output(o.transpose(-3, -2).flatten(-2))

    def logits_for_keys(
        self,
        x: Float[Tensor, "*N Q E"],
        keys: Float[Tensor, "*N heads M d"],
        mask: Bool[Tensor, "*S Q M"] | None = None,
    ) -> Float[Tensor, "*N heads Q M"]:
        q = self.scaled_queries(x)
        logits = masked_logits(q, keys, mask)
        if self.key_distances is None:
            return logits
        a = self.key_distances(self.distances(logits))
        return logits + torch.einsum("...qd,qmd->...qm", q, a)

    def distances(self, like: Float[Tensor, "*N Q M"]) -> Int[Tensor, "Q M"]:
        """Return min(i − j, R) of every query and key, 0 where a key is later than the query."""
        queries, keys = like.shape[-2:]
        j = torch.arange(keys, device=like.device)
        return (j[-queries:, None] - j).clamp(0, self.reach)


def attention_part(parts: Relative, reach: int) -> Any:
    """Return the class of an attention part, or a function that builds one with these fields."""
    if parts is Relative.NONE:
        return Attention

    def build(config: Attention.Config, width: int, **options: Any) -> RelativeAttention:
        return RelativeAttention(config, width, parts=parts, reach=reach, **options)

    return build
