r"""Base class of recurrent sequence-to-sequence models: encoder cell, decoder cell, emission.

    state_0 = start(source)
    h_t, state_t = step(e(s_{t-1}), state_{t-1})        t = 1..T-1
    P(s_t | s_<t, source) = emission(h_t)

e(s) and h_t are (E). Source and target have their own embedding tables. Encoder and decoder use the
same kind of cell, so that the final state of the encoder can be the initial state of the decoder.
A cell whose state grows with the prefix has no such final state and is refused.

Source: Sutskever, Vinyals & Le 2014 (arXiv:1409.3215); S3.
"""

from abc import abstractmethod
from typing import Annotated, Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.blocks.config import EmbeddingConfig
from lmzoo.blocks.feature_model import FeatureModel
from lmzoo.blocks.layers import EmbeddingTable
from lmzoo.cells.base import CELLS
from lmzoo.cells.hm_lstm import HierarchicalMultiscaleLSTM
from lmzoo.contract import DecodingState, Score, Task
from lmzoo.emissions.base import EMISSIONS
from lmzoo.functional.normalise import Norm
from lmzoo.types import Lengths, needs_source_message

Source = Int[Tensor, "B S"]


@config
class Seq2SeqConfig(EmbeddingConfig):
    """Embedding, cell and emission."""

    cell: Annotated[Any, CELLS] = "gru"
    """Cell of the encoder and of the decoder, which have separate weights."""
    emission: Annotated[Any, EMISSIONS] = "vector"


class RecurrentSeq2Seq(FeatureModel):
    """Base class: a subclass encodes the source and defines one decoder step."""

    score: ClassVar[Score] = Score.CONDITIONAL
    conditional: ClassVar[bool] = True

    def __init__(self, config: Seq2SeqConfig, task: Task) -> None:
        super().__init__(config, task)
        if not task.source_vocab:
            raise UserError(needs_source_message(self.name))
        width, std = config.width, config.embedding_std
        self.source_embedding = EmbeddingTable(task.source_vocab, width, std)
        self.embedding = EmbeddingTable(task.vocab, width, std)
        self.encoder = CELLS.build(config.cell, width, task.source_length)
        self.decoder = CELLS.build(config.cell, width, task.length)
        self.emission = EMISSIONS.build(config.emission, width, Norm.NONE)
        if isinstance(self.decoder, HierarchicalMultiscaleLSTM) and self.decoder.config.anneal:
            raise UserError(
                f"cell.anneal={self.decoder.config.anneal}: the slope grows with scans and a "
                "decoder does not scan; set cell.slope and drop cell.anneal"
            )
        if self.decoder.state_size is None:
            cell = CELLS.name_of(config.cell)
            raise UserError(
                f"cell {cell!r} with these fields has a state that grows with the prefix, which a "
                "decoder cannot start from; use a cell with a fixed state size, such as gru or lstm"
            )

    @property
    def state_size(self) -> int | None:
        return self.decoder.state_size

    @abstractmethod
    def start(self, source: Source, source_lengths: Lengths) -> DecodingState:
        """Encode the source and return the initial state of the decoder."""

    @abstractmethod
    def step(
        self, x: Float[Tensor, "B E"], state: Any
    ) -> tuple[Float[Tensor, "B H"], DecodingState]:
        """Return the decoder's output after one more token, and its new state."""

    def features(self, tokens: Tensor, *sources: Tensor) -> Tensor:
        source, source_lengths = sources
        state, outputs = self.start(source, source_lengths), []
        for x in self.embedding(tokens).unbind(1):
            h, state = self.step(x, state)
            outputs.append(h)
        return torch.stack(outputs, dim=1)

    def begin(self, batch: int, *sources: Tensor) -> DecodingState:
        return self.start(*self.conditioning_inputs(sources))

    def advance(
        self, state: DecodingState, token: Tensor
    ) -> tuple[Float[Tensor, "B V"], DecodingState]:
        h, state = self.step(self.embedding(token), state)
        return self.emission.dense(h, self.embedding.weight), state
