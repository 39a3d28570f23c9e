r"""word2vec skip-gram: a centre token distinguishes its context tokens from noise tokens.

    objective   Σ_x [ log σ(c_x · w_y) + Σ_{j=1..R} log σ(−c_{x_j} · w_y) ]         x_j ~ q

y = s_t is the centre token, x are the tokens of its window, w and c are (V, E); the full objective
with its penalty is in `word2vec.py`. For vectors of full rank the optimum is

    c_x · w_y = log P(x, y) / (R q(x) P(y)) = PMI(x, y) − log R     the latter if q(x) = P(x)

Source: Mikolov et al. 2013 (arXiv:1310.4546); Levy & Goldberg 2014; S3.
"""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from lmzoo.contract import model
from lmzoo.models.embedding.word2vec import (
    Windows,
    WordVectorConfig,
    WordVectors,
    expected_log_rejection,
)
from lmzoo.types import Lengths, Mask, Tokens


@model(
    "word2vec_skipgram", family="embedding", document="S3",
    source="Mikolov et al. 2013 (arXiv:1310.4546)",
)  # fmt: skip
class SkipGram(WordVectors):
    """word2vec skip-gram with negative sampling."""

    Config = WordVectorConfig

    def noise_mask(self, tokens: Tokens, lengths: Lengths) -> Mask:
        # `<start>` is a context token like any other.
        return torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]

    def sampled_noise_term(self, windows: Windows) -> Tensor:
        drawn = self.noise.draw((*windows.contexts.shape, self.config.negatives))
        scores = (windows.c[drawn] @ windows.w[windows.words][:, :, None, :, None])[..., 0]
        return (logsigmoid(-scores).sum(-1) * windows.mask).sum(-1)

    def expected_noise_term(self, windows: Windows, q: Tensor) -> Tensor:
        expected = expected_log_rejection(windows.words, windows.w, windows.c, q)
        return self.config.negatives * expected * windows.mask.sum(-1)
