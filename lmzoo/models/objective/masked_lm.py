r"""Masked language model (BERT): an encoder predicts hidden tokens from both sides.

    x_t = e(s_t) + P_t        positions=learned; e(mask) replaces e(s_t) of a hidden token
    x_t = √E e(s_t) + PE(t)   positions=add
    x_t = LN(x_t)             with embedding_norm
    y   = D attention layers over all tokens of the sentence except pads
    y_t = LN(GELU(W y_t + b)) with head
    P(s_t | other tokens) = emission(y_t)

x_t, y_t and e(s) are (E). Training selects each token with probability 0.15; of the selected tokens
80 % are hidden, 10 % are replaced by a random token and 10 % are kept. It maximises

    m_t / 0.15 · log P(s_t | corrupted)        m_t = 1 if s_t is selected, else 0

which weighs every token once in expectation. `log_prob` is deterministic: it hides every token in
turn and returns log P(s_t | s_1..s_{t-1}, mask, s_{t+1}..). The sum over a sentence is a
pseudo-log-likelihood, not the probability of the sentence. The score is a reconstruction in nats
per hidden token, like that of `span_corruption`; it is not comparable with the score of a
left-to-right model. `next_log_prob` hides the token after the prefix.

BERT has `embedding_norm` and `head`; both are off by default. It also has embeddings of segments,
a bias for each token of the vocabulary, and predicts whether two sentences follow each other; this
model reads one sentence and does not.

Source: Devlin et al. 2019 (arXiv:1810.04805); Salazar et al. 2020 (arXiv:1910.14659, the score);
S3.
"""

from typing import Annotated, Any, ClassVar, cast

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from lmzoo.blocks.attention import Attention
from lmzoo.blocks.attention_block import AttentionBlock, NormPosition
from lmzoo.blocks.feed_forward import Activation
from lmzoo.blocks.layers import EmbeddingTable
from lmzoo.blocks.positions import PositionalEncoding, Positions
from lmzoo.config import config
from lmzoo.contract import LanguageModel, Score, Task, model
from lmzoo.emissions.base import EMISSIONS
from lmzoo.errors import UserError
from lmzoo.functional.masking import mask_tokens
from lmzoo.functional.normalise import Norm
from lmzoo.functional.token_scores import mask_scores, scored_mask
from lmzoo.search_space import Choice, FloatRange, IntRange
from lmzoo.types import Lengths, Mask, Tokens, TokenScores


@model(
    "masked_lm", family="objective", document="S3", source="Devlin et al. 2019 (arXiv:1810.04805)",
)  # fmt: skip
class MaskedLM(LanguageModel):
    """Transformer encoder that predicts hidden tokens from both sides (BERT)."""

    score: ClassVar[Score] = Score.RECONSTRUCTION
    causal: ClassVar[bool] = False

    @config
    class Config:
        """Sizes, layers and masking."""

        width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
        """Embedding size E."""
        layers: Annotated[int, IntRange(1, 6)] = Field(2, ge=1)
        """Number D of layers."""
        attention: Attention.Config = Attention.Config()
        norm: Annotated[NormPosition, Choice(("post", "pre"))] = NormPosition.POST
        activation: Activation = Activation.GELU
        positions: Positions = Positions.LEARNED
        emission: Annotated[Any, EMISSIONS] = "vector"
        dropout: Annotated[float, FloatRange(0.0, 0.3)] = Field(0.1, ge=0, lt=1)
        embedding_norm: bool = Field(default=False, exclude_if=lambda on: not on)
        """A LayerNorm of the sum of embedding and position."""
        head: bool = Field(default=False, exclude_if=lambda on: not on)
        """A layer with GELU and LayerNorm before the emission."""
        spread: float | None = Field(None, gt=0)
        """Standard deviation of the initial weights of tables, attention and feed-forward layers.
        None is 1/√E for tables and U(fan-in) for linear maps. The emission is not affected."""
        select: Annotated[float, FloatRange(0.05, 0.5)] = Field(0.15, gt=0, le=1)
        """Probability that a token is selected, that is predicted in training."""
        hide: float = Field(0.8, ge=0, le=1)
        """Share of the selected tokens that are hidden."""
        swap: float = Field(0.1, ge=0, le=1)
        """Share of the selected tokens that are replaced by a random token. The rest is kept."""

        @model_validator(mode="after")
        def _check_shares(self) -> Any:
            if self.hide + self.swap > 1:
                raise UserError(
                    f"hide={self.hide} and swap={self.swap} exceed 1 together; lower one of them"
                )
            return self

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        width, spread = config.width, config.spread
        self.embedding = EmbeddingTable(task.vocab, width, spread)
        self.mask = EmbeddingTable(1, width, spread)
        self.place = PositionalEncoding(config.positions, width, task.length, spread)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(
            AttentionBlock(
                width, config.attention, norm_position=config.norm, activation=config.activation,
                dropout=config.dropout, std=spread,
            )
            for _ in range(config.layers)
        )  # fmt: skip
        self.final_norm = nn.LayerNorm(width) if config.norm is NormPosition.PRE else None
        self.embedding_norm = nn.LayerNorm(width) if config.embedding_norm else None
        head = (nn.Linear(width, width), nn.GELU("tanh"), nn.LayerNorm(width))
        self.head = nn.Sequential(*head) if config.head else None
        self.emission = EMISSIONS.build(config.emission, width, Norm.RMS)
        self.latent = self.emission.latent

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.emission.log_prob(
            self.masked_features(tokens, lengths), tokens[:, 1:], self.embedding.weight
        )

    def objective(self, tokens: Tokens, lengths: Lengths, *sources: Tensor) -> TokenScores:
        c = self.config
        masking = mask_tokens(
            tokens, scored_mask(tokens, lengths), self.task.vocab,
            select=c.select, hide=c.hide, swap=c.swap,
        )  # fmt: skip
        y = self.encode(masking.tokens, lengths, masking.hidden)[:, 1:]
        scores = self.emission.log_prob(y, tokens[:, 1:], self.embedding.weight) / c.select
        return mask_scores(scores * masking.predicted[:, 1:], lengths)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        tokens = nn.functional.pad(prefix, (0, 1))
        lengths = torch.full((len(tokens),), tokens.shape[1], device=tokens.device)
        y = self.encode(tokens, lengths, _only(tokens.shape[1] - 1, tokens))[:, -1]
        return self.emission.dense(y, self.embedding.weight)

    def posterior(self, tokens: Tokens, lengths: Lengths) -> Float[Tensor, "B K T-1"]:
        if not self.latent:
            return super().posterior(tokens, lengths)
        y = self.masked_features(tokens, lengths)
        return torch.softmax(
            self.emission.joint(y, tokens[:, 1:], self.embedding.weight), dim=-1
        ).mT

    def masked_features(self, tokens: Tokens, lengths: Lengths) -> Float[Tensor, "B T-1 E"]:
        """Return y_t with only s_t hidden, for t = 1..T-1: one pass of the encoder per t."""
        features = [
            self.encode(tokens, lengths, _only(t, tokens))[:, t] for t in range(1, tokens.shape[1])
        ]
        return torch.stack(features, dim=1)

    def encode(self, tokens: Tokens, lengths: Lengths, hidden: Mask) -> Float[Tensor, "B T E"]:
        """Return y of every position; every position attends to all tokens but pads."""
        x = torch.where(hidden[..., None], self.mask.weight[0], self.embedding(tokens))
        x = self.place(x)
        x = self.dropout(x if self.embedding_norm is None else self.embedding_norm(x))
        count = tokens.shape[1]
        real = torch.arange(count, device=tokens.device) < lengths[:, None]
        mask = real[:, None].expand(-1, count, -1)
        for block in self.blocks:
            x = cast("AttentionBlock", block)(x, mask=mask)
        x = x if self.final_norm is None else self.final_norm(x)
        return x if self.head is None else self.head(x)


def _only(t: int, tokens: Tokens) -> Mask:
    """Return the mask of the batch that is True at position t only."""
    return (torch.arange(tokens.shape[1], device=tokens.device) == t).expand_as(tokens)
