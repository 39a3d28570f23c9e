r"""Skip-gram with negative sampling: a word tells its neighbours from other words.

    noise(t) = Σ_x Σ_{j=1..R} log σ(−c_{x_j} · w_y)              x_j ~ q, R to each neighbour x

With R noise words and vectors of full rank the optimum is

    c_x · w_y = log P(x, y) / (R q(x) P(y))     = PMI(x, y) − log R   where q is the contexts' P(x)

Mikolov et al. 2013 (arXiv:1310.4546); Levy & Goldberg 2014; S3; zoo.md 4.3.
"""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from lmzoo.contract import model
from lmzoo.models.embedding.word2vec import (
    Windows,
    WordVectorConfig,
    WordVectors,
    expected_log_not,
)
from lmzoo.types import Lengths, Mask, Tokens


@model(
    "word2vec_skipgram",
    family="embedding",
    document="S3",
    source="Mikolov et al. 2013 (arXiv:1310.4546)",
)
class SkipGram(WordVectors):
    """Word vectors that know their neighbours from random words."""

    Config = WordVectorConfig

    def counted(self, tokens: Tokens, lengths: Lengths) -> Mask:
        # `<start>` is a context like any other.
        return torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]

    def drawn_noise(self, windows: Windows) -> Tensor:
        drawn = self.noise.draw((*windows.near.shape, self.config.negatives))
        scores = (windows.c[drawn] @ windows.w[windows.words][:, :, None, :, None])[..., 0]
        return (logsigmoid(-scores).sum(-1) * windows.real).sum(-1)

    def expected_noise(self, windows: Windows, q: Tensor) -> Tensor:
        each = expected_log_not(windows.words, windows.w, windows.c, q)
        return self.config.negatives * each * windows.real.sum(-1)
