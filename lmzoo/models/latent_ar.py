r"""Latent autoregressive model: a recurrence whose prediction also reads the last token.

    x_t = e(s_{t-1})
    h_t = cell(x_t, h_{t-1})                        h_0 = 1
    P(s_t | s_<t) = emission(h_t + S x_t)

x_t and h_t are (E), S is (E, E). S4 describes two sub-models: h_t = f(h_{t-1}, x_t) and
P(s_t | h_t, x_t). With S = 0 this is the recurrent language model.
"""

from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.blocks.feature_model import FeatureModel
from lmzoo.blocks.layers import EmbeddingConfig
from lmzoo.cells import stack
from lmzoo.cells.base import CELLS, CellChoice
from lmzoo.contract import DecodingState, Task, model
from lmzoo.emissions.base import EmissionChoice
from lmzoo.functional.normalise import Norm


@model("latent_ar", family="recurrent", document="S4", source="S4")
class LatentAutoregressive(FeatureModel):
    """Recurrent language model whose prediction also reads the last token directly."""

    @config
    class Config(EmbeddingConfig):
        """Embedding, cell and emission."""

        cell: CellChoice = "rnn"
        emission: EmissionChoice = "vector"

    emission_norm = Norm.NONE

    def __init__(self, config: Config, task: Task):
        super().__init__(config, task, config.embedding_std)
        width = config.width
        self.cell = CELLS.build(config.cell, width, task.length)
        self.skip = nn.Linear(width, width, bias=False)

    @property
    def state_size(self) -> int | None:
        return self.cell.state_size

    def begin(self, batch: int, *sources: Tensor) -> DecodingState:
        start = self._start(batch)
        # A stack computes from W initial states at once; here W is 1.
        return stack.begin([self.cell], start[:, None])

    def advance(self, state: DecodingState, token: Tensor) -> tuple[Tensor, DecodingState]:
        x = self.embedding(token)
        h, state = stack.advance([self.cell], x, state)
        y = h[:, 0] + self.skip(x)
        scores = self.emission.dense(y, self.embedding.weight)
        return scores, state

    def features(self, tokens: Tensor, *sources: Tensor) -> Tensor:
        x = self.embedding(tokens)
        start = self._start(len(x))
        h = self.cell.scan(x, start)
        return h + self.skip(x)

    def _start(self, batch: int) -> Float[Tensor, "B S"]:
        # An LSTM has two vectors: c starts at 1, as h does.
        weight = self.embedding.weight
        return weight.new_ones(batch, self.cell.start_size)
