"""Span corruption: an encoder reads a sequence with hidden spans, a decoder predicts the spans.

    s        <start> a b c d e        masked         b c . e
    source   <start> a X d Y          each span becomes one sentinel, X = V, Y = V + 1, ..
    target   X b c Y e                each span after its sentinel

The spans are drawn by a two-state Markov chain over positions, which needs no sequence length:

    P(m_1) = p    P(m_t | m_{t-1} = 1) = 1 − 1/μ    P(m_t | m_{t-1} = 0) = p / (μ (1 − p))

Every token is hidden with probability p, span lengths are geometric with mean μ, and at least one
visible token separates two spans. (T5 fixes the number of spans and of hidden tokens instead.)

Source: Raffel et al. 2020 (arXiv:1910.10683), 3.1.4 and 3.3.4; S3.
"""

from typing import Annotated, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import embedding, pad

from lmzoo.base.config import config
from lmzoo.base.search_space import FloatRange
from lmzoo.blocks.layers import EmbeddingTable
from lmzoo.blocks.positions import PositionalEncoding
from lmzoo.blocks.unique import needs_fixed_shapes
from lmzoo.contract import PAD, LanguageModel, Score, Task, model
from lmzoo.emissions.base import EMISSIONS
from lmzoo.functional.noise import fresh_uniforms, shared_uniforms
from lmzoo.functional.normalise import Norm
from lmzoo.functional.sequence import full_lengths
from lmzoo.functional.token_scores import length_mask
from lmzoo.models.attention_model import TransformerConfig
from lmzoo.models.seq2seq_transformer import EncoderDecoder
from lmzoo.types import Features, Lengths, Mask, Prefix, Tokens

Ids = Int[Tensor, "B N"]
"""Token ids, and sentinels from V upwards."""


def sample_spans(
    u: Float[Tensor, "*N t"],
    density: float,
    mean: float,
) -> Bool[Tensor, "*N t"]:
    """Return m of positions 1..t, drawn with the uniform numbers u."""
    first = u[..., 0] < density
    later = u[..., 1:]
    rest = _continue_chain(first, later, density, mean)
    return torch.stack([first] + rest, -1)


def sample_spans_around(
    at: int, u: Float[Tensor, "*N t"], density: float, mean: float
) -> Bool[Tensor, "*N t"]:
    """Return m of positions 1..t, drawn given that position `at` + 1 is hidden.

    A two-state chain is reversible, so it continues to the left with the same probabilities.
    """
    # The number u[at] is not used: its position is hidden for certain.
    hidden = torch.ones_like(u[..., at], dtype=torch.bool)
    backwards = u[..., :at].flip(-1)
    before = _continue_chain(hidden, backwards, density, mean)
    before.reverse()
    later = u[..., at + 1 :]
    after = _continue_chain(hidden, later, density, mean)
    return torch.stack(before + [hidden] + after, -1)


def _continue_chain(
    masked: Bool[Tensor, "*N"],
    u: Float[Tensor, "*N k"],
    density: float,
    mean: float,
) -> list[Bool[Tensor, "*N"]]:
    """Return the k states of the chain after the state `masked`."""
    # The share of hidden positions is p if as many spans begin as end.
    p_begin = density / (mean * (1 - density))
    p_stay = 1 - 1 / mean
    states = []
    for draw in u.unbind(-1):
        chance = torch.where(masked, p_stay, p_begin)
        masked = draw < chance
        states.append(masked)
    return states


def span_starts(masked: Mask) -> Mask:
    """Return the mask of the first token of each span."""
    padded = pad(masked, (1, 0))
    previous = padded[:, :-1]
    return masked & ~previous


def corrupt(
    tokens: Tokens,
    lengths: Lengths,
    masked: Mask,
    vocab: int,
) -> tuple[Ids, Lengths]:
    """Return the source sequence, pads last, and its lengths."""
    count = tokens.shape[1]
    first = span_starts(masked)
    # Of each span only its first token is kept, as a sentinel.
    shown = first | ~masked
    kept = shown & length_mask(lengths, count)
    sentinel = vocab + first.cumsum(1) - 1
    ids = torch.where(first, sentinel, tokens)
    place = kept.cumsum(1) - 1
    source = _scatter(ids, kept, place, count)
    return source, kept.sum(1)


def span_targets(tokens: Tokens, masked: Mask, vocab: int) -> tuple[Ids, Tokens]:
    """Return the target sequence, pads last, and the position of each hidden token in it."""
    first = span_starts(masked)
    # A span takes one place more than it has tokens: its sentinel stands before it.
    places = masked.long() + first.long()
    position = places.cumsum(1) - 1
    steps = tokens.shape[1]
    count = steps + steps // 2  # all hidden, or every second
    if not needs_fixed_shapes(tokens):
        last = int(position.max())
        count = max(2, last + 1)
    spans = _scatter(tokens, masked, position, count)
    sentinel = vocab + first.cumsum(1) - 1
    sentinels = _scatter(sentinel, first, position - 1, count)
    # The two fill different places, and PAD is 0.
    return spans + sentinels, position


def _scatter(
    ids: Ids,
    chosen: Mask,
    position: Tokens,
    count: int,
) -> Int[Tensor, "B n"]:
    """Return sequences of `count` ids: the chosen ids at their positions, pads elsewhere."""
    # One column more than needed takes what is not chosen.
    out = ids.new_full((len(ids), count + 1), PAD)
    position = torch.where(chosen, position, count)
    filled = out.scatter(1, position, ids)
    return filled[:, :count]


Density = Annotated[float, FloatRange(0.1, 0.5), Field(gt=0, le=0.5)]
MeanSpan = Annotated[float, FloatRange(1.0, 10.0), Field(ge=1)]


@model(
    "span_corruption",
    family="objective",
    document="S3",
    source="Raffel et al. 2020 (arXiv:1910.10683)",
)
class SpanCorruption(LanguageModel):
    """Transformer encoder-decoder that predicts hidden spans (T5).

        m = sample_spans(u)                             m_t = 1: s_t is hidden; `<start>` never is
        x = s with each hidden span as one sentinel     y = the spans, each after its sentinel
        log P(s_t | x, y_<t)    at hidden t             0 elsewhere

    x and y share one embedding table. Sentinels are inputs and are not
    scored, so the probabilities of all fillings of the spans sum to 1. (T5 also predicts where a
    span ends.)

    Training draws new spans for every batch and maximises m_t / p · log P(s_t | x, y_<t), which
    weighs every token once in expectation. Evaluation hides the tokens one by one, in `samples`
    spans drawn given m_t = 1 that are the same for all sequences, and averages log P(s_t | x,
    y_<t). The score is in nats per hidden token, like that of `masked_lm`. `next_log_prob` predicts
    the first token of one span after the prefix.

    Differences from T5: positions are added to the embeddings, where T5 adds a learned number for
    each distance and head to the attention; LayerNorm has a mean and a bias, where T5 divides by
    the root mean square. `modern_decoder` has such parts.
    """

    score: ClassVar[Score] = Score.RECONSTRUCTION
    causal: ClassVar[bool] = False
    """The encoder reads the tokens after a span, by design."""

    @config
    class Config(TransformerConfig):
        """Transformer fields and the distribution of spans."""

        density: Density = 0.15
        """Probability p that a token is hidden."""
        span: MeanSpan = 3.0
        """Mean length μ of a span."""
        samples: int = Field(1, ge=1)
        """Number of span draws per token and evaluation."""

    def __init__(self, config: Config, task: Task):
        super().__init__(config, task)
        width = config.width
        self.embedding = EmbeddingTable(task.vocab, width, None)
        # Two spans are at least one token apart: no sequence has more.
        spans = task.length // 2
        self.sentinels = EmbeddingTable(spans, width, None)
        places = 2 * task.length
        self.place = PositionalEncoding(config.positions, width, places, None)
        self.dropout = nn.Dropout(config.dropout)
        self.body = EncoderDecoder(config)
        self.emission = EMISSIONS.build(config.emission, width, Norm.RMS)

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        self.require_length(tokens.shape[1])
        c = self.config
        weight = self.embedding.weight
        count = tokens.shape[1] - 1
        if self.training:
            u = fresh_uniforms((len(tokens), count), weight)
            drawn = sample_spans(u, c.density, c.span)
            masked = self._span_mask(drawn, lengths)
            hidden = self.score_hidden(tokens, lengths, masked)
            return hidden / c.density
        # Always draw for the longest sequence, so that padding does not change the draws.
        longest = self.task.length - 1
        u = shared_uniforms((c.samples, longest, longest), weight)
        scores = []
        for at in range(count):
            samples = []
            draws = u[:, at, :count]
            for drawn in sample_spans_around(at, draws, c.density, c.span):
                masked = self._span_mask(drawn, lengths)
                hidden = self.score_hidden(tokens, lengths, masked)
                samples.append(hidden[:, at])
            stacked = torch.stack(samples)
            scores.append(stacked.mean(0))
        return torch.stack(scores, 1)

    def score_hidden(
        self, tokens: Tokens, lengths: Lengths, masked: Mask
    ) -> Float[Tensor, "B T-1"]:
        """Return log P(s_t | visible tokens, hidden tokens before t) at hidden t, else 0."""
        vocab = self.task.vocab
        source, source_lengths = corrupt(tokens, lengths, masked, vocab)
        target, position = span_targets(tokens, masked, vocab)
        y = self._outputs(target[:, :-1], source, source_lengths)
        # A sentinel has no row in the emission: its score is computed for token 0, and not used.
        words = torch.where(target < vocab, target, 0)
        scores = self.emission.log_prob(y, words[:, 1:], self.embedding.weight)
        index = (position - 1).clamp_min(0)
        scores = scores.gather(1, index[:, 1:])
        return torch.where(masked[:, 1:], scores, 0.0)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        self.require_length(prefix.shape[1] + 1)
        # A first sentinel after the prefix: what it hides is the next token.
        source = pad(prefix, (0, 1), value=self.task.vocab)
        sentinel = source[:, -1:]
        y = self._outputs(sentinel, source, full_lengths(source))
        return self.emission.dense(y[:, -1], self.embedding.weight)

    def _span_mask(self, drawn: Bool[Tensor, "*B t"], lengths: Lengths) -> Mask:
        """Return the hidden positions of each sequence, without `<start>` and pads."""
        # `drawn` begins with position 1; `<start>` is never hidden.
        masked = pad(drawn, (1, 0))
        count = masked.shape[-1]
        return masked & length_mask(lengths, count)

    def _outputs(self, target: Prefix, source: Ids, lengths: Lengths) -> Features:
        x = self._inputs(source)
        memory = self.body.encode(x, lengths)
        u = self._inputs(target)
        return self.body.decode(u, memory, lengths)

    def _inputs(self, ids: Ids) -> Float[Tensor, "B N E"]:
        # The ids of sentinels begin where the vocabulary ends.
        tables = [self.embedding.weight, self.sentinels.weight]
        x = embedding(ids, torch.cat(tables))
        x = self.place(x)
        return self.dropout(x)
