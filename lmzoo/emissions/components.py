r"""K fixed distributions over words: what a latent component says.

    P(v | z) = softmax_v( exp(g_z) · Emb N(k_z) )      Components
    P(v | z) = softmax_v( F_z )                        FreeComponents

Neither depends on the context, so a batch computes the K log-normalisers once and
gathers its targets, or the whole K x V table once where that has fewer rows and fits
in the cache: nothing of shape (B, T, V) exists. Whoever owns the components
decides P(z | context): the mixture emission by a gate, a latent Markov model otherwise.

S0; zoo.md 1.4, DLM21.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lmzoo.functional.draw import uniform
from lmzoo.functional.initialisers import Draw, fill
from lmzoo.functional.log_normaliser import PLAIN, log_normalisers
from lmzoo.functional.normalise import Norm, normalise_vectors
from lmzoo.types import Embeddings


class Components(nn.Module):
    """Component vectors tied to the embeddings; `scaled=False` drops g."""

    log_scale: nn.Parameter | None

    def __init__(self, count: int, width: int, norm: Norm, *, scaled: bool) -> None:
        # Named, not super(): an emission that also is its components has two bases.
        nn.Module.__init__(self)
        self.norm = norm
        self.means = nn.Parameter(torch.empty(count, width))
        self.register_parameter(
            "log_scale", nn.Parameter(torch.empty(count, 1)) if scaled else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Means and log-scales from U(K), as published."""
        fan_in = max(1, len(self.means))
        with torch.no_grad():
            self.means.copy_(uniform(tuple(self.means.shape), fan_in))
            if self.log_scale is not None:
                self.log_scale.copy_(uniform(tuple(self.log_scale.shape), fan_in))

    def redraw(self, name: str, draw: Draw) -> None:
        """By a named scheme: g, a column of scales, is no matrix."""
        if name == "means":
            fill(self.means, draw)

    def vectors(self) -> Float[Tensor, "K E"]:
        """exp(g_z) N(k_z)."""
        vectors = normalise_vectors(self.means, self.norm)
        return vectors if self.log_scale is None else vectors * self.log_scale.exp()

    def word_scores(self, targets: Int[Tensor, "B T"], table: Embeddings) -> Float[Tensor, "B T K"]:
        """Log P(target | z) for every z."""
        if self.few_words(targets, table):
            return nn.functional.embedding(targets, self.scores_by_word(table))
        vectors = self.vectors()
        words = nn.functional.embedding(targets, table)
        return nn.functional.linear(words, vectors, -log_normalisers(vectors, table))

    def few_words(self, targets: Int[Tensor, "B T"], table: Embeddings) -> bool:
        """Whether it is cheaper to score every word, and to look the targets up."""
        return len(table) <= targets.numel() and len(table) * len(self.means) <= PLAIN

    def scores_by_word(self, table: Embeddings) -> Float[Tensor, "V K"]:
        """Log P(v | z) for every v and z."""
        return torch.log_softmax(table @ self.vectors().T, dim=0)

    def word_table(self, table: Embeddings) -> Float[Tensor, "K V"]:
        """Log P(v | z) for every z and v."""
        return torch.log_softmax(self.vectors() @ table.T, dim=-1)


class FreeComponents(nn.Module):
    """A free K x V table of logits, not tied to the embeddings."""

    def __init__(self, count: int, vocab: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.empty(count, vocab))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """U(K), as published."""
        with torch.no_grad():
            self.logits.copy_(uniform(tuple(self.logits.shape), len(self.logits)))

    def word_scores(self, targets: Int[Tensor, "B T"], table: Embeddings) -> Float[Tensor, "B T K"]:
        """Log P(target | z); the embeddings have no part in it."""
        return self.word_table(table).T[targets]

    def word_table(self, table: Embeddings) -> Float[Tensor, "K V"]:
        """Log P(v | z)."""
        return torch.log_softmax(self.logits, dim=-1)
