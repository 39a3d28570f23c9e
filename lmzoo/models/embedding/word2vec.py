r"""word2vec: words that stand near one another get vectors that point the same way.

    pairs      (x, y): y = s_t a word, x = s_j near it, 0 < |j − t| <= window, `<start>` included
    raised     Σ_x log σ(c_x · w_y) + noise(t) − l2/2 Σ_x (|c_x|² + |w_y|²)

w are the vectors of words in the centre, c those of words around them; the subclasses say
what the noise is. Without it (negatives=0) all vectors equal and ever longer is the best
there is. `max_norm` bounds the length of every vector, `l2` makes length cost.

No sequence gets a probability. `log_prob` is the objective with the noise words summed out,
so it is a number and no draw; training draws them. `next_log_prob` is the softmax form,
P(y | the window before it) ∝ exp( Σ_x c_x · w_y ).

Mikolov et al. 2013 (arXiv:1301.3781, arXiv:1310.4546); S3; zoo.md 4.3.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

from lmzoo.blocks.embedding import Table
from lmzoo.blocks.noise_words import NoiseWords
from lmzoo.config import config
from lmzoo.contract import LanguageModel, Score, Task, mask_unscored
from lmzoo.search_space import Choice, FloatRange, IntRange
from lmzoo.types import Embeddings, Lengths, Mask, Tokens, TokenScores


@config
class WordVectorConfig:
    """Sizes, the noise, and what keeps vectors short."""

    width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
    window: Annotated[int, IntRange(1, 8)] = Field(2, ge=1)
    """How far a context may stand from its word, to either side."""
    negatives: Annotated[int, IntRange(1, 16)] = Field(5, ge=0)
    """R noise words to each word of the data."""
    noise_exponent: Annotated[float, Choice((0.0, 0.75, 1.0))] = Field(0.75, ge=0)
    """α of q(w) ∝ n_w^α."""
    max_norm: float | None = Field(None, gt=0)
    """Longer vectors are cut to this length; None lets them grow."""
    l2: Annotated[float, FloatRange(1e-5, 1e-1, log=True)] = Field(0.0, ge=0)
    embedding_std: float | None = Field(None, gt=0)


@dataclass(frozen=True)
class Windows:
    """The vectors that meet: those of each word, and of what stands around it."""

    words: Int[Tensor, "B N"]
    """s_t of t = 1..T-1."""
    near: Int[Tensor, "B N near"]
    real: Bool[Tensor, "B N near"]
    """Whether there is a token at that place."""
    w: Embeddings
    c: Embeddings

    def agreements(self) -> Float[Tensor, "B N near"]:
        """c_x · w_y."""
        return (self.c[self.near] @ self.w[self.words][..., None])[..., 0]


class WordVectors(LanguageModel):
    """Two tables of vectors, one for a word and one for its neighbours."""

    score: ClassVar[Score] = Score.OBJECTIVE
    causal: ClassVar[bool] = False

    def __init__(self, config: Any, task: Task) -> None:
        super().__init__(config, task)
        self.word = Table(task.vocab, config.width, config.embedding_std)
        self.context = Table(task.vocab, config.width, config.embedding_std)
        self.noise = NoiseWords(task.vocab, config.noise_exponent)

    @abstractmethod
    def counted(self, tokens: Tokens, lengths: Lengths) -> Mask:
        """The tokens that noise words should be as frequent as."""

    @abstractmethod
    def drawn_noise(self, windows: Windows) -> Float[Tensor, "B N"]:
        """The noise of each word, from words drawn now."""

    @abstractmethod
    def expected_noise(self, windows: Windows, q: Float[Tensor, "V"]) -> Float[Tensor, "B N"]:
        """The noise of each word in expectation."""

    def positives(self, windows: Windows) -> Float[Tensor, "B N"]:
        """Σ_x log σ(c_x · w_y)."""
        return (logsigmoid(windows.agreements()) * windows.real).sum(-1)

    def pooled(self, contexts: Float[Tensor, "*N k E"]) -> Float[Tensor, "*N E"]:
        """What the softmax form compares words with."""
        return contexts.sum(-2)

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        windows = self.windows(tokens, lengths)
        q = self.noise.log_q(windows.w).exp()
        return self._priced(windows) + self.expected_noise(windows, q)

    def objective(self, tokens: Tokens, lengths: Lengths, *given: Tensor) -> TokenScores:
        if self.training:
            self.noise.see(tokens[self.counted(tokens, lengths)])
        windows = self.windows(tokens, lengths)
        return mask_unscored(tokens, lengths, self._priced(windows) + self.drawn_noise(windows))

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        near = self._limited(self.context)[prefix[:, -self.config.window :]]
        return torch.log_softmax(self.pooled(near) @ self._limited(self.word).T, dim=-1)

    def windows(self, tokens: Tokens, lengths: Lengths) -> Windows:
        """What stands around each word."""
        k = self.config.window
        there = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]

        def around(x: Tensor) -> Tensor:
            x = pad(x, (k, k)).unfold(1, 2 * k + 1, 1)[:, 1:]
            return torch.cat([x[..., :k], x[..., k + 1 :]], dim=-1)

        return Windows(
            words=tokens[:, 1:],
            near=around(tokens),
            real=around(there),
            w=self._limited(self.word),
            c=self._limited(self.context),
        )

    def _priced(self, windows: Windows) -> Float[Tensor, "B N"]:
        """The positives less the price of length."""
        if not self.config.l2:
            return self.positives(windows)
        w, c = windows.w.square().sum(-1), windows.c.square().sum(-1)
        lengths = (w[windows.words][..., None] + c[windows.near]) * windows.real
        return self.positives(windows) - self.config.l2 / 2 * lengths.sum(-1)

    def _limited(self, table: Table) -> Embeddings:
        longest = self.config.max_norm
        if longest is None:
            return table.weight
        norms = torch.linalg.vector_norm(table.weight, dim=-1, keepdim=True)
        return table.weight * (longest / norms.clamp_min(longest))


def expected_log_not(
    ids: Int[Tensor, "*N"], table: Embeddings, others: Embeddings, q: Float[Tensor, "V"]
) -> Float[Tensor, "*N"]:
    """Σ_v q_v log σ(−table_i · others_v) for each i of `ids`, computed once per different i."""
    different, place = ids.unique(return_inverse=True)
    return (logsigmoid(-(table[different] @ others.T)) @ q)[place]
