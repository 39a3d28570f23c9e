"""Mixture emissions, and distributions over tokens that do not depend on the context."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

from lmzoo.base.config import config
from lmzoo.emissions.base import EMISSIONS, Emission, NumComponents
from lmzoo.functional.logspace import exact_log_mixture
from lmzoo.functional.normalise import Norm, normalise_vectors
from lmzoo.functional.parameters import Draw, DrawnModule, Undecayed, draw_matrices
from lmzoo.functional.tied_softmax import NAIVE_LIMIT, log_normalisers
from lmzoo.functional.token_mixture import gate_logits, mixture_log_prob
from lmzoo.types import Embeddings, Tokens


class Components(DrawnModule):
    """K trained vectors, whose logits are inner products with the token embeddings.

        P(v | z) = softmax_v( exp(g_z) · Emb N(k_z) )      Components
        P(v | z) = softmax_v( F_z )                        FreeComponents

    No tensor of shape (B, T, V) is computed. A batch computes the K log-normalisers once and scores
    its targets, or computes the K x V table of log-probabilities once and looks its targets up. The
    owner of the components defines P(z | context): the mixture emission by a gate, a latent Markov
    model by its transitions.

    Source: S0 (FreeComponents: DLM21).

    Means and scales start at U(K), as published; `scaled=False` omits the factor exp(g_z).
    """

    def __init__(
        self,
        count: int,
        width: int,
        norm: Norm,
        *,
        scaled: bool,
    ):
        # Not super(): MixtureEmission also inherits from Emission.
        nn.Module.__init__(self)
        self.norm = norm
        # A model may have no component: U(0) would divide by zero.
        n = max(1, count)
        self.set_drawn(n, means=(count, width))
        shape = None
        if scaled:
            shape = (count, 1)
        self.set_drawn(n, Undecayed, log_scale=shape)

    def redraw(self, name: str, draw: Draw):
        """Draw the means by a named scheme; the scales g are no matrix and are not redrawn."""
        if name == "means":
            # Scales keep their draw: they are no matrix.
            draw_matrices(self.means, draw)

    def vectors(self) -> Float[Tensor, "K E"]:
        """Return exp(g_z) N(k_z)."""
        vectors = normalise_vectors(self.means, self.norm)
        if self.log_scale is None:
            return vectors
        return vectors * self.log_scale.exp()

    def token_log_probs(self, targets: Tokens, table: Embeddings) -> Float[Tensor, "B T K"]:
        """Return log P(target | z) for every z."""
        if self.prefers_table(targets, table):
            # One product for the vocabulary, if it is no larger than the batch.
            scores = self.transposed_log_prob_table(table)
            return embedding(targets, scores)
        vectors = self.vectors()
        embedded = embedding(targets, table)
        log_z = log_normalisers(vectors, table)
        return linear(embedded, vectors, -log_z)

    def prefers_table(self, targets: Tokens, table: Embeddings) -> bool:
        """Return True if it is cheaper to score the whole vocabulary and look the targets up."""
        # A batch with fewer targets than words would not read all scores.
        words = len(table)
        if words > targets.numel():
            return False
        return words * len(self.means) <= NAIVE_LIMIT

    def transposed_log_prob_table(self, table: Embeddings) -> Float[Tensor, "V K"]:
        """Return log P(v | z) for every v and z."""
        logits = table @ self.vectors().T
        return logits.log_softmax(0)

    def log_prob_table(self, table: Embeddings) -> Float[Tensor, "K V"]:
        """Return log P(v | z) for every z and v."""
        logits = self.vectors() @ table.T
        return logits.log_softmax(-1)


class FreeComponents(DrawnModule):
    """A K x V table of logits, not tied to the embeddings, that start at U(K), as published."""

    def __init__(self, count: int, vocab: int):
        super().__init__()
        self.set_drawn(count, logits=(count, vocab))

    def token_log_probs(self, targets: Tokens, table: Embeddings) -> Float[Tensor, "B T K"]:
        """Return log P(target | z) for every z; the embeddings are not used."""
        # The table is small: all of it is normalised, and rows are taken.
        by_token = self.log_prob_table(table).T
        return by_token[targets]

    def log_prob_table(self, table: Embeddings) -> Float[Tensor, "K V"]:
        return self.logits.log_softmax(-1)


@EMISSIONS("mixture")
class MixtureEmission(Components, Emission):
    """A context-gated mixture of K context-free softmaxes; P(v | y) has rank at most K.

        P(z | y) = softmax_z( A y + a )
        P(v | z) = softmax_v( exp(g_z) · Emb N(k_z) )
        P(v | y) = Σ_z P(z | y) P(v | z)

    `Emb` is not normalised. N is the model's `norm`; `scaled=False` leaves out g. The second line
    is `Components`.

    Source: S0.
    """

    latent = "component"

    @config
    class Config:
        """Number of components, and whether each has a learned scale."""

        components: NumComponents = 32
        scaled: bool = True

    def __init__(self, config: Config, width: int, norm: Norm):
        Components.__init__(self, config.components, width, norm, scaled=config.scaled)
        self.config = config
        self.gate = nn.Linear(width, config.components)

    def log_prob(self, y: Tensor, targets: Tensor, table: Tensor) -> Tensor:
        if not self.prefers_table(targets, table):
            joint = self.joint(y, targets, table)
            return joint.logsumexp(-1)
        words = targets.expand(y.shape[:-1])
        gate = self.gate
        scores = self.transposed_log_prob_table(table)
        return mixture_log_prob(y, gate.weight, gate.bias, scores, words)

    def dense(self, y: Tensor, table: Tensor) -> Tensor:
        weights = self.gate(y).log_softmax(-1)
        mixed = exact_log_mixture(weights, self.log_prob_table(table))
        # Rounding may leave a probability just above 1.
        return mixed.clamp_max(0)

    def joint(
        self,
        y: Float[Tensor, "*W B T E"],
        targets: Tokens,
        table: Embeddings,
    ) -> Float[Tensor, "*W B T K"]:
        weights = self.logits(y).log_softmax(-1)
        # For each component, as a posterior needs.
        return weights + self.token_log_probs(targets, table)

    def logits(self, y: Float[Tensor, "*W B T E"]) -> Float[Tensor, "*W B T K"]:
        """Return A y + a."""
        gate = self.gate
        return gate_logits(y, gate.weight, gate.bias)
