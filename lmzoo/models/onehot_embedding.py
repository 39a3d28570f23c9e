r"""One-hot RNN: a tanh RNN that reads and writes one-hot tokens, without an embedding table.

    x_t = I[s_t]                                     one-hot: Emb is the identity
    h_t = tanh( W_2 x_t + W_1 h_{t-1} + b )          h_0 = 1
    P(s_{t+1} | s_<=t) = softmax_v( I (U h_t + a) )

I is the identity (V, V), x_t is (V), h_t is (H), W_2 is (H, V), W_1 is (H, H), U is (V, H). W_2 x_t
is a column of W_2, so the columns of W_2 act as input embeddings. The input and output weights are
not tied: this is the untied baseline of the rows with a tied softmax.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding

from lmzoo.base.config import config
from lmzoo.blocks.layers import Width
from lmzoo.contract import DecodingState, LanguageModel, Task, model
from lmzoo.functional.token_scores import of_tokens
from lmzoo.types import Hidden, Prefix


@model(
    "onehot_embedding",
    family="embedding",
    document="S3",
    source="Elman 1990",
)
class OneHotRecurrent(LanguageModel):
    """Tanh RNN on one-hot tokens, with untied input and output weights."""

    @config
    class Config:
        """State size."""

        width: Width = 32
        """State size H. The embedding size is V."""

    def __init__(self, config: Config, task: Task):
        super().__init__(config, task)
        width = config.width
        self.read = nn.Linear(task.vocab, width)
        # The bias of `read` is enough: two would be one.
        self.carry = nn.Linear(width, width, bias=False)
        self.write = nn.Linear(width, task.vocab)

    @property
    def state_size(self) -> int:
        return self.config.width

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        h = self._states(tokens[:, :-1])
        dense = self.write(h).log_softmax(-1)
        return of_tokens(dense, tokens[:, 1:])

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        h = self._states(prefix)[:, -1]
        logits = self.write(h)
        return logits.log_softmax(-1)

    def _states(self, tokens: Prefix) -> Float[Tensor, "B t H"]:
        h = self._start(len(tokens))
        states = []
        columns = self._columns(tokens)
        for x in columns.unbind(1):
            h = self._step(x, h)
            states.append(h)
        return torch.stack(states, 1)

    def begin(self, batch: int, *sources: Tensor) -> DecodingState:
        return self._start(batch)

    def advance(self, state: DecodingState, token: Tensor) -> tuple[Tensor, DecodingState]:
        column = self._columns(token)
        h = self._step(column, state)
        scores = self.write(h).log_softmax(-1)
        return scores, h

    def _columns(self, tokens: Int[Tensor, "*N"]) -> Float[Tensor, "*N H"]:
        """Return W_2 x + b without building the one-hot vectors x."""
        # A product with a one-hot vector selects a column of W_2.
        columns = embedding(tokens, self.read.weight.T)
        return columns + self.read.bias

    def _step(self, column: Hidden, h: Hidden) -> Tensor:
        return torch.tanh(column + self.carry(h))

    def _start(self, batch: int) -> Hidden:
        weight = self.read.weight
        return weight.new_ones(batch, self.config.width)
