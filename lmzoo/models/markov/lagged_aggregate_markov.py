r"""Lagged aggregate Markov model: W lags choose the class, each with half the previous weight.

    P(z | s_<t)   = softmax_z( Σ_{j=1..W} 2^-j (A_j c_j + a_j) )      c_j = N(e(s_{t-j}))
    P(v | z)      = softmax_v( exp(g_z) · Emb N(k_z) )                words = tied
    P(v | z)      = softmax_v( F_z )                                  words = free

c_j and k_z are (E), A_j is (K, E), g is (K), F is (K, V), Emb is (V, E). The context before
`<start>` is a constant vector that is not normalised: 1, or 1/√E. The S0 code of DLM22 divides by
the standard deviation over time (norm=time_std), which leaks the future.

Source: S0 (DLM20 with W = 4; DLM21: free words; DLM24: with g; DLM22: with g and N = rms).
"""

from enum import StrEnum
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.base.registry import preset
from lmzoo.base.search_space import IntRange
from lmzoo.blocks.config import ComponentConfig
from lmzoo.blocks.latent import ComponentModel
from lmzoo.contract import Task, model
from lmzoo.emissions.components import Components, FreeComponents
from lmzoo.functional.normalise import Norm, normalise_sequence
from lmzoo.functional.sequence import previous_vectors

WordTable = StrEnum("WordTable", "TIED FREE")
"""How P(v | z) is parameterised: tied to the embeddings or a free table."""
Pad = StrEnum("Pad", "ONES UNIT")
"""The context vector before `<start>`: all 1, or all 1/√E (unit length)."""


@model(
    "lagged_aggregate_markov", aliases=("DLM20",), family="latent-markov", document="S0",
    source="S0",
)  # fmt: skip
class LaggedAggregateMarkov(ComponentModel):
    """Aggregate Markov model whose K soft classes are chosen by the last W tokens."""

    @config
    class Config(ComponentConfig):
        """Embedding, classes, lags, word table and normaliser."""

        window: Annotated[int, IntRange(1, 8)] = Field(4, ge=1)
        """Number W of lags."""
        words: WordTable = WordTable.TIED
        scaled: bool = False
        """Whether each component has a learned log scale g_z."""
        norm: Norm = Norm.NONE
        """Normaliser N of token and component vectors."""
        pad: Pad = Pad.ONES

        def __post_init__(self) -> None:
            if self.words is WordTable.FREE and self.scaled:
                raise UserError("scaled=True with words=free: a free table has no scales; drop one")

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        width, count = config.width, config.components
        self.context_length = None if config.norm.over_time else config.window
        self.lags = nn.ModuleList(nn.Linear(width, count) for _ in range(config.window))
        if config.words is WordTable.FREE:
            self.words = FreeComponents(count, task.vocab)
        else:
            self.words = Components(count, width, config.norm, scaled=config.scaled)

    @property
    def leaks(self) -> str:
        return self.config.norm.leak

    def log_weights(self, tokens: Tensor) -> Tensor:
        x = normalise_sequence(self.embedding(tokens), self.config.norm)
        pad = 1.0 if self.config.pad is Pad.ONES else self.config.width**-0.5
        context = previous_vectors(x, self.config.window, pad=pad)
        terms = [lag(context[:, :, j]) / 2 ** (j + 1) for j, lag in enumerate(self.lags)]
        return torch.log_softmax(torch.stack(terms).sum(0), dim=-1)


def _row(name: str, alias: str, fields: dict[str, object], summary: str) -> None:
    preset(
        name, model="lagged_aggregate_markov", fields=fields, aliases=(alias,),
        family="latent-markov", score="exact", document="S0", source="S0", summary=summary,
    )  # fmt: skip


_row(
    "lagged_aggregate_markov_free", "DLM21", {"words": "free"},
    "Lagged aggregate Markov model with a free word table per component.",
)  # fmt: skip
_row(
    "lagged_aggregate_markov_scaled", "DLM24", {"scaled": True},
    "Lagged aggregate Markov model with a learned scale per component.",
)  # fmt: skip
_row(
    "lagged_aggregate_markov_sphere", "DLM22",
    {"scaled": True, "norm": "rms", "pad": "unit"},
    "Lagged aggregate Markov model with normalised token and component vectors.",
)  # fmt: skip
