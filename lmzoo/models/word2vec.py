"""word2vec: token vectors that predict neighbouring tokens."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

from lmzoo.base.config import config
from lmzoo.base.search_space import Choice, FloatRange, IntRange
from lmzoo.blocks.layers import EmbeddingConfig, EmbeddingTable, Window
from lmzoo.blocks.noise_distribution import NoiseDistribution
from lmzoo.contract import LanguageModel, Score, Task, model
from lmzoo.functional.token_scores import length_mask, mask_scores, scored_mask
from lmzoo.types import Embeddings, Lengths, Mask, Tokens, TokenScores, Vectors

Negatives = Annotated[int, IntRange(1, 16), Field(ge=0)]
NoiseExponent = Annotated[float, Choice((0.0, 0.75, 1.0)), Field(ge=0)]
Penalty = Annotated[float, FloatRange(1e-5, 1e-1, log=True), Field(ge=0)]


@config
class WordVectorConfig(EmbeddingConfig):
    """Embedding, window, noise and regularisation."""

    window: Window = 2
    """Largest distance of a context token, to either side."""
    negatives: Negatives = 5
    """Number R of noise tokens per token of the data."""
    noise_exponent: NoiseExponent = 0.75
    """Exponent α of the noise distribution q(w) ∝ n_w^α."""
    max_norm: float | None = Field(None, gt=0)
    """Longer vectors are scaled to this length; None is no limit."""
    l2: Penalty = 0.0
    """Weight of the squared lengths in the objective."""


@dataclass(frozen=True)
class Windows:
    """The centre tokens and their context tokens, with the vector tables; C = 2 · window."""

    words: Int[Tensor, "B N"]
    """Centre tokens s_t, t = 1..T-1."""
    contexts: Int[Tensor, "B N C"]
    """Context tokens."""
    mask: Bool[Tensor, "B N C"]
    """True where the context position holds a token."""
    w: Embeddings
    c: Embeddings

    def inner_products(self) -> Float[Tensor, "B N C"]:
        """Return c_x · w_y of every pair."""
        word = self.w[self.words][..., None]
        # All contexts of a word in one product.
        products = self.c[self.contexts] @ word
        return products.squeeze(-1)

    def sum(self, terms: Float[Tensor, "B N C"]) -> Float[Tensor, "B N"]:
        """Return the sums over the contexts that a word has."""
        return (terms * self.mask).sum(-1)


class WordVectors(LanguageModel):
    """Base class of word2vec models: a subclass defines the noise term.

        pairs       (x, y): centre token y = s_t, context token x = s_j, 0 < |j − t| <= window
        objective = Σ_x log σ(c_x · w_y) + noise(t) − l2/2 Σ_x (|c_x|² + |w_y|²)

    w (V, E) are the vectors of centre tokens, c (V, E) those of context tokens, `<start>` included.
    A subclass defines the noise term. Without noise (negatives=0) the objective is maximal for
    equal vectors of infinite length. `max_norm` limits the length of the vectors, `l2` penalises
    it.

    The model does not define the probability of a sequence. `log_prob` is the objective in
    expectation over the noise tokens; training samples them. `next_log_prob` is the softmax form,
    P(y | window before y) ∝ exp( Σ_x c_x · w_y ).

    Source: Mikolov et al. 2013 (arXiv:1301.3781, arXiv:1310.4546); S3.
    """

    score: ClassVar[Score] = Score.OBJECTIVE
    causal: ClassVar[bool] = False

    def __init__(self, config: Any, task: Task):
        super().__init__(config, task)
        vocab = task.vocab
        std = config.embedding_std
        self.word = EmbeddingTable(vocab, config.width, std)
        # A token is scored as a context by another vector than as a centre.
        self.context = EmbeddingTable(vocab, config.width, std)
        self.noise = NoiseDistribution(vocab, config.noise_exponent)

    @abstractmethod
    def noise_mask(self, tokens: Tokens, lengths: Lengths) -> Mask:
        """Return the mask of the tokens that the noise distribution counts."""

    @abstractmethod
    def sampled_noise_term(self, windows: Windows) -> Float[Tensor, "B N"]:
        """Return the noise term of each centre token, with sampled noise tokens."""

    @abstractmethod
    def expected_noise_term(
        self,
        windows: Windows,
        q: Float[Tensor, "V"],
    ) -> Float[Tensor, "B N"]:
        """Return the noise term of each centre token in expectation over the noise tokens."""

    def positive_term(self, windows: Windows) -> Float[Tensor, "B N"]:
        """Return Σ_x log σ(c_x · w_y) of each centre token."""
        accepted = logsigmoid(windows.inner_products())
        return windows.sum(accepted)

    def pool_contexts(self, contexts: Float[Tensor, "*N k E"]) -> Vectors:
        """Return the vector that the softmax form multiplies with every w."""
        return contexts.sum(-2)

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        windows = self.windows(tokens, lengths)
        # Scores need no sampling: the expectation over noise is exact.
        q = self.noise.log_q(windows.w).exp()
        noise = self.expected_noise_term(windows, q)
        return self._penalised_positive_term(windows) + noise

    def objective(self, tokens: Tokens, lengths: Lengths, *sources: Tensor) -> TokenScores:
        # An evaluation must not change the noise that the training draws from.
        if self.training:
            counted = self.noise_mask(tokens, lengths)
            self.noise.update(tokens, counted)
        windows = self.windows(tokens, lengths)
        positive = self._penalised_positive_term(windows)
        terms = positive + self.sampled_noise_term(windows)
        return mask_scores(terms, lengths)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        # The nearest tokens before stand for the whole window: those after are not known.
        nearest = prefix[:, -self.config.window :]
        contexts = self._clip_norms(self.context)[nearest]
        pooled = self.pool_contexts(contexts)
        # Against every word: here the centre is what is predicted.
        logits = pooled @ self._clip_norms(self.word).T
        return logits.log_softmax(-1)

    def windows(self, tokens: Tokens, lengths: Lengths) -> Windows:
        """Return the context window of each scored token."""
        k = self.config.window
        real = length_mask(lengths, tokens.shape[1])

        def neighbours(x: Tensor) -> Tensor:
            # k tokens to either side and the centre, which is left out below.
            padded = pad(x, (k, k))
            every = padded.unfold(1, 2 * k + 1, 1)
            window = every[:, 1:]  # `<start>` is no centre
            before = window[..., :k]
            after = window[..., k + 1 :]
            return torch.cat([before, after], -1)

        return Windows(
            words=tokens[:, 1:],
            contexts=neighbours(tokens),
            mask=neighbours(real),
            w=self._clip_norms(self.word),
            c=self._clip_norms(self.context),
        )

    def _penalised_positive_term(self, windows: Windows) -> Float[Tensor, "B N"]:
        if not self.config.l2:
            return self.positive_term(windows)
        w = windows.w.square().sum(-1)
        c = windows.c.square().sum(-1)
        of_word = w[windows.words]
        # Once for each pair: a word that occurs often pays often.
        squares = windows.sum(of_word[..., None] + c[windows.contexts])
        penalty = self.config.l2 / 2 * squares
        return self.positive_term(windows) - penalty

    def _clip_norms(self, table: EmbeddingTable) -> Embeddings:
        """Return the vectors of the table, scaled to at most `max_norm`."""
        limit = self.config.max_norm
        if limit is None:
            return table.weight
        norms = torch.linalg.vector_norm(table.weight, dim=-1, keepdim=True)
        # Shorter vectors are divided by the limit, too, and so stay as they are.
        factor = limit / norms.clamp_min(limit)
        return table.weight * factor


def expected_log_rejection(
    ids: Int[Tensor, "*N"],
    table: Embeddings,
    others: Embeddings,
    q: Float[Tensor, "V"],
) -> Float[Tensor, "*N"]:
    """Return Σ_v q_v log σ(−table_i · others_v) for each i of `ids`, computed per distinct i."""
    # A word that occurs often is compared with the vocabulary once.
    distinct, index = ids.unique(return_inverse=True)
    products = table[distinct] @ others.T
    rejected = logsigmoid(-products) @ q
    return rejected[index]


@model(
    "word2vec_skipgram",
    family="embedding",
    document="S3",
    source="Mikolov et al. 2013 (arXiv:1310.4546)",
)
class SkipGram(WordVectors):
    """word2vec skip-gram with negative sampling.

        objective = Σ_x [ log σ(c_x · w_y) + Σ_{j=1..R} log σ(−c_{x_j} · w_y) ]         x_j ~ q

    y = s_t is the centre token, x are the tokens of its window, w and c are (V, E); the full
    objective with its penalty is in `word2vec.py`. For vectors of full rank the optimum is

        c_x · w_y = log P(x, y) / (R q(x) P(y)) = PMI(x, y) − log R     the latter if q(x) = P(x)

    Source: Mikolov et al. 2013 (arXiv:1310.4546); Levy & Goldberg 2014; S3.
    """

    Config = WordVectorConfig

    def noise_mask(self, tokens: Tokens, lengths: Lengths) -> Mask:
        # `<start>` is a context token like any other.
        return length_mask(lengths, tokens.shape[1])

    def sampled_noise_term(self, windows: Windows) -> Tensor:
        shape = windows.contexts.shape + (self.config.negatives,)
        drawn = self.noise.draw(shape)
        word = windows.w[windows.words][:, :, None, :, None]
        scores = windows.c[drawn] @ word
        rejected = logsigmoid(-scores.squeeze(-1))
        return windows.sum(rejected.sum(-1))

    def expected_noise_term(self, windows: Windows, q: Tensor) -> Tensor:
        expected = expected_log_rejection(windows.words, windows.w, windows.c, q)
        contexts = windows.mask.sum(-1)
        return self.config.negatives * expected * contexts


@model(
    "word2vec_cbow",
    family="embedding",
    document="S3",
    source="Mikolov et al. 2013 (arXiv:1301.3781)",
)
class ContinuousBagOfWords(WordVectors):
    """word2vec CBOW with negative sampling.

        objective = Σ_x log σ(c_x · w_y) + Σ_{j=1..R} Σ_x log σ(−c_x · w_{y_j})         y_j ~ q

    y = s_t is the centre token, x are the tokens of its window, w and c are (V, E); the full
    objective with its penalty is in `word2vec.py`. With mean=True (Mikolov's form) one vector h,
    the mean of the c_x, replaces them:

        objective = log σ(h · w_y) + Σ_{j=1..R} log σ(−h · w_{y_j})
    """

    @config
    class Config(WordVectorConfig):
        """word2vec fields and the form of the context."""

        mean: bool = False
        """Whether the mean of the context vectors replaces the single vectors."""

    def noise_mask(self, tokens: Tokens, lengths: Lengths) -> Mask:
        return scored_mask(tokens, lengths)

    def pool_contexts(self, contexts: Tensor) -> Tensor:
        if self.config.mean:
            return contexts.mean(-2)
        return super().pool_contexts(contexts)

    def positive_term(self, windows: Windows) -> Tensor:
        if not self.config.mean:
            return super().positive_term(windows)
        word = windows.w[windows.words]
        products = _means(windows) * word
        return logsigmoid(products.sum(-1))

    def sampled_noise_term(self, windows: Windows) -> Tensor:
        shape = windows.words.shape + (self.config.negatives,)
        words = self.noise.draw(shape)
        drawn = windows.w[words]
        if self.config.mean:
            mean = _means(windows)
            scores = drawn @ mean[..., None]
            return logsigmoid(-scores.squeeze(-1)).sum(-1)
        scores = windows.c[windows.contexts] @ drawn.mT
        rejected = logsigmoid(-scores).sum(-1)
        return windows.sum(rejected)

    def expected_noise_term(self, windows: Windows, q: Tensor) -> Tensor:
        k = self.config.negatives
        if self.config.mean:
            scores = _means(windows) @ windows.w.T
            rejected = logsigmoid(-scores)
            return k * (rejected @ q)
        expected = expected_log_rejection(windows.contexts, windows.c, windows.w, q)
        return k * windows.sum(expected)


def _means(windows: Windows) -> Float[Tensor, "B N E"]:
    mask = windows.mask[..., None]
    present = windows.c[windows.contexts] * mask
    # At an edge a window has fewer tokens; without any it has the mean 0.
    count = mask.sum(-2).clamp_min(1)
    return present.sum(-2) / count
