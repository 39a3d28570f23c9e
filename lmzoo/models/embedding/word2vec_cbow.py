r"""word2vec CBOW: context tokens distinguish their centre token from noise tokens.

    objective   Σ_x log σ(c_x · w_y) + Σ_{j=1..R} Σ_x log σ(−c_x · w_{y_j})         y_j ~ q

y = s_t is the centre token, x are the tokens of its window, w and c are (V, E); the full objective
with its penalty is in `word2vec.py`. With mean=True (Mikolov's form) one vector h, the mean of the
c_x, replaces them:

    objective   log σ(h · w_y) + Σ_{j=1..R} log σ(−h · w_{y_j})

Source: Mikolov et al. 2013 (arXiv:1301.3781); S3.
"""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from lmzoo.base.config import config
from lmzoo.contract import model
from lmzoo.functional.token_scores import scored_mask
from lmzoo.models.embedding.word2vec import (
    Windows,
    WordVectorConfig,
    WordVectors,
    expected_log_rejection,
)
from lmzoo.types import Lengths, Mask, Tokens


@model(
    "word2vec_cbow", family="embedding", document="S3",
    source="Mikolov et al. 2013 (arXiv:1301.3781)",
)  # fmt: skip
class ContinuousBagOfWords(WordVectors):
    """word2vec CBOW with negative sampling."""

    @config
    class Config(WordVectorConfig):
        """word2vec fields and the form of the context."""

        mean: bool = False
        """Whether the mean of the context vectors replaces the single vectors."""

    def noise_mask(self, tokens: Tokens, lengths: Lengths) -> Mask:
        return scored_mask(tokens, lengths)

    def pool_contexts(self, contexts: Tensor) -> Tensor:
        return contexts.mean(-2) if self.config.mean else super().pool_contexts(contexts)

    def positive_term(self, windows: Windows) -> Tensor:
        if not self.config.mean:
            return super().positive_term(windows)
        return logsigmoid((_means(windows) * windows.w[windows.words]).sum(-1))

    def sampled_noise_term(self, windows: Windows) -> Tensor:
        drawn = windows.w[self.noise.draw((*windows.words.shape, self.config.negatives))]
        if self.config.mean:
            return logsigmoid(-(drawn @ _means(windows)[..., None])[..., 0]).sum(-1)
        scores = windows.c[windows.contexts] @ drawn.mT
        return (logsigmoid(-scores).sum(-1) * windows.mask).sum(-1)

    def expected_noise_term(self, windows: Windows, q: Tensor) -> Tensor:
        if self.config.mean:
            return self.config.negatives * (logsigmoid(-(_means(windows) @ windows.w.T)) @ q)
        expected = expected_log_rejection(windows.contexts, windows.c, windows.w, q)
        return self.config.negatives * (expected * windows.mask).sum(-1)


def _means(windows: Windows) -> Float[Tensor, "B N E"]:
    """Return the mean context vector of each window."""
    mask = windows.mask[..., None]
    total = (windows.c[windows.contexts] * mask).sum(-2)
    return total / mask.sum(-2).clamp_min(1)
