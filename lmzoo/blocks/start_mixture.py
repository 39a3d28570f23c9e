"""Decoding with recurrent cells from W initial states at once, whose mixture is the model.

The mixture over the states is that of `lmzoo/functional/initial_states.py`.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from lmzoo.cells import stack
from lmzoo.cells.base import Cell
from lmzoo.contract import DecodingState, LanguageModel
from lmzoo.functional.initial_states import mix_next, start_posterior
from lmzoo.functional.normalise import Norm, RunningMoments, normalise_next, normalise_vectors
from lmzoo.types import Prefix


class MixtureState(NamedTuple):
    """Decoding state after some tokens. L_{i,t} is log P(s_t | s_<t) from the initial state i."""

    layers: stack.Stack
    input_stats: RunningMoments | None
    """Running mean and variance of the inputs (norm=time_std_causal only)."""
    evidence: Float[Tensor, "B W"] | None
    """Σ_{u<t} L_{i,u}, up to a constant (several initial states only)."""
    outputs: Float[Tensor, "B W E"] | None
    """N(h) from each initial state, from which L_{i,t} of the next token is computed."""


class StartMixture(LanguageModel):
    """A model of recurrent cells with `begin`, `advance` and the size of their state."""

    embedding: Any
    emission: Any

    @property
    @abstractmethod
    def _cells(self) -> Sequence[Cell]:
        """The cells, lowest first."""

    @property
    @abstractmethod
    def _num_starts(self) -> int:
        """W."""

    @abstractmethod
    def _start_vectors(self) -> Float[Tensor, "W S"]:
        """Return the initial vectors of all cells, concatenated."""

    @abstractmethod
    def _start_log_weights(self) -> Float[Tensor, "W"]:
        """Return log ω; only models with several initial states call it."""

    @abstractmethod
    def outputs_by_start(self, tokens: Prefix) -> Float[Tensor, "W B t E"]:
        """Return N(h) after each token, from each initial state."""

    def _table(self) -> Tensor:
        """Return the table that the emission reads."""
        return self.embedding.weight

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        y = self.outputs_by_start(prefix)
        table = self._table()
        last = y[:, :, -1]
        dense = self.emission.dense(last, table)  # W B V
        if len(y) == 1:
            return dense[0]
        earlier = y[:, :, :-1]
        targets = prefix[:, 1:]
        scores = self.emission.log_prob(earlier, targets, table)
        # The score of the last column is not read: the posterior at a token is that before it.
        padded = pad(scores, (0, 1))
        weights = start_posterior(self._start_log_weights(), padded)
        joint = weights[:, :, -1:] + dense
        mixed = joint.logsumexp(0)
        return mixed.clamp_max(0)

    @property
    def state_size(self) -> int | None:
        norm = self.config.norm
        width = self.config.width
        count = self._num_starts
        size = 0
        for cell in self._cells:
            if cell.state_size is None or norm is Norm.TIME_STD:
                return None
            size += count * cell.state_size
        # Each of several states has its evidence and its output.
        if count > 1:
            size += count * (1 + width)
        # Mean and squared deviations of the inputs. Their number is not counted: it is no float.
        if norm is Norm.TIME_STD_CAUSAL:
            size += 2 * width
        return size

    def begin(self, batch: int, *sources: Tensor) -> DecodingState:
        if self.config.norm is Norm.TIME_STD:  # each new token changes all earlier states
            return super().begin(batch, *sources)
        start = self._start_vectors()
        rows = start.expand(batch, -1, -1)
        layers = stack.begin(self._cells, rows)
        count = len(start)
        if count == 1:
            return MixtureState(layers, None, None, None)
        # From equal outputs `<start>` has the same score under all states: it is evidence of none.
        outputs = start.new_zeros(batch, count, self.config.width)
        evidence = outputs[..., 0]
        return MixtureState(layers, None, evidence, outputs)

    def advance(self, state: DecodingState, token: Tensor) -> tuple[Tensor, DecodingState]:
        if not isinstance(state, MixtureState):
            return super().advance(state, token)
        norm = self.config.norm
        table = self._table()
        embedded = self.embedding(token)
        x, input_stats = normalise_next(embedded, norm, state.input_stats)
        h, layers = stack.advance(self._cells, x, state.layers)
        y = normalise_vectors(h, norm)
        dense = self.emission.dense(y, table)
        if state.evidence is None or state.outputs is None:
            only = MixtureState(layers, input_stats, None, None)
            return dense[:, 0], only
        scores = self.emission.score_next(state.outputs, token, table)
        weights = self._start_log_weights()
        mixed, evidence = mix_next(weights, state.evidence, scores, dense)
        return mixed, MixtureState(layers, input_stats, evidence, y)
