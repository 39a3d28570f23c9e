r"""The masked language model: an encoder that guesses words from both sides (BERT).

    x_t = e(s_t) + P_t        e(mask) in place of e(s_t) where the word is hidden
        √E e(s_t) + PE(t) with positions=add
    y   = D layers of attention over all tokens of the sentence, pads apart
    P(s_t | the rest) = emission(y_t)

Training selects 15 % of the words at random; of these 80 % are hidden, 10 % become a random
word and 10 % stay as they are. What is raised is the mean over the selected,

    m_t / 0.15 · log P(s_t | corrupted)        m_t ~ Bernoulli(0.15), 0 for all others,

which in expectation weighs every word once. `log_prob` draws nothing: it hides one word
after the other, log P(s_t | s_1..s_{t-1}, mask, s_{t+1}..). The sum of that over a sentence is a
pseudo-log-likelihood, no probability of the sentence: the number is a reconstruction, in nats
per hidden word as that of `span_corruption`, and comparable with no left-to-right model's.
`next_log_prob` hides the word after the prefix.

Devlin et al. 2019 (arXiv:1810.04805); Salazar et al. 2020 (arXiv:1910.14659) for the score; S3;
zoo.md 4.3.
"""

from typing import Annotated, Any, ClassVar, cast

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from lmzoo.blocks.attention import Attention
from lmzoo.blocks.attention_block import AttentionBlock, NormPlace
from lmzoo.blocks.embedding import Table
from lmzoo.blocks.feed_forward import Activation
from lmzoo.blocks.positions import PositionalEncoding, Positions
from lmzoo.config import config
from lmzoo.contract import LanguageModel, Score, Task, mask_unscored, model, scored_mask
from lmzoo.emissions.base import EMISSIONS
from lmzoo.errors import UserError
from lmzoo.functional.masking import mask_words
from lmzoo.functional.normalise import Norm
from lmzoo.search_space import Choice, FloatRange, IntRange
from lmzoo.types import Lengths, Mask, Tokens, TokenScores


@model(
    "masked_lm", family="objective", document="S3", source="Devlin et al. 2019 (arXiv:1810.04805)"
)
class MaskedLM(LanguageModel):
    """Transformer encoder that guesses hidden words from both sides (BERT)."""

    score: ClassVar[Score] = Score.RECONSTRUCTION
    causal: ClassVar[bool] = False

    @config
    class Config:
        """Sizes, the layers, and how words are hidden."""

        width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
        layers: Annotated[int, IntRange(1, 6)] = Field(2, ge=1)
        attention: Attention.Config = Attention.Config()
        norm: Annotated[NormPlace, Choice(("post", "pre"))] = NormPlace.POST
        activation: Activation = Activation.GELU
        positions: Positions = Positions.LEARNED
        emission: Annotated[Any, EMISSIONS] = "vector"
        dropout: Annotated[float, FloatRange(0.0, 0.3)] = Field(0.1, ge=0, lt=1)
        spread: float | None = Field(None, gt=0)
        """Standard deviation of the initial weights of tables, attention and feed-forward; None is
        1/√E for tables, U(fan-in) for maps. An emission draws its own."""
        select: Annotated[float, FloatRange(0.05, 0.5)] = Field(0.15, gt=0, le=1)
        """Share of the words that are guessed."""
        hide: float = Field(0.8, ge=0, le=1)
        """Share of these that are hidden ..."""
        swap: float = Field(0.1, ge=0, le=1)
        """... and that become a random word; the rest stays."""

        @model_validator(mode="after")
        def _shares(self) -> Any:
            if self.hide + self.swap > 1:
                raise UserError(
                    f"hide={self.hide} and swap={self.swap} are more than all; lower one of them"
                )
            return self

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        width, spread = config.width, config.spread
        self.embedding = Table(task.vocab, width, spread)
        self.mask = Table(1, width, spread)
        self.place = PositionalEncoding(config.positions, width, task.length, spread)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(
            AttentionBlock(
                width, config.attention, place=config.norm, activation=config.activation,
                dropout=config.dropout, spread=spread,
            )
            for _ in range(config.layers)
        )  # fmt: skip
        self.final_norm = nn.LayerNorm(width) if config.norm is NormPlace.PRE else None
        self.emission = EMISSIONS.build(config.emission, width, Norm.RMS)
        self.latent = self.emission.latent

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.emission.log_prob(
            self.guesses(tokens, lengths), tokens[:, 1:], self.embedding.weight
        )

    def objective(self, tokens: Tokens, lengths: Lengths, *given: Tensor) -> TokenScores:
        how = self.config
        masking = mask_words(
            tokens, scored_mask(tokens, lengths), self.task.vocab,
            select=how.select, hide=how.hide, swap=how.swap,
        )  # fmt: skip
        y = self.encode(masking.tokens, lengths, masking.hidden)[:, 1:]
        guessed = self.emission.log_prob(y, tokens[:, 1:], self.embedding.weight) / how.select
        return mask_unscored(tokens, lengths, guessed * masking.guessed[:, 1:])

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        tokens = nn.functional.pad(prefix, (0, 1))
        lengths = torch.full((len(tokens),), tokens.shape[1], device=tokens.device)
        y = self.encode(tokens, lengths, _only(tokens.shape[1] - 1, tokens))[:, -1]
        return self.emission.dense(y, self.embedding.weight)

    def posterior(self, tokens: Tokens, lengths: Lengths) -> Float[Tensor, "B K T-1"]:
        if not self.latent:
            return super().posterior(tokens, lengths)
        y = self.guesses(tokens, lengths)
        return torch.softmax(
            self.emission.joint(y, tokens[:, 1:], self.embedding.weight), dim=-1
        ).mT

    def guesses(self, tokens: Tokens, lengths: Lengths) -> Float[Tensor, "B T-1 E"]:
        """y_t with s_t alone hidden, for t = 1..T-1: as many passes."""
        each = (
            self.encode(tokens, lengths, _only(t, tokens))[:, t] for t in range(1, tokens.shape[1])
        )
        return torch.stack(list(each), dim=1)

    def encode(self, tokens: Tokens, lengths: Lengths, hidden: Mask) -> Float[Tensor, "B T E"]:
        """y of every position, each looking at all that are no pads."""
        x = torch.where(hidden[..., None], self.mask.weight[0], self.embedding(tokens))
        x = self.dropout(self.place(x))
        count = tokens.shape[1]
        there = torch.arange(count, device=tokens.device) < lengths[:, None]
        see = there[:, None].expand(-1, count, -1)
        for block in self.blocks:
            x = cast("AttentionBlock", block)(x, see=see)
        return x if self.final_norm is None else self.final_norm(x)


def _only(t: int, tokens: Tokens) -> Mask:
    """True at t, in every row."""
    return (torch.arange(tokens.shape[1], device=tokens.device) == t).expand_as(tokens)
