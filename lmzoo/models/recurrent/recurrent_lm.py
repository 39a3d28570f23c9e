r"""The recurrent language model: any cell x any emission x any normaliser x W starts.

    x_t = N(e(s_{t-1}))        h_0 = 1, or one of W learned vectors w_i
    h_t = cell(x_t, h_{t-1})   num_layers of them, each reading the outputs of the one below
    P(s_t | s_<t) = emission(N(h_t))

With W learned initial states the whole sequence is a mixture over them (see
`functional/starts.py`). S0 DLM11, 12, 23, 26, 29, 43-47; zoo.md 1.4, 1.5, 2.
"""

from typing import Annotated, Any, NamedTuple, cast

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from lmzoo.blocks.embedding import Table
from lmzoo.blocks.initial_states import Starts
from lmzoo.cells import stack
from lmzoo.cells.base import CELLS, Cell, Inputs
from lmzoo.config import config
from lmzoo.contract import Carried, LanguageModel, Task, model
from lmzoo.emissions.base import EMISSIONS
from lmzoo.errors import UserError
from lmzoo.functional.initial_states import mix_next, mix_starts, start_posterior
from lmzoo.functional.normalise import (
    Norm,
    Seen,
    normalise_next,
    normalise_sequence,
    normalise_vectors,
)
from lmzoo.kernels.scan.tokens import Words
from lmzoo.search_space import IntRange


class Memory(NamedTuple):
    """What is carried from token to token while decoding."""

    layers: stack.Stack
    seen: Seen | None
    """The spread of the inputs so far, where they are divided by it."""
    evidence: Float[Tensor, "B W"] | None
    """Σ_{u<t} L_{i,u}, with learned initial states."""
    told: Float[Tensor, "B W V"] | None
    """Log P(· | s_<t, i), from which the next token's L_{i,t} is read."""


@model(
    "recurrent_lm",
    family="recurrent",
    document="S0",
    source="Elman 1990; Hochreiter & Schmidhuber 1997; Mikolov et al. 2010",
)
class RecurrentLM(LanguageModel):
    """Any cell, any emission, any normaliser, any number of initial states."""

    @config
    class Config:
        """What the recurrent language model is made of."""

        width: Annotated[int, IntRange(8, 256, log=True)] = Field(32, ge=2)
        """E = H."""
        cell: Annotated[Any, CELLS] = "mgu"
        emission: Annotated[Any, EMISSIONS] = "mixture"
        norm: Norm = Norm.RMS
        starts: Annotated[int, IntRange(1, 8)] = Field(0, ge=0)
        """W learned initial states; 0 is the published constant state of ones."""
        num_layers: Annotated[int, IntRange(1, 4)] = Field(1, ge=1)
        """Cells stacked on one another, of one kind."""
        embedding_std: float | None = Field(None, gt=0)
        """Spread of the initial embeddings; None is 1/√E. The published code used 1."""

        @model_validator(mode="before")
        @classmethod
        def _one_direction(cls, given: Any) -> Any:
            fields = getattr(given, "kwargs", given) or {}
            if fields.get("bidirectional"):
                raise UserError(
                    f"bidirectional={fields['bidirectional']}: a language model may not read the "
                    "words that it predicts; drop it, or use elmo or an encoder"
                )
            return given

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.embedding = Table(task.vocab, config.width, config.embedding_std)
        cells = [
            CELLS.build(config.cell, config.width, task.length) for _ in range(config.num_layers)
        ]
        self.cell, self.upper = cells[0], nn.ModuleList(cells[1:])
        self.emission = EMISSIONS.build(config.emission, config.width, config.norm)
        self.latent = self.emission.latent
        self.starts = Starts(config.starts, self._start_size) if config.starts else None

    @property
    def leaks(self) -> str:
        if self.config.norm is Norm.TIME_STD and not self.cell.input_blind:
            return "inputs are divided by their spread over the whole sequence (time_std)"
        return ""

    @property
    def state_size(self) -> int | None:
        # Whether a cell's state grows is a matter of its config, which all layers share.
        one, norm, starts = self.cell.state_size, self.config.norm, self.config.starts
        if one is None or norm is Norm.TIME_STD:
            return None
        # One state and its evidence for each start; of a single start the evidence says nothing.
        carried = max(1, starts) * one * self.config.num_layers + (starts if starts > 1 else 0)
        # Mean and squares of the inputs so far. How many there were is no float: all have read it.
        return carried + (2 * self.config.width if norm is Norm.TIME_STD_CAUSAL else 0)

    @property
    def _start_size(self) -> int:
        return self.cell.parts * self.config.width * self.config.num_layers

    def score_tokens(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        scores = self._scores_by_start(tokens)
        return scores[0] if self.starts is None else mix_starts(self.starts.log_weights(), scores)

    def next_log_prob(self, prefix: Tensor) -> Tensor:
        last = self._outputs(prefix)[:, :, -1]
        dense = self.emission.dense(last, self.embedding.weight)  # W B V
        if self.starts is None:
            return dense[0]
        if prefix.shape[1] == 1:
            weights = self.starts.log_weights()[:, None].expand(-1, len(prefix))
        else:
            seen = self._scores_by_start(prefix)
            weights = start_posterior(self.starts.log_weights(), nn.functional.pad(seen, (0, 1)))
            weights = weights[:, :, -1]
        return torch.logsumexp(weights[..., None] + dense, dim=0)

    def begin(self, batch: int, *given: Tensor) -> Carried:
        if self.config.norm is Norm.TIME_STD:  # every state changes with every later token
            return super().begin(batch, *given)
        start = self._start_vectors().expand(batch, -1, -1)
        layers = stack.begin(self._cells, start)
        if self.starts is None:
            return Memory(layers, None, None, None)
        none = start.new_zeros(batch, start.shape[1])
        # `<start>` itself has no score.
        return Memory(layers, None, none, none[..., None].expand(-1, -1, self.task.vocab))

    def advance(self, carried: Carried, token: Tensor) -> tuple[Tensor, Carried]:
        if not isinstance(carried, Memory):
            return super().advance(carried, token)
        norm, table = self.config.norm, self.embedding.weight
        x, seen = normalise_next(self.embedding(token), norm, carried.seen)
        h, layers = stack.advance(self._cells, x, carried.layers)
        dense = self.emission.dense(normalise_vectors(h, norm), table)
        if self.starts is None or carried.evidence is None or carried.told is None:
            return dense[:, 0], Memory(layers, seen, None, None)
        weights = self.starts.log_weights()
        mixed, evidence = mix_next(weights, carried.evidence, carried.told, token, dense)
        return mixed, Memory(layers, seen, evidence, dense)

    def posterior(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """P(z_t | s_t, s_<t) = Σ_i P(i | s_<=t) P(z_t | s_t, s_<t, i): softmax_z of the joint."""
        if not self.latent:
            return super().posterior(tokens, lengths)
        y = self._outputs(tokens[:, :-1])
        joint = self.emission.joint(y, tokens[:, 1:], self.embedding.weight)  # W B T-1 K
        if self.starts is not None:
            seen = torch.logsumexp(joint, dim=-1)
            joint = joint + start_posterior(self.starts.log_weights(), seen)[..., None]
        return torch.softmax(torch.logsumexp(joint, dim=0), dim=-1).mT

    def _scores_by_start(self, tokens: Tensor) -> Float[Tensor, "W B t"]:
        y = self._outputs(tokens[:, :-1])
        return self.emission.log_prob(y, tokens[:, 1:], self.embedding.weight)

    def _outputs(self, tokens: Tensor) -> Float[Tensor, "W B t E"]:
        """N(h) after each token, from each initial state."""
        x = self._inputs(tokens)
        start = self._start_vectors()
        count, batch = len(start), len(tokens)
        start = start[:, None].expand(-1, batch, -1).reshape(count * batch, -1)
        if count > 1:
            x = x.repeated(count) if isinstance(x, Words) else x.repeat(count, 1, 1)
        begin, *upper = start.chunk(self.config.num_layers, dim=-1)
        h = self.cell.scan(x, begin)
        for layer, begin in zip(self.upper, upper, strict=True):
            h = cast("Cell", layer).scan(h, begin)
        return normalise_vectors(h.unflatten(0, (count, batch)), self.config.norm)

    def _inputs(self, tokens: Tensor) -> Inputs:
        """N(e(s)): normalised word by word, or position by position if those are fewer."""
        norm = self.config.norm
        if norm.over_time or tokens.numel() <= self.task.vocab:
            return normalise_sequence(self.embedding(tokens), norm)
        return Words(tokens, normalise_vectors(self.embedding.weight, norm))

    @property
    def _cells(self) -> list[Cell]:
        return [self.cell, *(cast("Cell", layer) for layer in self.upper)]

    def _start_vectors(self) -> Float[Tensor, "W S"]:
        if self.starts is None:
            return self.embedding.weight.new_ones(1, self._start_size)
        return self.cell.as_start(self.starts.vectors)
