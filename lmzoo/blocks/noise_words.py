r"""Noise words, drawn by how often training has met them.

    q(w) ∝ (1 + n_w)^α          n_w = occurrences in the batches trained on so far

α = 1 is the unigram distribution, α = 0 the uniform one, α = ¾ word2vec's. The counts are part
of the weights' file, so that a training that was cut off goes on with the same q; after the
first epoch they keep their proportions.

Mikolov et al. 2013 (arXiv:1310.4546); S3.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


class NoiseWords(nn.Module):
    """A distribution over the vocabulary that is learned by counting."""

    counts: Tensor

    def __init__(self, vocab: int, exponent: float) -> None:
        super().__init__()
        self.exponent = exponent
        self.register_buffer("counts", torch.zeros(vocab, dtype=torch.int64))

    def see(self, words: Int[Tensor, "n"]) -> None:
        """Count these words."""
        self.counts += torch.bincount(words, minlength=len(self.counts))

    def log_q(self, like: Tensor) -> Float[Tensor, "V"]:
        """Log q(w), with the number type of `like`."""
        weights = self.exponent * self.counts.double().log1p()
        return torch.log_softmax(weights, dim=0).to(like)

    def draw(self, shape: tuple[int, ...]) -> Int[Tensor, "..."]:
        """Independent words from the global generator."""
        q = self.log_q(self.counts.double()).exp()
        return torch.multinomial(q, torch.Size(shape).numel(), replacement=True).reshape(shape)
