"""The recurrent language model."""

import math
from enum import StrEnum
from typing import Annotated, Any

from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import dropout

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import FloatRange, IntRange
from lmzoo.blocks.layers import EmbeddingConfig, EmbeddingTable
from lmzoo.blocks.log_weights import InitialStates
from lmzoo.blocks.start_mixture import StartMixture
from lmzoo.cells.base import CELLS, Cell, CellChoice, Depth, Inputs
from lmzoo.contract import Task, model
from lmzoo.emissions.base import EMISSIONS, EmissionChoice
from lmzoo.functional.initial_states import mix_starts, start_posterior
from lmzoo.functional.normalise import Norm, normalise_sequence, normalise_vectors
from lmzoo.kernels.dispatch import uses_kernels
from lmzoo.kernels.tokens import TokenInputs


def drop_features(
    x: Float[Tensor, "*N B T E"],
    rate: float,
) -> Float[Tensor, "*N B T E"]:
    """Multiply each sequence by one mask m / (1 − p), m ~ Bernoulli(1 − p)^E.

    All positions, and the axes before B, share it (Gal & Ghahramani 2016, arXiv:1512.05287).
    """
    batch, _, width = x.shape[-3:]
    ones = x.new_ones(batch, 1, width)
    mask = dropout(ones, rate)
    return x * mask


Dropout = Annotated[
    float,
    FloatRange(0.0, 0.6),
    Field(ge=0, lt=1, exclude_if=lambda rate: not rate),
]
"""A dropout rate; 0 is not written into configs, so it leaves no trace in the identity of a run."""


Start = StrEnum("Start", "ZEROS ONES LEARNED")
NumStarts = Annotated[int, IntRange(1, 8), Field(ge=0, le=1024)]
"""The state before the first token; `learned` is starts=1."""


@config
class RecurrentConfig(EmbeddingConfig):
    """Embedding, cell, emission, normaliser, initial states and depth."""

    cell: CellChoice = "mgu"
    emission: EmissionChoice = "mixture"
    norm: Norm = Norm.RMS
    """Normaliser N of the cell's inputs and of the outputs."""
    starts: NumStarts = 0
    """Number W of learned initial states; 0 is the cell's constant start, ones or zeros."""
    start: Start | None = Field(None, exclude_if=lambda start: start is None)
    """The initial state; None is the cell's own, or learned with `starts`."""
    num_layers: Depth = 1
    """Number of stacked cells of the same kind."""
    tied: bool = Field(default=True, exclude_if=lambda tied: tied)
    """The emission reads the embedding table; otherwise a table of its own."""
    dropout_input: Dropout = 0.0
    """Dropout rate of the inputs of every cell, in training."""
    dropout_output: Dropout = 0.0
    """Dropout rate of the outputs N(h_t), in training."""

    @model_validator(mode="after")
    def _one_start(self) -> Any:
        if self.start is Start.LEARNED:  # equal functions, equal configs
            object.__setattr__(self, "starts", self.starts or 1)
            object.__setattr__(self, "start", None)
        if self.start and self.starts:
            raise UserError(
                f"starts={self.starts} learns initial states, but start={self.start} sets one; "
                "drop one of them"
            )
        return self


@model(
    "recurrent_lm",
    family="recurrent",
    document="S0",
    source="Elman 1990; Hochreiter & Schmidhuber 1997; Mikolov et al. 2010",
)
class RecurrentLM(StartMixture):
    """Recurrent language model with any cell, emission, normaliser and initial states.

        x_t = N(e(s_{t-1}))
        h_t = cell(x_t, h_{t-1})           num_layers cells, each reads the outputs of the one below
        P(s_t | s_<t) = emission(N(h_t))

    x_t, h_t and e(s) are (E). `tied=false` gives the emission a table of its own.

    h_0 is a vector of ones, or, with starts = W > 0, one of W learned vectors w_i. The sequence is
    then a mixture over the initial states (`lmzoo.functional.initial_states`):

        log P(s_{1:T}) = LSE_i[ log ω_i + Σ_t log P(s_t | s_<t, h_0 = w_i) ]

    In training, `dropout_input` and `dropout_output` mask x_t of every cell and N(h_t), one mask a
    sequence (`drop_features`).

    S0 calls N "the unit sphere". Its code draws the initial embeddings from N(0, 1), that is
    embedding_std=1.
    """

    Config = RecurrentConfig

    def __init__(self, config: RecurrentConfig, task: Task):
        super().__init__(config, task)
        width = config.width
        std = config.embedding_std
        self.embedding = EmbeddingTable(task.vocab, width, std)
        cells = [CELLS.build(config.cell, width, task.length) for _ in range(config.num_layers)]
        # Under its own name, so that models of one layer keep the names of their weights.
        self.cell = cells[0]
        self.upper: Any = nn.ModuleList(cells[1:])
        self.emission = EMISSIONS.build(config.emission, width, config.norm)
        self.emission.own_tokens(task.vocab)
        self.head = None
        if not config.tied:
            self.head = EmbeddingTable(task.vocab, width, std)
        self.latent = self.emission.latent
        starts = sum(self._start_sizes)
        if config.starts and not starts:
            raise UserError(
                f"starts={config.starts}: the cell {self.cell.name} has no initial state to learn; "
                "set starts=0, or choose a recurrent cell"
            )
        if config.start is not None and math.isnan(self.cell.zero_start):
            raise UserError(
                f"start={config.start}: the layers of {self.cell.name} have no common zero; drop it"
            )
        if config.starts:
            self.starts = InitialStates(config.starts, starts)
        else:
            self.starts = None

    @property
    def leaks(self) -> str:
        if self.cell.input_blind:
            return ""
        return self.config.norm.leak

    @property
    def _start_sizes(self) -> list[int]:
        return [cell.start_size for cell in self._cells]

    def _table(self) -> Tensor:
        table = self.embedding
        if self.head is not None:
            table = self.head
        return self.scaled(table.weight)

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        read = tokens[:, :-1]
        y = self.outputs_by_start(read, drop=self.training)
        scores = self._scores_by_start(y, tokens)
        if self.starts is None:
            return scores.squeeze(0)
        return mix_starts(self.starts.log_weights(), scores)

    def most_probable(self, tokens: Tensor, lengths: Tensor, *sources: Tensor) -> Tensor:
        y = self.outputs_by_start(tokens[:, :-1])
        dense = self.emission.dense(y, self._table())
        if self.starts is None:
            return dense[0].argmax(-1)
        scores = self._scores_by_start(y, tokens)
        # What a token says of the start counts for the tokens after it only.
        weights = start_posterior(self.starts.log_weights(), scores)
        joint = weights[..., None] + dense
        mixed = joint.logsumexp(0)
        return mixed.argmax(-1)

    def posterior(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return P(z_t | s_t, s_<t) = Σ_i P(i | s_<=t) P(z_t | s_t, s_<t, h_0 = w_i)."""
        if not self.latent:
            return super().posterior(tokens, lengths)
        y = self.outputs_by_start(tokens[:, :-1])
        targets = tokens[:, 1:]
        joint = self.emission.joint(y, targets, self._table())  # W B T-1 K
        if self.starts is not None:
            scores = joint.logsumexp(-1)
            weights = start_posterior(self.starts.log_weights(), scores)
            joint = joint + weights[..., None]
        mixed = joint.logsumexp(0)
        return mixed.softmax(-1).mT

    def _scores_by_start(
        self, y: Float[Tensor, "W B t _"], tokens: Tensor
    ) -> Float[Tensor, "W B t"]:
        targets = tokens[:, 1:]
        return self.emission.log_prob(y, targets, self._table())

    def outputs_by_start(
        self,
        tokens: Tensor,
        *,
        drop: bool = False,
    ) -> Float[Tensor, "W B t E"]:
        """Return N(h) after each token, from each initial state; after dropout, if `drop`."""
        c = self.config
        count = self._num_starts
        begin = self._begin_vectors(len(tokens))
        into = 0.0
        out = 0.0
        if drop:
            into = c.dropout_input
            out = c.dropout_output
        x = self._inputs(tokens)
        if into:
            if isinstance(x, TokenInputs):
                x = x.vectors()  # a mask differs between positions of one token
            x = drop_features(x, into)
        # All initial states run as one batch, the state as the outer index.
        if count > 1:
            if isinstance(x, TokenInputs):
                x = x.repeated(count)
            else:
                x = x.repeat(count, 1, 1)
        h = self.cell.scan(x, begin[0])
        for cell, start in zip(self._cells[1:], begin[1:], strict=True):
            if into:  # the initial states share the mask of their sequence
                by_start = h.unflatten(0, (count, -1))
                dropped = drop_features(by_start, into)
                h = dropped.flatten(0, 1)
            h = cell.scan(h, start)
        outputs = h.unflatten(0, (count, -1))
        y = normalise_vectors(outputs, c.norm)
        if out:
            return drop_features(y, out)
        return y

    def _inputs(self, tokens: Tensor) -> Inputs:
        """Return N(e(s)), per vocabulary entry if there are more positions than entries."""
        norm = self.config.norm
        # Projecting each word of the vocabulary once pays only if there are more tokens than words.
        # Without kernels each position has activations of its own (`interventions.py`).
        few = tokens.numel() <= self.task.vocab
        if few or norm.over_time or not uses_kernels():
            embedded = self.embedding(tokens)
            return normalise_sequence(embedded, norm)
        table = normalise_vectors(self.embedding.weight, norm)
        return TokenInputs(tokens, table)

    def _begin_vectors(self, batch: int) -> tuple[Float[Tensor, "WB S"], ...]:
        """Return the initial vectors of each cell, for all initial states and sequences."""
        start = self._start_vectors()
        # One row for each pair of initial state and sequence, in the order of `repeat`.
        repeated = start[:, None].expand(-1, batch, -1)
        rows = repeated.flatten(0, 1)
        return rows.split(self._start_sizes, -1)

    @property
    def _cells(self) -> list[Cell]:
        return [self.cell] + list(self.upper)

    @property
    def _num_starts(self) -> int:
        return max(1, self.config.starts)

    def _start_log_weights(self) -> Tensor:
        assert self.starts is not None
        return self.starts.log_weights()

    def _start_vectors(self) -> Float[Tensor, "W S"]:
        if self.starts is not None:
            return self.cell.constrain_start(self.starts.vectors)
        value = 1.0
        match self.config.start:
            # Some cells have another constant for a state of zeros.
            case Start.ZEROS:
                value = self.cell.zero_start
            case Start.ONES:
                value = self.cell.zero_start + 1
        size = sum(self._start_sizes)
        return self.embedding.weight.new_full((1, size), value)
