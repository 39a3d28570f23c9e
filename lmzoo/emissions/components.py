r"""K distributions over tokens that do not depend on the context.

    P(v | z) = softmax_v( exp(g_z) · Emb N(k_z) )      Components
    P(v | z) = softmax_v( F_z )                        FreeComponents

No tensor of shape (B, T, V) is computed. A batch computes the K log-normalisers once and scores its
targets, or computes the K x V table of log-probabilities once and looks its targets up. The owner
of the components defines P(z | context): the mixture emission by a gate, a latent Markov model by
its transitions.

Source: S0 (FreeComponents: DLM21).
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lmzoo.functional.initialisers import Draw, draw_matrices, draw_uniform
from lmzoo.functional.log_normaliser import NAIVE_LIMIT, log_normalisers
from lmzoo.functional.normalise import Norm, normalise_vectors
from lmzoo.types import Embeddings


class Components(nn.Module):
    """K trained vectors, whose logits are inner products with the token embeddings.

    `scaled=False` omits the factor exp(g_z).
    """

    log_scale: nn.Parameter | None

    def __init__(self, count: int, width: int, norm: Norm, *, scaled: bool) -> None:
        # Not super(): MixtureEmission also inherits from Emission.
        nn.Module.__init__(self)
        self.norm = norm
        self.means = nn.Parameter(torch.empty(count, width))
        self.register_parameter(
            "log_scale", nn.Parameter(torch.empty(count, 1)) if scaled else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw means and log-scales from U(K), as published."""
        fan_in = max(1, len(self.means))
        draw_uniform(self.means, fan_in)
        if self.log_scale is not None:
            draw_uniform(self.log_scale, fan_in)

    def redraw(self, name: str, draw: Draw) -> None:
        """Draw the means by a named scheme; the scales g are no matrix and are not redrawn."""
        if name == "means":
            draw_matrices(self.means, draw)

    def vectors(self) -> Float[Tensor, "K E"]:
        """Return exp(g_z) N(k_z)."""
        vectors = normalise_vectors(self.means, self.norm)
        return vectors if self.log_scale is None else vectors * self.log_scale.exp()

    def token_log_probs(
        self, targets: Int[Tensor, "B T"], table: Embeddings
    ) -> Float[Tensor, "B T K"]:
        """Return log P(target | z) for every z."""
        if self.prefers_table(targets, table):
            return nn.functional.embedding(targets, self.transposed_log_prob_table(table))
        vectors = self.vectors()
        embedded = nn.functional.embedding(targets, table)
        return nn.functional.linear(embedded, vectors, -log_normalisers(vectors, table))

    def prefers_table(self, targets: Int[Tensor, "B T"], table: Embeddings) -> bool:
        """Return True if it is cheaper to score the whole vocabulary and look the targets up."""
        return len(table) <= targets.numel() and len(table) * len(self.means) <= NAIVE_LIMIT

    def transposed_log_prob_table(self, table: Embeddings) -> Float[Tensor, "V K"]:
        """Return log P(v | z) for every v and z."""
        return torch.log_softmax(table @ self.vectors().T, dim=0)

    def log_prob_table(self, table: Embeddings) -> Float[Tensor, "K V"]:
        """Return log P(v | z) for every z and v."""
        return torch.log_softmax(self.vectors() @ table.T, dim=-1)


class FreeComponents(nn.Module):
    """A K x V table of logits, not tied to the embeddings."""

    def __init__(self, count: int, vocab: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.empty(count, vocab))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the logits from U(K), as published."""
        draw_uniform(self.logits, len(self.logits))

    def token_log_probs(
        self, targets: Int[Tensor, "B T"], table: Embeddings
    ) -> Float[Tensor, "B T K"]:
        """Return log P(target | z) for every z; the embeddings are not used."""
        return self.log_prob_table(table).T[targets]

    def log_prob_table(self, table: Embeddings) -> Float[Tensor, "K V"]:
        """Return log P(v | z) for every z and v."""
        return torch.log_softmax(self.logits, dim=-1)
