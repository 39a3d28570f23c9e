"""Models with another training objective than the likelihood."""

import math
from enum import StrEnum
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, pad

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import Choice, FloatRange, IntRange
from lmzoo.blocks.attention_block import Activation, NormPosition
from lmzoo.blocks.latent import EmbeddedModel
from lmzoo.blocks.layers import EmbeddingConfig, EmbeddingTable
from lmzoo.blocks.noise_distribution import NoiseDistribution
from lmzoo.blocks.positions import PositionalEncoding, Positions
from lmzoo.cells import stack
from lmzoo.cells.base import CELLS, CellChoice
from lmzoo.contract import DecodingState, LanguageModel, Score, Task, model
from lmzoo.emissions.base import EMISSIONS
from lmzoo.functional.normalise import Norm
from lmzoo.functional.parameters import Draw
from lmzoo.functional.sequence import full_lengths
from lmzoo.functional.token_scores import length_mask, mask_scores, of_tokens, scored_mask
from lmzoo.models.attention_model import TransformerConfig, transformer_layers
from lmzoo.types import Features, Lengths, Mask, Prefix, Tokens, TokenScores, Vectors

Select = Annotated[float, FloatRange(0.05, 0.5), Field(gt=0, le=1)]


class Masking(NamedTuple):
    """The input tokens, and which of them are hidden and predicted."""

    tokens: Tokens
    """The input, with random tokens where they were swapped."""
    hidden: Mask
    """Where the mask's vector replaces the token's."""
    predicted: Mask


def mask_tokens(
    tokens: Tokens,
    eligible: Mask,
    vocab: int,
    *,
    select: float,
    hide: float,
    swap: float,
) -> Masking:
    """Mask each eligible token independently, with torch's global generator.

        m_t    ~ Bernoulli(select)                                        predicted
        fate_t ~ hide: the mask   swap: a random token   else: unchanged  of the predicted tokens

    Devlin et al. 2019 (arXiv:1810.04805), 3.1 and A.1.
    """
    shape = tokens.shape
    device = tokens.device
    chance = torch.rand(shape, device=device)
    predicted = eligible & (chance < select)
    fate = torch.rand(shape, device=device)
    # One draw of fate decides: [0, hide) hides, [hide, hide + swap) swaps, the rest stays.
    swaps = (fate >= hide) & (fate < hide + swap)
    # From all tokens, as published: a swap may leave the token as it was.
    random = torch.randint(vocab, shape, device=device)
    return Masking(
        tokens=torch.where(predicted & swaps, random, tokens),
        hidden=predicted & (fate < hide),
        predicted=predicted,
    )


@model(
    "masked_lm",
    family="objective",
    document="S3",
    source="Devlin et al. 2019 (arXiv:1810.04805)",
)
class MaskedLM(LanguageModel):
    """Transformer encoder that predicts hidden tokens from both sides (BERT).

        x_t = e(s_t) + P_t        positions=learned; e(mask) replaces e(s_t) of a hidden token
        x_t = √E e(s_t) + PE(t)   positions=add
        y   = D attention layers over all tokens of the sentence except pads
        P(s_t | other tokens) = emission(y_t)

    x_t, y_t and e(s) are (E). Training selects each token with probability 0.15; of the selected
    tokens 80 % are hidden, 10 % are replaced by a random token and 10 % are kept. It maximises

        m_t / 0.15 · log P(s_t | corrupted)        m_t = 1 if s_t is selected, else 0

    which weighs every token once in expectation. `log_prob` is deterministic: it hides every token
    in turn and returns log P(s_t | s_1..s_{t-1}, mask, s_{t+1}..). The sum over a sentence is a
    pseudo-log-likelihood, not the probability of the sentence. The score is a reconstruction in
    nats per hidden token, like that of `span_corruption`; it is not comparable with the score of a
    left-to-right model. `next_log_prob` hides the token after the prefix.

    BERT also has a LayerNorm of the embeddings, a layer before the emission, embeddings of segments
    and a bias for each token, and predicts whether two sentences follow each other; this model
    reads one sentence and does not.

    Source: Devlin et al. 2019 (arXiv:1810.04805); Salazar et al. 2020 (arXiv:1910.14659, the
    score); S3.
    """

    score: ClassVar[Score] = Score.RECONSTRUCTION
    causal: ClassVar[bool] = False

    @config
    class Config(TransformerConfig):
        """Sizes, layers and masking."""

        activation: Activation = Activation.GELU
        positions: Positions = Positions.LEARNED
        spread: float | None = Field(None, gt=0)
        """Standard deviation of the initial weights of tables, attention and feed-forward layers.
        None is 1/√E for tables and U(fan-in) for linear maps. The emission is not affected."""
        select: Select = 0.15
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

    def __init__(self, config: Config, task: Task):
        super().__init__(config, task)
        width = config.width
        spread = config.spread
        self.embedding = EmbeddingTable(task.vocab, width, spread)
        # A vector of its own: no token of the vocabulary is "hidden".
        self.mask = EmbeddingTable(1, width, spread)
        length = task.length
        self.place = PositionalEncoding(config.positions, width, length, spread)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks: Any = transformer_layers(config, std=spread)
        # Post-norm blocks end with a norm of their own.
        if config.norm is NormPosition.PRE:
            self.final_norm = nn.LayerNorm(width)
        else:
            self.final_norm = None
        self.emission = EMISSIONS.build(config.emission, width, Norm.RMS)
        self.latent = self.emission.latent

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        y = self.masked_features(tokens, lengths)
        targets = tokens[:, 1:]
        return self.emission.log_prob(y, targets, self.embedding.weight)

    def objective(self, tokens: Tokens, lengths: Lengths, *sources: Tensor) -> TokenScores:
        c = self.config
        masking = mask_tokens(
            tokens,
            scored_mask(tokens, lengths),
            self.task.vocab,
            select=c.select,
            hide=c.hide,
            swap=c.swap,
        )
        y = self.encode(masking.tokens, lengths, masking.hidden)
        targets = tokens[:, 1:]
        scores = self.emission.log_prob(y[:, 1:], targets, self.embedding.weight)
        # Divided by the probability of selection, every token counts once in expectation.
        scores = scores / c.select * masking.predicted[:, 1:]
        return mask_scores(scores, lengths)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        # The token after the prefix is a pad that the mask hides.
        tokens = pad(prefix, (0, 1))
        last = prefix.shape[1]
        hidden = _only(last, tokens)
        y = self.encode(tokens, full_lengths(tokens), hidden)
        return self.emission.dense(y[:, -1], self.embedding.weight)

    def posterior(self, tokens: Tokens, lengths: Lengths) -> Float[Tensor, "B K T-1"]:
        if not self.latent:
            return super().posterior(tokens, lengths)
        y = self.masked_features(tokens, lengths)
        table = self.embedding.weight
        targets = tokens[:, 1:]
        joint = self.emission.joint(y, targets, table)
        # The components are the last axis of `joint`.
        return joint.softmax(-1).mT

    def masked_features(self, tokens: Tokens, lengths: Lengths) -> Float[Tensor, "B T-1 E"]:
        """Return y_t with only s_t hidden, for t = 1..T-1: one pass of the encoder per t."""
        # A loop, not one large batch: T encodings at once would take T times the memory.
        features = []
        for t in range(1, tokens.shape[1]):
            hidden = _only(t, tokens)
            y = self.encode(tokens, lengths, hidden)
            features.append(y[:, t])
        return torch.stack(features, 1)

    def encode(
        self,
        tokens: Tokens,
        lengths: Lengths,
        hidden: Mask,
    ) -> Float[Tensor, "B T E"]:
        """Return y of every position; every position attends to all tokens but pads."""
        embedded = self.embedding(tokens)
        vector = self.mask.weight[0]
        x = torch.where(hidden[..., None], vector, embedded)
        x = self.dropout(self.place(x))
        count = tokens.shape[1]
        real = length_mask(lengths, count)
        # Every position may read every real token: nothing is causal.
        mask = real[:, None].expand(-1, count, -1)
        for block in self.blocks:
            x = block(x, mask=mask)
        if self.final_norm is None:
            return x
        return self.final_norm(x)


def _only(t: int, tokens: Tokens) -> Mask:
    """Return the mask of the batch that is True at position t only."""
    count = tokens.shape[1]
    position = torch.arange(count, device=tokens.device)
    return (position == t).expand_as(tokens)


Contrast = StrEnum("Contrast", "NCE NEGATIVE_SAMPLING")
Negatives = Annotated[int, IntRange(1, 64, log=True), Field(ge=1)]
NoiseExponent = Annotated[float, Choice((0.0, 0.75, 1.0)), Field(ge=0)]
"""The training objective."""


def contrastive_objective(
    data: Float[Tensor, "*N"], noise: Float[Tensor, "*N k"]
) -> Float[Tensor, "*N"]:
    """Return log σ(s⁺) + Σ_{j=1..k} log σ(−s_j): words are classified as data or noise.

    With s = c − log k q and u = eᶜ, σ(s) = u / (k q + u). The expectation of the objective,

        J  = Σ_w [ p̃ log u/(kq + u) + k q log kq/(kq + u) ]
        ∇J = Σ_w kq/(kq + u) (p̃ − u) ∇c                            0 at u = p̃, for every k

    has a gradient that tends to that of the likelihood as k grows. Negative sampling takes s = c,
    as if k q were 1; its optimum is c = log p̃ / (k q).
    """
    rejected = logsigmoid(-noise).sum(-1)
    return logsigmoid(data) + rejected


@model(
    "nce",
    family="objective",
    document="S3",
    source="Gutmann & Hyvärinen 2010; Mnih & Teh 2012 (arXiv:1206.6426)",
)
class NoiseContrastive(EmbeddedModel):
    """Recurrent language model trained by noise-contrastive estimation.

        c(w, h)   = e(w) · h + b_w [− log Z]          h = cell over the prefix, h_0 = 1
        P(w | h)  = e^c(w, h) / Σ_v e^c(v, h)
        objective = log σ(s⁺) + Σ_{j=1..k} log σ(−s_j)        w_j ~ q

        contrast=nce                 s = c − log k q: the optimum has Σ_v e^c = 1
        contrast=negative_sampling   s = c: the optimum has P ∝ p̃ / q, which is the distribution p̃
                                     of the data only if the noise is uniform (noise_exponent=0)

    e(w) and h are (E), b and q are (V); s⁺ is the score of the data token, s_j that of noise token
    w_j. The score of the model is normalised over all tokens, so it is an exact log-likelihood for
    both objectives. The initial b is −log V, where Σ_v e^c is about 1; with learned_log_z=True the
    initial b is 0 and the initial log Z is log V.
    """

    @config
    class Config(EmbeddingConfig):
        """Embedding, cell, objective and noise."""

        cell: CellChoice = "lstm"
        contrast: Contrast = Contrast.NCE
        negatives: Negatives = 16
        """Number k of noise tokens per token of the data."""
        noise_exponent: NoiseExponent = 1.0
        """Exponent α of the noise distribution q(w) ∝ n_w^α."""
        learned_log_z: bool = False
        """Whether log Z is a learned parameter; otherwise it is 0."""

    log_z: nn.Parameter | None

    def __init__(self, config: Config, task: Task):
        super().__init__(config, task)
        self.cell = CELLS.build(config.cell, config.width, task.length)
        self.bias = nn.Parameter(torch.empty(task.vocab))
        log_z = None
        if config.learned_log_z:
            log_z = nn.Parameter(torch.empty(()))
        self.register_parameter("log_z", log_z)
        self.noise = NoiseDistribution(task.vocab, config.noise_exponent)
        self.reset_parameters()

    def reset_parameters(self):
        """Set b and log Z such that Σ_v e^c is about 1."""
        log_vocab = math.log(self.task.vocab)
        bias = -log_vocab
        # Either b or log Z makes Σ_v e^c about 1 at the start, not both.
        if self.config.learned_log_z:
            bias = 0.0
        nn.init.constant_(self.bias, bias)
        if self.log_z is not None:
            nn.init.constant_(self.log_z, log_vocab)

    def redraw(self, name: str, draw: Draw):
        """Ignore named initialisers: b and log Z keep the values of `reset_parameters`."""

    @property
    def state_size(self) -> int | None:
        return self.cell.state_size

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        scores = self.unnormalised_scores(tokens[:, :-1])
        dense = scores.log_softmax(-1)
        return of_tokens(dense, tokens[:, 1:])

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        scores = self.unnormalised_scores(prefix)[:, -1]
        return scores.log_softmax(-1)

    def begin(self, batch: int, *sources: Tensor) -> DecodingState:
        start = self._start(batch)
        return stack.begin([self.cell], start[:, None])

    def advance(self, state: DecodingState, token: Tensor) -> tuple[Tensor, DecodingState]:
        x = self.embedding(token)
        h, state = stack.advance([self.cell], x, state)
        scores = self._vocabulary_scores(h[:, 0])
        return scores.log_softmax(-1), state

    def objective(self, tokens: Tokens, lengths: Lengths, *sources: Tensor) -> TokenScores:
        # An evaluation must not change the noise that the training draws from.
        if self.training:
            scored = scored_mask(tokens, lengths)
            self.noise.update(tokens, scored)
        data = tokens[:, 1:]
        h = self._hidden_states(tokens[:, :-1])
        k = self.config.negatives
        noise = self.noise.draw(data.shape + (k,))
        # The data token first, then its noise tokens: one product for all of them.
        both = torch.cat([data[..., None], noise], -1)
        products = self.embedding(both) @ h[..., None]
        biases = self._biases()[both]
        s = products.squeeze(-1) + biases
        if self.config.contrast is Contrast.NCE:
            log_q = self.noise.log_q(s)[both]
            # As published: what log k q does not explain is data.
            s = s - math.log(k) - log_q
        scores = contrastive_objective(s[..., 0], s[..., 1:])
        return mask_scores(scores, lengths)

    def report(
        self,
        tokens: Tokens,
        lengths: Lengths,
        *sources: Tensor,
    ) -> dict[str, float]:
        """Return the mean and standard deviation of log Σ_v e^c over the scored tokens."""
        scores = self.unnormalised_scores(tokens[:, :-1])
        scored = scored_mask(tokens, lengths)[:, 1:]
        log_z = scores.logsumexp(-1)[scored]
        return {
            "log Z": log_z.mean().item(),
            "spread of log Z": log_z.std(correction=0).item(),
        }

    def unnormalised_scores(self, tokens: Prefix) -> Float[Tensor, "B t V"]:
        """Return c(v, h) of every token v after each position."""
        h = self._hidden_states(tokens)
        return self._vocabulary_scores(h)

    def _vocabulary_scores(self, h: Vectors) -> Float[Tensor, "*N V"]:
        products = h @ self.table.T
        return products + self._biases()

    def _hidden_states(self, tokens: Tensor) -> Features:
        x = self.embedding(tokens)
        start = self._start(len(x))
        return self.cell.scan(x, start)

    def _start(self, batch: int) -> Float[Tensor, "B S"]:
        return self.bias.new_ones(batch, self.cell.start_size)

    def _biases(self) -> Float[Tensor, "V"]:
        if self.log_z is None:
            return self.bias
        return self.bias - self.log_z
