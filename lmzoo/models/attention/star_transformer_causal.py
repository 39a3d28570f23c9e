r"""The Star-Transformer as a language model: neighbours, and one relay per prefix.

    h^0_i = e_i                              r^0_i = mean_{j<=i} e_j
    h_i ← LN ReLU MHA( h_i ; [h_{i-1}, h_i, e_i, r_i] )          satellites
    r_i ← LN ReLU MHA( r_i ; [r_i, h_0 .. h_i] )                 relay of the prefix
    P(s_{i+1} | s_<=i) = emission(h^D_i)

The original has h_{i+1}, closes the ring and shares one relay, all of which see the future.
The last layer updates no relay, for nothing would read it. Without relays D layers see
exactly D + 1 tokens. The causal form is this zoo's.

Guo et al. 2019 (arXiv:1902.09113); S1; zoo.md 4.1.
"""

from typing import NamedTuple, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lmzoo.blocks.attention import Attention, Remembered, causal_mask
from lmzoo.config import config
from lmzoo.contract import Task, model
from lmzoo.models.attention.base import AttentionConfig, AttentionModel


class Update(nn.Module):
    """LN ReLU MHA: how satellites and relays change."""

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__()
        self.attention = Attention(
            config.attention, config.width, dropout=config.dropout, spread=config.spread
        )
        self.norm = nn.LayerNorm(config.width)

    def forward(
        self,
        x: Float[Tensor, "*N Q E"],
        memory: Float[Tensor, "*N M E"],
        see: Bool[Tensor, "*S Q M"] | None = None,
    ) -> Float[Tensor, "*N Q E"]:
        return self.look(x, self.attention.remember(memory), see)

    def look(
        self,
        x: Float[Tensor, "*N Q E"],
        remembered: Remembered,
        see: Bool[Tensor, "*S Q M"] | None = None,
    ) -> Float[Tensor, "*N Q E"]:
        """The same, where keys and values are known."""
        return self.norm(torch.relu(self.attention.look(x, remembered, see)))


class Past(NamedTuple):
    """What the next token needs to know of those before it."""

    total: Float[Tensor, "B 1 E"]
    """Σ e_j."""
    left: tuple[Float[Tensor, "B 1 E"], ...]
    """The last token's satellite below every layer."""
    seen: tuple[Remembered, ...]
    """What each relay remembers of the satellites."""


@model(
    "star_transformer_causal",
    family="attention",
    document="S1",
    source="Guo et al. 2019 (arXiv:1902.09113); S1",
)
class StarTransformerCausal(AttentionModel):
    """Star-Transformer whose relay is that of the prefix."""

    @config
    class Config(AttentionConfig):
        """Whether there is more than neighbours."""

        relay: bool = True

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        relays = config.layers - 1 if config.relay else 0
        self.satellites = nn.ModuleList(Update(config) for _ in range(config.layers))
        self.relays = nn.ModuleList(Update(config) for _ in range(relays))

    def features(self, x: Float[Tensor, "B t E"]) -> Float[Tensor, "B t E"]:
        h, r = x, self.first_relay(x)
        for layer, satellite in enumerate(self.satellites):
            context, see = self.neighbours(h)
            context.append(x)
            if self.config.relay:
                context.append(r)
            see = nn.functional.pad(see, (0, len(context) - see.shape[-1]), value=True)
            h = satellite(h[:, :, None], torch.stack(context, dim=2), see)[:, :, 0]
            if layer < len(self.relays):
                itself = torch.eye(h.shape[1], dtype=torch.bool, device=h.device)
                see = torch.cat([itself, self.relay_sees(h)], dim=1)
                r = self.relays[layer](r, torch.cat([r, h], dim=1), see)
        return h

    def next_feature(
        self, x: Float[Tensor, "B 1 E"], place: int, before: Past | None
    ) -> tuple[Float[Tensor, "B 1 E"], Past]:
        total = x if before is None else before.total + x
        h, r, left, seen = x, total / (place + 1), [], []
        for layer, satellite in enumerate(self.satellites):
            context = [] if before is None else [before.left[layer]]
            context += [h, x, r] if self.config.relay else [h, x]
            left.append(h)
            h = satellite(h, torch.cat(context, dim=1))
            if layer < len(self.relays):
                relay = cast("Update", self.relays[layer])
                known = None if before is None else before.seen[layer]
                seen.append(relay.attention.remember(h, known))
                r = relay.look(r, relay.attention.remember(r, seen[-1]))
        return h, Past(total, tuple(left), tuple(seen))

    def first_relay(self, x: Float[Tensor, "B t E"]) -> Float[Tensor, "B t E"]:
        """The mean of the prefix."""
        count = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)
        return x.cumsum(1) / count[:, None]

    def neighbours(self, h: Float[Tensor, "B t E"]) -> tuple[list[Tensor], Bool[Tensor, "t 1 c"]]:
        """[h_{i-1}, h_i], and which of them there are: the first token has no left neighbour."""
        left = nn.functional.pad(h[:, :-1], (0, 0, 1, 0))
        there = torch.ones(h.shape[1], 1, 2, dtype=torch.bool, device=h.device)
        there[0, 0, 0] = False
        return [left, h], there

    def relay_sees(self, h: Float[Tensor, "B t E"]) -> Bool[Tensor, "t t"]:
        """The satellites of the prefix."""
        return causal_mask(h.shape[1], h.device)
