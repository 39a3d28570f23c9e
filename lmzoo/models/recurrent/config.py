"""The config of a recurrent language model."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, model_validator

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import FloatRange, IntRange
from lmzoo.blocks.layers import EmbeddingConfig
from lmzoo.cells.base import CELLS
from lmzoo.emissions.base import EMISSIONS
from lmzoo.functional.normalise import Norm

Dropout = Annotated[
    float, FloatRange(0.0, 0.6), Field(ge=0, lt=1, exclude_if=lambda rate: not rate)
]
"""A dropout rate; 0 is not written into configs, so it leaves no trace in the identity of a run."""

Penalty = Annotated[float, Field(ge=0, exclude_if=lambda weight: not weight)]


class Start(StrEnum):
    """The state before the first token."""

    ZEROS = "zeros"
    ONES = "ones"
    LEARNED = "learned"  # starts=1


@config
class RecurrentConfig(EmbeddingConfig):
    """Embedding, cell, emission, normaliser, initial states and depth."""

    cell: Annotated[Any, CELLS] = "mgu"
    emission: Annotated[Any, EMISSIONS] = "mixture"
    norm: Norm = Norm.RMS
    """Normaliser N of the cell's inputs and of the outputs."""
    starts: Annotated[int, IntRange(1, 8)] = Field(0, ge=0, le=1024)
    """Number W of learned initial states; 0 is the cell's constant start, ones or zeros."""
    start: Start | None = Field(None, exclude_if=lambda start: start is None)
    """The initial state; None is the cell's own, or learned with `starts`."""
    num_layers: Annotated[int, IntRange(1, 4)] = Field(1, ge=1)
    """Number of stacked cells of the same kind."""
    hidden: int = Field(0, ge=0, exclude_if=lambda size: not size)
    """State size H of the cells, for rnn, lstm and gru; 0: that of the embeddings. With tied=true
    the last cell has that of the embeddings."""
    tied: bool = Field(default=True, exclude_if=lambda tied: tied)
    """The emission reads the embedding table; otherwise a table of its own."""
    head_bias: bool = Field(default=False, exclude_if=lambda biased: not biased)
    """A bias for each token (vector emission only)."""
    dropout_embedding: Dropout = 0.0
    """Rate at which tokens of the vocabulary have no input vector in a batch, in training."""
    dropout_input: Dropout = 0.0
    """Dropout rate of the inputs of every cell, in training."""
    dropout_layers: Dropout | None = Field(None, exclude_if=lambda rate: rate is None)
    """Dropout rate of the inputs of every cell but the first; None: `dropout_input`."""
    dropout_recurrent: Dropout = 0.0
    """Dropout rate of the weights from state to state, in training."""
    dropout_output: Dropout = 0.0
    """Dropout rate of the outputs N(h_t), in training."""
    penalty_activation: Penalty = 0.0
    """Weight α of activation regularisation (AR), in training."""
    penalty_slowness: Penalty = 0.0
    """Weight β of temporal activation regularisation (TAR), in training."""

    @property
    def sizes(self) -> list[int]:
        """The width of the embeddings, then that of each cell."""
        sizes = [self.width, *[self.hidden or self.width] * self.num_layers]
        return [*sizes[:-1], self.width] if self.tied else sizes

    @model_validator(mode="after")
    def _one_start(self) -> Any:
        if self.start is Start.LEARNED:  # equal functions, equal configs
            object.__setattr__(self, "starts", self.starts or 1)
            object.__setattr__(self, "start", None)
        if self.start is not None and self.starts:
            raise UserError(
                f"starts={self.starts} learns initial states, but start={self.start} sets one; "
                "drop one of them"
            )
        return self

    @model_validator(mode="after")
    def _check_head(self) -> Any:
        if self.hidden and self.tied and self.num_layers == 1:
            raise UserError(
                f"hidden={self.hidden}: the only cell of a tied model has the width of the "
                "embeddings; set tied=false or num_layers=2"
            )
        if self.head_bias and (
            EMISSIONS.name_of(self.emission) != "vector" or self.norm == Norm.L2
        ):
            raise UserError("head_bias=true needs emission=vector, and a norm other than l2")
        if self.dropout_layers is not None and self.num_layers == 1:
            raise UserError(f"dropout_layers={self.dropout_layers} needs num_layers=2 or more")
        return self

    @model_validator(mode="before")
    @classmethod
    def _refuse_bidirectional(cls, values: Any) -> Any:
        fields = getattr(values, "kwargs", values) or {}
        if fields.get("bidirectional"):
            raise UserError(
                f"bidirectional={fields['bidirectional']}: a language model may not read the "
                "tokens that it predicts; drop it, or use elmo or an encoder"
            )
        return values
