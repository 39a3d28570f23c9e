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

    def __init__(self, vocab: int, exponent: float):
        super().__init__()
        self.exponent = exponent
        zeros = torch.zeros(vocab, dtype=torch.int64)
        self.register_buffer("counts", zeros)

    def update(
        self,
        tokens: Int[Tensor, "*N"],
        counted: Bool[Tensor, "*N"],
    ):
        """Add the tokens where `counted` is true; no shape depends on the values."""
        index = tokens.flatten()
        # Added as 0 where they are not counted.
        ones = counted.flatten().long()
        self.counts.scatter_add_(0, index, ones)

    def log_q(self, like: Tensor) -> Float[Tensor, "V"]:
        """Return log q(w) in the dtype and on the device of `like`."""
        # In double: float32 holds counts up to 2²⁴ only.
        log_counts = self.counts.double().log1p()
        logits = self.exponent * log_counts
        return logits.log_softmax(0).to(like)

    def draw(self, shape: Shape) -> Int[Tensor, "..."]:
        """Draw independent tokens, with the global random generator."""
        double = self.counts.double()
        q = self.log_q(double).exp()
        size = torch.Size(shape).numel()
        count = max(size, 1)  # torch refuses to draw nothing
        drawn = torch.multinomial(q, count, replacement=True)
        return drawn[:size].reshape(shape)
