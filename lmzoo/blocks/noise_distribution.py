r"""The noise distribution of contrastive training, estimated from token counts.

    q(w) ∝ (1 + n_w)^α          n_w = occurrences in the training batches so far

α = 1 is the unigram distribution, α = 0 the uniform one, α = ¾ that of word2vec. The counts are a
buffer of the model: checkpoints contain them, and a resumed training uses the same q. After the
first epoch their proportions are constant.

Mikolov et al. 2013 (arXiv:1310.4546). Source: S3.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lmzoo.types import Shape


class NoiseDistribution(nn.Module):
    """A smoothed unigram distribution, updated by counting tokens."""

    counts: Tensor

    def __init__(self, vocab: int, exponent: float) -> None:
        super().__init__()
        self.exponent = exponent
        self.register_buffer("counts", torch.zeros(vocab, dtype=torch.int64))

    def update(self, tokens: Int[Tensor, "*N"], counted: Bool[Tensor, "*N"]) -> None:
        """Add the tokens where `counted` is true; no shape depends on the values."""
        # Added as 0 where they are not counted.
        self.counts.scatter_add_(0, tokens.flatten(), counted.flatten().long())

    def log_q(self, like: Tensor) -> Float[Tensor, "V"]:
        """Return log q(w) in the dtype and on the device of `like`."""
        # In double: float32 holds counts up to 2²⁴ only.
        weights = self.exponent * self.counts.double().log1p()
        return torch.log_softmax(weights, dim=0).to(like)

    def draw(self, shape: Shape) -> Int[Tensor, "..."]:
        """Draw independent tokens, with the global random generator."""
        q = self.log_q(self.counts.double()).exp()
        size = torch.Size(shape).numel()
        drawn = torch.multinomial(q, max(size, 1), replacement=True)  # it refuses to draw nothing
        return drawn[:size].reshape(shape)
