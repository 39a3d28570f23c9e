r"""Causal Star-Transformer: each token attends to its left neighbour and a relay of its prefix.

    h^0_i = e_i                              r^0_i = mean_{j<=i} e_j
    h_i ← LN ReLU MHA( h_i ; [h_{i-1}, h_i, e_i, r_i] )          satellites
    r_i ← LN ReLU MHA( r_i ; [r_i, h_0 .. h_i] )                 relay of the prefix
    P(s_{i+1} | s_<=i) = emission(h^D_i)

h_i (satellite), r_i (relay) and e_i (token vector) are (E); MHA(q ; M) is multi-head attention of
the query q to the memory M. The original also attends to h_{i+1}, closes the ring and shares one
relay, all of which read later tokens; the causal form is defined by this package. The last layer
updates no relay because nothing would read it. Without relays, D layers read exactly the last
D + 1 tokens.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad

from lmzoo.base.config import config
from lmzoo.blocks.attention import Attention, KeysAndValues
from lmzoo.contract import Task, model
from lmzoo.functional.precision import single
from lmzoo.functional.softmax_attention import causal_mask
from lmzoo.models.attention_model import AttentionConfig, AttentionModel
from lmzoo.types import AttentionMask, Features, Queries, StepFeatures


class Update(nn.Module):
    """LN ReLU MHA, the update of satellites and relays."""

    def __init__(self, config: AttentionConfig):
        super().__init__()
        self.attention = Attention(
            config.attention,
            config.width,
            dropout=config.dropout,
            std=config.spread,
        )
        self.norm = nn.LayerNorm(config.width)

    def forward(
        self,
        x: Queries,
        memory: Float[Tensor, "*N M E"] | KeysAndValues,
        mask: AttentionMask | None = None,
    ) -> Queries:
        y = self.attention(x, memory, mask)
        return self.norm(y.relu())


class StarCache(NamedTuple):
    """Decoding cache of the positions before the current one."""

    total: StepFeatures
    """Σ e_j."""
    left: tuple[StepFeatures, ...]
    """Satellite of the last token at the input of each layer."""
    satellites: tuple[KeysAndValues, ...]
    """Keys and values of the satellites for each relay update."""


@model(
    "star_transformer_causal",
    family="attention",
    document="S1",
    source="Guo et al. 2019 (arXiv:1902.09113); S1",
)
class StarTransformerCausal(AttentionModel):
    """Causal Star-Transformer: left neighbours and one relay per prefix."""

    @config
    class Config(AttentionConfig):
        """Attention model fields and the relay switch."""

        relay: bool = True
        """Whether satellites attend to a relay."""

    def __init__(self, config: Config, task: Task):
        super().__init__(config, task)
        relays = 0
        if config.relay:
            # The last layer updates no relay, because nothing would read it.
            relays = config.layers - 1
        satellites = [Update(config) for _ in range(config.layers)]
        self.satellites = nn.ModuleList(satellites)
        updates = [Update(config) for _ in range(relays)]
        self.relays: Any = nn.ModuleList(updates)

    def encode(self, x: Features) -> Features:
        count = x.shape[1]
        position = torch.arange(count, device=x.device)
        h = x
        # The relay of a prefix starts from the mean of its tokens; half precision would lose count.
        total = single(x).cumsum(1)
        mean = total / (position + 1)[:, None]
        r = mean.to(x.dtype)
        # The relay of i attends to itself and to the satellites of its prefix.
        itself = position[:, None] == position
        prefix = causal_mask(count, x.device)
        for layer, satellite in enumerate(self.satellites):
            left = pad(h[:, :-1], (0, 0, 1, 0))
            context = [left, h, x]
            if self.config.relay:
                context.append(r)
            # The first token has no left neighbour.
            number = torch.arange(len(context), device=x.device)
            mask = position[:, None, None] + number > 0
            memory = torch.stack(context, 2)
            # Each position is a query of its own with a memory of its own: (B, t, 1, E).
            query = h[:, :, None]
            h = satellite(query, memory, mask)[:, :, 0]
            if layer < len(self.relays):
                mask = torch.cat([itself, prefix], 1)
                memory = torch.cat([r, h], 1)
                r = self.relays[layer](r, memory, mask)
        return h

    def next_feature(
        self,
        x: StepFeatures,
        position: int,
        cache: StarCache | None,
    ) -> tuple[StepFeatures, StarCache]:
        if cache is None:
            total = single(x)
        else:
            total = cache.total + x
        mean = total / (position + 1)
        r = mean.to(x.dtype)
        h = x
        left = []
        satellites = []
        for layer, satellite in enumerate(self.satellites):
            context = [h, x]
            if cache is not None:
                context = [cache.left[layer], h, x]
            if self.config.relay:
                context.append(r)
            left.append(h)
            h = satellite(h, torch.cat(context, 1))
            if layer < len(self.relays):
                relay = self.relays[layer]
                earlier = None
                if cache is not None:
                    earlier = cache.satellites[layer]
                # Satellites are kept for the next positions; the relay belongs to this one only.
                kept = relay.attention.keys_and_values(h, earlier)
                satellites.append(kept)
                memory = relay.attention.keys_and_values(r, kept)
                r = relay(r, memory)
        return h, StarCache(total, tuple(left), tuple(satellites))
