r"""What the recurrent VAEs and autoencoders share: read a sentence into z, retell it from z.

    h_enc = encoder over e(s_{n-1}), e(s_{n-2}), ..          from a state of ones
    h_t   = cell(N(e(s_{t-1})), h_{t-1}),   h_0 = z          teacher-forced
    P(s_t | s_<t, z) = emission(N(h_t))

Parts and names are those of the recurrent language model: with any fixed z it is one. A
cell whose state is several vectors (an LSTM) starts with z in each, one whose states are
Bernoulli parameters (MGRU, squash=sigmoid) with σ(z).

S0 DLM50-54; zoo.md 2.4.
"""

from typing import Annotated, Any, ClassVar

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from lmzoo.blocks.embedding import Table
from lmzoo.blocks.encoder import read_reversed
from lmzoo.cells.base import CELLS
from lmzoo.config import config
from lmzoo.contract import LanguageModel, Task
from lmzoo.emissions.base import EMISSIONS
from lmzoo.functional.normalise import Norm, normalise_sequence, normalise_vectors
from lmzoo.search_space import IntRange
from lmzoo.types import Lengths, Prefix


@config
class DecoderConfig:
    """Size and parts; the encoder has a cell of the same kind, with its own weights."""

    width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
    """E = H, and the size of z."""
    cell: Annotated[Any, CELLS] = "gru"
    emission: Annotated[Any, EMISSIONS] = "mixture"
    norm: Norm = Norm.RMS
    embedding_std: float | None = Field(None, gt=0)


class SentenceDecoder(LanguageModel):
    """Encoder and teacher-forced decoder; subclasses say how z comes of h_enc."""

    causal: ClassVar[bool] = False
    """The encoder has read the whole sentence, by design."""

    def __init__(self, config: Any, task: Task) -> None:
        super().__init__(config, task)
        self.embedding = Table(task.vocab, config.width, config.embedding_std)
        self.encoder = CELLS.build(config.cell, config.width, task.length)
        self.cell = CELLS.build(config.cell, config.width, task.length)
        self.emission = EMISSIONS.build(config.emission, config.width, config.norm)

    @property
    def leaks(self) -> str:
        if self.config.norm is Norm.TIME_STD and not self.cell.input_blind:
            return "inputs are divided by their spread over the whole sequence (time_std)"
        return ""

    @property
    def state_size(self) -> int | None:
        return self.cell.state_size

    def encode(self, tokens: Prefix, lengths: Lengths) -> Float[Tensor, "B E"]:
        """h_enc; pads are not read, and neither is anything un-normalised."""
        x = self.embedding(tokens)
        return read_reversed(self.encoder, x, lengths, x.new_ones(len(x), self._state))

    def outputs(self, tokens: Prefix, z: Float[Tensor, "S B E"]) -> Float[Tensor, "S B t E"]:
        """N(h) after each token, from each z."""
        x = normalise_sequence(self.embedding(tokens), self.config.norm)
        start = self.cell.as_start(z.flatten(0, 1)).repeat(1, self.cell.parts)
        h = self.cell.scan(x.repeat(len(z), 1, 1), start)
        return normalise_vectors(h.unflatten(0, z.shape[:2]), self.config.norm)

    def decode(self, tokens: Prefix, z: Float[Tensor, "S B E"]) -> Float[Tensor, "S B t-1"]:
        """Log P(s_t | s_<t, z) for t = 1..t-1."""
        y = self.outputs(tokens[:, :-1], z)
        return self.emission.log_prob(y, tokens[:, 1:], self.embedding.weight)

    @property
    def _state(self) -> int:
        return self.cell.parts * self.config.width
