r"""Continuous bag of words: neighbours tell their word from other words.

    noise(t) = Σ_{j=1..R} Σ_x log σ(−c_x · w_{y_j})              y_j ~ q, R to each word y

`mean` compares words with one vector, the mean h of the c_x (Mikolov's form):

    raised     log σ(h · w_y) + Σ_{j=1..R} log σ(−h · w_{y_j})

Mikolov et al. 2013 (arXiv:1301.3781); S3; zoo.md 4.3.
"""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from lmzoo.config import config
from lmzoo.contract import model, scored_mask
from lmzoo.models.embedding.word2vec import (
    Windows,
    WordVectorConfig,
    WordVectors,
    expected_log_not,
)
from lmzoo.types import Lengths, Mask, Tokens


@model(
    "word2vec_cbow",
    family="embedding",
    document="S3",
    source="Mikolov et al. 2013 (arXiv:1301.3781)",
)
class ContinuousBagOfWords(WordVectors):
    """Word vectors that are known by their neighbours from random words."""

    @config
    class Config(WordVectorConfig):
        """How neighbours speak."""

        mean: bool = False
        """As one mean vector, not each for itself."""

    def counted(self, tokens: Tokens, lengths: Lengths) -> Mask:
        return scored_mask(tokens, lengths)

    def pooled(self, contexts: Tensor) -> Tensor:
        return contexts.mean(-2) if self.config.mean else super().pooled(contexts)

    def positives(self, windows: Windows) -> Tensor:
        if not self.config.mean:
            return super().positives(windows)
        return logsigmoid((_means(windows) * windows.w[windows.words]).sum(-1))

    def drawn_noise(self, windows: Windows) -> Tensor:
        drawn = windows.w[self.noise.draw((*windows.words.shape, self.config.negatives))]
        if self.config.mean:
            return logsigmoid(-(drawn @ _means(windows)[..., None])[..., 0]).sum(-1)
        scores = windows.c[windows.near] @ drawn.mT
        return (logsigmoid(-scores).sum(-1) * windows.real).sum(-1)

    def expected_noise(self, windows: Windows, q: Tensor) -> Tensor:
        if self.config.mean:
            return self.config.negatives * (logsigmoid(-(_means(windows) @ windows.w.T)) @ q)
        each = expected_log_not(windows.near, windows.c, windows.w, q)
        return self.config.negatives * (each * windows.real).sum(-1)


def _means(windows: Windows) -> Float[Tensor, "B N E"]:
    """The mean of the context vectors that are there."""
    real = windows.real[..., None]
    total = (windows.c[windows.near] * real).sum(-2)
    return total / real.sum(-2).clamp_min(1)
