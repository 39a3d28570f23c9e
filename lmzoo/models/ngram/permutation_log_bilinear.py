r"""Log-bilinear n-gram whose window order is latent: a mixture over all W! permutations.

    P(s_t | s_<t) = Σ_{π ∈ S_W} P(π) softmax( Emb y_π )[s_t]
    y_π           = Σ_{j=1..W} W_j c_{π(j)} + b

π is a permutation of 1..W; P(π) is learned, or uniform as in the S0 code. c_j = e(s_{t-j}), y_π and
b are (E), W_j is (E, E), Emb is (V, E).

Every token takes W! softmaxes over the vocabulary: 120 at W = 5, the value of S0, and 6 at the
default W = 3, where a training step takes 50 to 65 times as long as one of `aggregate_markov`.

Source: S0 (DLM3).
"""

from itertools import permutations
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from lmzoo.blocks.config import EmbeddingConfig
from lmzoo.blocks.log_weights import LogWeights, Weighting
from lmzoo.config import config
from lmzoo.contract import Task, model
from lmzoo.functional.sequence import previous_vectors
from lmzoo.models.ngram.vector_mixture import VectorMixture
from lmzoo.search_space import IntRange


@model("permutation_log_bilinear", aliases=("DLM3",), family="ngram", document="S0", source="S0")
class PermutationLogBilinear(VectorMixture):
    """Log-bilinear n-gram, a mixture over all W! permutations of its window."""

    latent = "permutation of the window"

    @config
    class Config(EmbeddingConfig):
        """Embedding, window and P(π)."""

        window: Annotated[int, IntRange(1, 4)] = Field(3, ge=1, le=6)
        """Number W of context tokens."""
        weights: Weighting = Weighting.LEARNED

    orders: Tensor
    """All permutations of 0..W-1, one per row, (W!, W)."""

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        width, window = config.width, config.window
        orders = torch.tensor(list(permutations(range(window))))
        self.register_buffer("orders", orders, persistent=False)
        self.transition = nn.Linear(window * width, width)
        self.weights = LogWeights(len(orders), config.weights)

    def latent_value_names(self) -> tuple[str, ...]:
        """Return the lag at each position of the window, such as "2 1 3", for each permutation."""
        return tuple(" ".join(str(lag + 1) for lag in order) for order in self.orders.tolist())

    def predict_vectors(self, tokens: Tensor) -> Tensor:
        context = previous_vectors(self.embedding(tokens), self.config.window)
        maps = self.transition.weight.unflatten(1, (self.config.window, -1))  # E W E
        # W² products W_j c_i serve all W! permutations: each permutation sums W of them.
        terms = torch.einsum("ejd,btid->jibte", maps, context)
        chosen = (terms[j, order] for j, order in enumerate(self.orders.unbind(1)))
        return sum(chosen, self.transition.bias)
