r"""Latent-parent bigram with a positional prior: the parent may be any earlier token.

    P(s_t | s_<t) = Σ_{a<t} P(a | t) softmax( Emb (M e(s_a) + b) )[s_t]
    P(a | t)      = softmax_{a<t}( Λ[a, t] )

a is the position of the parent, Λ is (T, T), e(s) and b are (E), M is (E, E), Emb is (V, E).

Source: Saul & Pereira 1997 (mixed-order Markov models, arXiv:cmp-lg/9706007); S0 (DLM5).
"""

from torch import Tensor

from lmzoo.base.config import config
from lmzoo.blocks.config import EmbeddingConfig
from lmzoo.blocks.parents import Alignment, TiedParentModel
from lmzoo.contract import Task, model


@model(
    "latent_parent_positional", aliases=("DLM5",), family="latent-markov", document="S0",
    source="Saul & Pereira 1997 (arXiv:cmp-lg/9706007); S0",
)  # fmt: skip
class LatentParentPositional(TiedParentModel):
    """Bigram mixed over all earlier tokens with a learned alignment."""

    @config
    class Config(EmbeddingConfig):
        """Embedding."""

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.alignment = Alignment(task.length)

    def log_prior(self, count: int) -> Tensor:
        return self.alignment(count)
