r"""What the recurrent sequence-to-sequence models share: two tables, two cells, an emission.

    carried_0 = start(source)
    h_t, carried_t = step(e(s_{t-1}), carried_{t-1})        t = 1..T-1
    P(s_t | s_<t, source) = emission(h_t)

The cells are of one kind, so that the state one ends in is a state the other can begin in. A
cell whose state grows with what it has read hands over no such state.

Sutskever, Vinyals & Le 2014 (arXiv:1409.3215); S3; zoo.md 4.3.
"""

from abc import abstractmethod
from typing import Annotated, Any, ClassVar

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from lmzoo.blocks.embedding import Table
from lmzoo.cells.base import CELLS
from lmzoo.cells.hm_lstm import HierarchicalMultiscaleLSTM
from lmzoo.config import config
from lmzoo.contract import Carried, LanguageModel, Score, Task, needs_source_message
from lmzoo.emissions.base import EMISSIONS
from lmzoo.errors import UserError
from lmzoo.functional.normalise import Norm
from lmzoo.search_space import IntRange
from lmzoo.types import Lengths, Prefix

Source = Int[Tensor, "B S"]


@config
class Seq2SeqConfig:
    """How wide, what reads and writes, what predicts."""

    width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
    """E = H."""
    cell: Annotated[Any, CELLS] = "gru"
    emission: Annotated[Any, EMISSIONS] = "vector"
    embedding_std: float | None = Field(None, gt=0)


class RecurrentSeq2Seq(LanguageModel):
    """Subclasses say what of the source is carried, and how it is read."""

    score: ClassVar[Score] = Score.CONDITIONAL
    conditional: ClassVar[bool] = True

    def __init__(self, config: Seq2SeqConfig, task: Task) -> None:
        super().__init__(config, task)
        if not task.source_vocab:
            raise UserError(needs_source_message(self.name))
        width, std = config.width, config.embedding_std
        self.source_embedding = Table(task.source_vocab, width, std)
        self.embedding = Table(task.vocab, width, std)
        self.encoder = CELLS.build(config.cell, width, task.source_length)
        self.decoder = CELLS.build(config.cell, width, task.length)
        self.emission = EMISSIONS.build(config.emission, width, Norm.NONE)
        if isinstance(self.decoder, HierarchicalMultiscaleLSTM) and self.decoder.config.anneal:
            raise UserError(
                f"cell.anneal={self.decoder.config.anneal}: the slope grows as a cell scans and "
                "a decoder steps; set cell.slope and drop cell.anneal"
            )
        if self.decoder.state_size is None:
            cell = CELLS.name_of(config.cell)
            raise UserError(
                f"cell {cell!r} with these fields has a state that grows, which no decoder can "
                "begin in; use a cell of fixed state, as gru or lstm"
            )

    @property
    def state_size(self) -> int | None:
        return self.decoder.state_size

    @abstractmethod
    def start(self, source: Source, source_lengths: Lengths) -> Carried:
        """What the decoder begins with, when the source has been read."""

    @abstractmethod
    def step(self, x: Float[Tensor, "B E"], carried: Any) -> tuple[Float[Tensor, "B H"], Carried]:
        """The decoder's output after one more token, and what it carries on."""

    def outputs(
        self, tokens: Prefix, source: Source, source_lengths: Lengths
    ) -> Float[Tensor, "B t H"]:
        """h after each token of the target; teacher forcing, so tokens are what was said."""
        carried, outputs = self.start(source, source_lengths), []
        for x in self.embedding(tokens).unbind(1):
            h, carried = self.step(x, carried)
            outputs.append(h)
        return torch.stack(outputs, dim=1)

    def score_tokens(self, tokens: Tensor, lengths: Tensor, *given: Tensor) -> Tensor:
        y = self.outputs(tokens[:, :-1], *given)
        return self.emission.log_prob(y, tokens[:, 1:], self.embedding.weight)

    def next_log_prob(self, prefix: Tensor, *given: Tensor) -> Float[Tensor, "B V"]:
        last = self.outputs(prefix, *self.reads(given))[:, -1]
        return self.emission.dense(last, self.embedding.weight)

    def begin(self, batch: int, *given: Tensor) -> Carried:
        return self.start(*self.reads(given))

    def advance(self, carried: Carried, token: Tensor) -> tuple[Float[Tensor, "B V"], Carried]:
        h, carried = self.step(self.embedding(token), carried)
        return self.emission.dense(h, self.embedding.weight), carried
