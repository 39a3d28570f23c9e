"""The recurrent language model."""

from collections.abc import Callable
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, NamedTuple, cast

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.base.search_space import FloatRange, IntRange
from lmzoo.blocks.carried_state import CarriesState
from lmzoo.blocks.dropout import drop_features, drop_rows, dropped_weights
from lmzoo.blocks.layers import EmbeddingConfig, EmbeddingTable
from lmzoo.blocks.log_weights import InitialStates
from lmzoo.cells import stack
from lmzoo.cells.base import CELLS, Cell, Inputs, State, build_cell
from lmzoo.contract import DecodingState, LanguageModel, Task, model
from lmzoo.emissions.base import EMISSIONS
from lmzoo.functional.initial_states import mix_next, mix_starts, start_posterior
from lmzoo.functional.normalise import (
    Norm,
    RunningMoments,
    normalise_next,
    normalise_sequence,
    normalise_vectors,
)
from lmzoo.functional.token_scores import mask_scores
from lmzoo.kernels.tokens import TokenInputs
from lmzoo.types import Lengths

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


class RecurrentState(NamedTuple):
    """Decoding state after some tokens. L_{i,t} is log P(s_t | s_<t, h_0 = w_i)."""

    layers: stack.Stack
    input_stats: RunningMoments | None
    """Running mean and variance of the inputs (norm=time_std_causal only)."""
    evidence: Float[Tensor, "B W"] | None
    """Σ_{u<t} L_{i,u}, up to a constant (several initial states only)."""
    outputs: Float[Tensor, "B W E"] | None
    """N(h) from each initial state, from which L_{i,t} of the next token is computed."""


class BlockState(NamedTuple):
    """State between two blocks of B parallel texts; detached, except before the first."""

    layers: tuple[State, ...]
    """The state of each cell; the rows are the W initial states of B texts, (W · B, ..)."""
    input_stats: RunningMoments | None
    evidence: Float[Tensor, "W B"]
    """Σ_{u<t} L_{i,u}, less the largest of the W values."""


def normalise_block(
    x: Float[Tensor, "B T E"], moments: RunningMoments | None
) -> tuple[Float[Tensor, "B T E"], RunningMoments | None]:
    """Normalise a block over time, causally: (normalised vectors, detached moments)."""
    outputs = []
    for vector in x.unbind(1):
        y, moments = normalise_next(vector, Norm.TIME_STD_CAUSAL, moments)
        outputs.append(y)
    if moments is not None:
        moments = moments[0], moments[1].detach(), moments[2].detach()
    return torch.stack(outputs, dim=1), moments


def mix_block(
    log_weights: Float[Tensor, "W"], scores: Float[Tensor, "W B T"], evidence: Float[Tensor, "W B"]
) -> tuple[Float[Tensor, "B T"], Float[Tensor, "W B"]]:
    """Mix the scores of a block over the initial states: (log P(s_t | s_<t), new evidence).

    The evidence of earlier blocks counts as the score of one more token before the block.
    """
    mixed = mix_starts(log_weights, torch.cat([evidence[..., None], scores], dim=-1))[:, 1:]
    evidence = (evidence + scores.sum(-1)).detach()
    return mixed, evidence - evidence.amax(0)


@model(
    "recurrent_lm", family="recurrent", document="S0",
    source="Elman 1990; Hochreiter & Schmidhuber 1997; Mikolov et al. 2010",
)  # fmt: skip
class RecurrentLM(CarriesState, LanguageModel):
    """Recurrent language model with any cell, emission, normaliser and initial states.

        x_t = N(e(s_{t-1}))
        h_t = cell(x_t, h_{t-1})           num_layers cells, each reads the outputs of the one below
        P(s_t | s_<t) = emission(N(h_t))

    x_t, h_t and e(s) are (E). With `hidden` = H the cells have a state (H), but the last one only
    if `tied=false`, which gives the emission a table of its own; `head_bias` adds a bias to its
    logits.

    h_0 is a vector of ones, or, with starts = W > 0, one of W learned vectors w_i. The sequence is
    then a mixture over the initial states (`lmzoo.functional.initial_states`):

        log P(s_{1:T}) = LSE_i[ log ω_i + Σ_t log P(s_t | s_<t, h_0 = w_i) ]

    In training, `dropout_input` and `dropout_output` mask x_t of every cell (`dropout_layers`: but
    the first) and N(h_t), one mask a sequence; `dropout_embedding` sets rows of e to 0 for a batch,
    at the input only; `dropout_recurrent` drops weights that multiply h_{t-1}
    (`lmzoo/blocks/dropout.py`), and two penalties are part of the objective; their sum over a
    sequence of n scored tokens is

        n · α · mean_{t,E} ỹ_t²  +  n · β · mean_{t,E} (y_{t+1} − y_t)²    y = N(h), ỹ after dropout

    S0 calls N "the unit sphere". Its code draws the initial embeddings from N(0, 1), that is
    embedding_std=1.

    Source: Elman 1990; Hochreiter & Schmidhuber 1997; Mikolov et al. 2010; Merity et al. 2017
    (arXiv:1708.01009; the penalties); S0 (DLM11, 12, 23, 26, 29, 43-47).
    """

    Config = RecurrentConfig
    head_bias: nn.Parameter | None

    def __init__(self, config: RecurrentConfig, task: Task) -> None:
        super().__init__(config, task)
        self.embedding = EmbeddingTable(task.vocab, config.width, config.embedding_std)
        cells = [
            build_cell(config.cell, inputs, size, task.length)
            for inputs, size in pairwise(config.sizes)
        ]
        self.cell, self.upper = cells[0], nn.ModuleList(cells[1:])
        if config.dropout_recurrent and not self.cell.recurrent_weights:
            raise UserError(
                f"dropout_recurrent={config.dropout_recurrent}: the cell {self.cell.name} has no "
                "weights that it drops; set it to 0, or choose rnn, lstm, lstm_peephole, janet, "
                "gru, mut, mgu or mgru"
            )
        self.emission = EMISSIONS.build(config.emission, config.sizes[-1], config.norm)
        self.head = None
        if not config.tied:
            self.head = EmbeddingTable(task.vocab, config.sizes[-1], config.embedding_std)
        bias = nn.Parameter(torch.zeros(task.vocab)) if config.head_bias else None
        self.register_parameter("head_bias", bias)
        self.latent = self.emission.latent
        starts = sum(self._start_sizes)
        spare = sum(cell.spare_start for cell in self._cells)
        self.starts = InitialStates(config.starts, starts, spare) if config.starts else None

    def reset_parameters(self) -> None:
        """Set the bias of the head to 0."""
        if self.head_bias is not None:
            nn.init.zeros_(self.head_bias)

    @property
    def leaks(self) -> str:
        return "" if self.cell.input_blind else self.config.norm.leak

    @property
    def state_size(self) -> int | None:
        norm, starts, size = self.config.norm, self.config.starts, 0
        for cell in self._cells:
            if cell.state_size is None or norm is Norm.TIME_STD:
                return None
            size += max(1, starts) * cell.state_size
        # Each of several starts has its evidence and its output.
        size += starts * (1 + self.config.sizes[-1]) if starts > 1 else 0
        # Mean and squared deviations of the inputs. Their number is not counted: it is no float.
        return size + (2 * self.config.width if norm is Norm.TIME_STD_CAUSAL else 0)

    @property
    def _start_sizes(self) -> list[int]:
        return [cell.num_state_vectors * cell.width for cell in self._cells]

    def _table(self) -> Tensor:
        """Return the table that the emission reads; the bias of the head is its last column."""
        table = self.embedding.weight if self.head is None else self.head.weight
        if self.head_bias is None:
            return table
        return torch.cat([table, self.head_bias[:, None]], dim=-1)

    def _add_one(self, y: Float[Tensor, "*N H"]) -> Float[Tensor, "*N _"]:
        """Append 1 to the outputs, for the bias of the head."""
        return y if self.head_bias is None else nn.functional.pad(y, (0, 1), value=1.0)

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self._score(tokens)[0]

    def objective(self, tokens: Tensor, lengths: Tensor, *sources: Tensor) -> Tensor:
        if not (self.config.penalty_activation or self.config.penalty_slowness):
            return self.log_prob(tokens, lengths)
        scores = self._less_penalties(*self._score(tokens), lengths)
        return mask_scores(scores, lengths, clamp=True)

    def _score(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the scores (B, t), and N(h) before and after dropout."""
        y, kept = self._pass(tokens[:, :-1], drop=self.training)
        scores = self._scores_by_start(self._add_one(kept), tokens)
        if self.starts is None:
            return scores.squeeze(0), y, kept
        return mix_starts(self.starts.log_weights(), scores), y, kept

    def _less_penalties(
        self,
        scores: Float[Tensor, "B t"],
        y: Float[Tensor, "W B t E"],
        kept: Float[Tensor, "W B t E"],
        lengths: Lengths,
    ) -> Float[Tensor, "B t"]:
        """Subtract AR and TAR, in training; the initial states share them."""
        c = self.config
        if self.training and c.penalty_activation:
            scores = scores - c.penalty_activation * kept.square().mean((0, -1))
        if self.training and c.penalty_slowness:
            n = (lengths - 1)[:, None]
            slowness = nn.functional.pad(y.diff(dim=-2).square().mean((0, -1)), (1, 0))
            scores = scores - c.penalty_slowness * slowness * (n / (n - 1).clamp(min=1))
        return scores

    def score_block(
        self, tokens: Tensor, state: BlockState | None = None
    ) -> tuple[Tensor, BlockState]:
        state = state or self._begin_block(len(tokens))
        x, stats, layers = self._inputs(tokens[:, :-1], drop=self.training), None, []
        if self.config.norm is Norm.TIME_STD_CAUSAL:
            x, stats = normalise_block(self.embedding(tokens[:, :-1]), state.input_stats)

        def scan(layer: int, x: Inputs) -> Tensor:
            h, after = self._cells[layer].scan_from(x, state.layers[layer])
            layers.append(after)
            return h

        y, kept = self._run(x, scan, drop=self.training)
        scores = self._scores_by_start(self._add_one(kept), tokens)
        weights = scores.new_zeros(1) if self.starts is None else self.starts.log_weights()
        mixed, evidence = mix_block(weights, scores, state.evidence)
        lengths = torch.full_like(tokens[:, 0], tokens.shape[1])
        mixed = self._less_penalties(mixed, y, kept, lengths)
        return mixed, BlockState(tuple(layers), stats, evidence)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        last = self._outputs(prefix)[:, :, -1]
        dense = self.emission.dense(last, self._table())  # W B V
        if self.starts is None:
            return dense[0]
        if prefix.shape[1] == 1:
            weights = self.starts.log_weights()[:, None].expand(-1, len(prefix))
        else:
            scores = self._scores_by_start(self._outputs(prefix[:, :-1]), prefix)
            weights = start_posterior(self.starts.log_weights(), nn.functional.pad(scores, (0, 1)))
            weights = weights[:, :, -1]
        return torch.logsumexp(weights[..., None] + dense, dim=0).clamp_max(0)

    def most_probable(self, tokens: Tensor, lengths: Tensor, *sources: Tensor) -> Tensor:
        y = self._outputs(tokens[:, :-1])
        dense = self.emission.dense(y, self._table())
        if self.starts is None:
            return dense[0].argmax(-1)
        weights = start_posterior(self.starts.log_weights(), self._scores_by_start(y, tokens))
        return torch.logsumexp(weights[..., None] + dense, dim=0).argmax(-1)

    def begin(self, batch: int, *sources: Tensor) -> DecodingState:
        if self.config.norm is Norm.TIME_STD:  # each new token changes all earlier states
            return super().begin(batch, *sources)
        start = self._start_vectors().expand(batch, -1, -1)
        layers = stack.begin(self._cells, start)
        if self.config.starts <= 1:
            return RecurrentState(layers, None, None, None)
        evidence = start.new_zeros(start.shape[:2])
        # From equal outputs `<start>` has the same score under all w_i: it is evidence of none.
        outputs = start.new_zeros(*evidence.shape, self.config.sizes[-1])
        return RecurrentState(layers, None, evidence, outputs)

    def advance(self, state: DecodingState, token: Tensor) -> tuple[Tensor, DecodingState]:
        if not isinstance(state, RecurrentState):
            return super().advance(state, token)
        norm, table = self.config.norm, self._table()
        x, input_stats = normalise_next(self.embedding(token), norm, state.input_stats)
        h, layers = stack.advance(self._cells, x, state.layers)
        y = self._add_one(normalise_vectors(h, norm))
        dense = self.emission.dense(y, table)
        if self.starts is None or state.evidence is None or state.outputs is None:
            return dense[:, 0], RecurrentState(layers, input_stats, None, None)
        scores = self.emission.score_next(state.outputs, token, table)
        mixed, evidence = mix_next(self.starts.log_weights(), state.evidence, scores, dense)
        return mixed, RecurrentState(layers, input_stats, evidence, y)

    def posterior(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return P(z_t | s_t, s_<t) = Σ_i P(i | s_<=t) P(z_t | s_t, s_<t, h_0 = w_i)."""
        if not self.latent:
            return super().posterior(tokens, lengths)
        y = self._outputs(tokens[:, :-1])
        joint = self.emission.joint(y, tokens[:, 1:], self._table())  # W B T-1 K
        if self.starts is not None:
            scores = torch.logsumexp(joint, dim=-1)
            joint = joint + start_posterior(self.starts.log_weights(), scores)[..., None]
        return torch.softmax(torch.logsumexp(joint, dim=0), dim=-1).mT

    def _scores_by_start(
        self, y: Float[Tensor, "W B t _"], tokens: Tensor
    ) -> Float[Tensor, "W B t"]:
        return self.emission.log_prob(y, tokens[:, 1:], self._table())

    def _outputs(self, tokens: Tensor) -> Float[Tensor, "W B t _"]:
        """Return what the emission reads after each token, from each initial state."""
        return self._add_one(self._pass(tokens, drop=False)[1])

    def _pass(self, tokens: Tensor, *, drop: bool) -> tuple[Tensor, Tensor]:
        """Return N(h) after each token, from each initial state, before and after dropout."""
        begin, cells = self._begin_vectors(len(tokens)), self._cells
        x = self._inputs(tokens, drop=drop)
        return self._run(x, lambda i, x: cells[i].scan(x, begin[i]), drop=drop)

    def _run(
        self, x: Inputs, scan: Callable[[int, Inputs], Tensor], *, drop: bool
    ) -> tuple[Float[Tensor, "W B t E"], Float[Tensor, "W B t E"]]:
        """Return N(h) of the last cell, before and after dropout, if `drop`.

        `scan(layer, inputs)` gives the outputs of one cell.
        """
        c, count = self.config, max(1, self.config.starts)
        into, out = (c.dropout_input, c.dropout_output) if drop else (0.0, 0.0)
        between = c.dropout_layers if drop and c.dropout_layers is not None else into
        if into:
            x = drop_features(x.vectors() if isinstance(x, TokenInputs) else x, into)
        if count > 1:
            x = x.repeated(count) if isinstance(x, TokenInputs) else x.repeat(count, 1, 1)
        modules = (cast("nn.Module", cell.w) for cell in self._cells)
        recurrent = c.dropout_recurrent if drop else 0.0
        with dropped_weights(modules, self.cell.recurrent_weights, recurrent):
            h = scan(0, x)
            for layer in range(1, c.num_layers):
                if between:  # the initial states share the mask of their sequence
                    h = drop_features(h.unflatten(0, (count, -1)), between).flatten(0, 1)
                h = scan(layer, h)
        y = normalise_vectors(h.unflatten(0, (count, -1)), c.norm)
        return y, drop_features(y, out) if out else y

    def _inputs(self, tokens: Tensor, *, drop: bool = False) -> Inputs:
        """Return N(e(s)), per vocabulary entry if there are more positions than entries."""
        norm, rate = self.config.norm, self.config.dropout_embedding if drop else 0.0
        kept = drop_rows(self.embedding.weight, rate) if rate else None
        if norm.over_time or tokens.numel() <= self.task.vocab:
            x = normalise_sequence(self.embedding(tokens), norm)
            return x if kept is None else x * kept[tokens]
        table = normalise_vectors(self.embedding.weight, norm)
        return TokenInputs(tokens, table if kept is None else table * kept)

    def _begin_block(self, batch: int) -> BlockState:
        begin = self._begin_vectors(batch)
        layers = tuple(c.initial_state(b) for c, b in zip(self._cells, begin, strict=True))
        return BlockState(layers, None, begin[0].new_zeros(max(1, self.config.starts), batch))

    def _begin_vectors(self, batch: int) -> tuple[Float[Tensor, "WB S"], ...]:
        """Return the initial vectors of each cell, for all initial states and sequences."""
        start = self._start_vectors()
        start = start[:, None].expand(-1, batch, -1).reshape(len(start) * batch, -1)
        return start.split(self._start_sizes, dim=-1)

    @property
    def _cells(self) -> list[Cell]:
        return [self.cell, *(cast("Cell", layer) for layer in self.upper)]

    def _start_vectors(self) -> Float[Tensor, "W S"]:
        if self.starts is None:
            zero, start = self.cell.zero_start, self.config.start
            value = {Start.ZEROS: zero, Start.ONES: zero + 1}.get(start, 1.0)
            return self.embedding.weight.new_full((1, sum(self._start_sizes)), value)
        return self.cell.constrain_start(self.starts.vectors)
