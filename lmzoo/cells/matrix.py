r"""The shared parts of cells whose state is a matrix per head.

    z_t = x_t W_in                                          projections, short convolution if any
    S_t = (diag(w_t) − p_t r_tᵀ) S_{t-1} + k_t v_tᵀ         `lmzoo.functional.matrix_state`
    y_t = ( N(S_tᵀ q_t) ⊙ swish(x_t W_g) ) W_y              norm per head, output gate

S is (K, V) for each of n heads. The number of columns of a head is rounded up, so any number of
heads works with any width. S_0 is the start vector minus 1: the zoo's constant start of ones is
the published S_0 = 0. A cell defines `update`; `step` and `fast_scan` are the same for all.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear, silu

from lmzoo.cells.base import Cell, Inputs, OutputAndState, OwnDraw, Parts, Starts, State, Weights
from lmzoo.cells.draws import WINDOW
from lmzoo.functional.convolution import convolve
from lmzoo.functional.matrix_state import Update, matrix_scan, matrix_step
from lmzoo.functional.normalise import rms_norm
from lmzoo.types import Shape

Drawn = tuple[Shape | int, OwnDraw]
"""The shape of a weight, or the size of a vector, and its draw."""
WeightTable = Mapping[str, int | Drawn]
"""Rows of a projection, or shape and draw, of each weight."""


class MatrixCell(Cell):
    """Base class: a subclass defines its weights, `update`, and which parts of the output exist.

    The tensors of the state are S, then those of `initial_memory`.
    """

    pack_limit = 2**17
    """Packs of eight take 0.60 to 0.68 of the time alone at 41,000 numbers, and 0.94 to 1.33 at
    410,000 (GLA, Mamba, RWKV-7)."""
    zero_start = 1.0
    convolved: tuple[str, ...] = ()
    """Projections that pass a causal depthwise convolution (`w.conv`) and SiLU; they come first."""
    _columns: Mapping[str, int] = {}
    substeps: int = 1
    """Steps of S per token. If there are several, `update` has them on an axis before the heads
    (`matrix_state.stacked`), and the last one is read."""
    w: Weights

    def shape_state(self, heads: int, keys: int, values: int):
        """Set the sizes of S: n heads of (K, V)."""
        self.heads = heads
        self.keys = keys
        self.values = values
        self._matrix = heads * keys * values
        # Start vectors have the width of the cell; the last may have columns to spare.
        self.num_state_vectors = -(-self._matrix // self.width)

    def set_weights(self, weights: WeightTable, cut: set[str], **own: OwnDraw):
        """Set the weights `w.NAME`, in the order of their draws.

        Projections are given by number of rows, in the order of `project`, and the others by shape
        and draw; `own` has the draws of projections that are not torch's.
        """
        shapes: dict[str, Shape] = {}
        draws: dict[str, OwnDraw] = {}
        columns = {}
        for name, weight in weights.items():
            # A projection is given by its rows: `project` makes all of them in one product.
            if isinstance(weight, int):
                shapes[name] = (weight, self.width)
                if name not in cut:
                    columns[name] = weight
            else:
                shape, draws[name] = weight
                if isinstance(shape, int):
                    shape = (shape,)
                shapes[name] = shape
        draws |= own
        self.w = Weights(shapes, cut, fan_in=self.width, own=draws)
        self._columns = columns
        present = [name for name in self.convolved if name in columns]
        self._convolved_present = present
        self._conv_columns = sum(columns[name] for name in present)

    @property
    def memory_columns(self) -> int:
        """The first columns of `project`, which are q, k and v of the cell or become them."""
        total = 0
        for name, size in self._columns.items():
            if name in {"q", "k", "v", "x", "b", "c", "u"}:
                total += size
        return total

    @abstractmethod
    def update(self, z: Parts) -> Update:
        """Return the coefficients of the recurrence from the projections, (*N, columns) each."""

    def output(
        self,
        o: Float[Tensor, "*N n V"],
        z: Parts,
        update: Update,
    ) -> Tensor:
        """Return y from the readout o: norm, output gate, W_y; a missing weight is a cut part."""
        scales = getattr(self.w, "norm", None)
        if scales is not None:
            scales = scales.view(-1, self.values)
            o = normed(o, scales)
        o = o.flatten(-2)
        if "gate" in z:
            gate = self.output_gate(z["gate"])
            o = o * gate
        return linear(o, self.w.out)

    def output_gate(self, gate: Float[Tensor, "*N V"]) -> Float[Tensor, "*N V"]:
        """Return the output gate from its projection."""
        return silu(gate)

    def project(self, x: Tensor) -> Tensor:
        # One product for all projections.
        parts = [getattr(self.w, name) for name in self._columns]
        weight = torch.cat(parts)
        return linear(x, weight)

    def initial_memory(self, start: Tensor) -> State:
        """Return the tensors of the state other than S at the start: the convolution's window."""
        if not self._convolves:
            return ()
        # A window is what the next step reads: one input less than the convolution.
        window = start.new_zeros(len(start), WINDOW - 1, self._conv_columns)
        return (window,)

    def prepare(
        self,
        projected: Float[Tensor, "B T G"],
        memory: State,
    ) -> tuple[Parts, State]:
        """Return the named projections of T steps, convolved where published, and the memory."""
        columns = list(self._columns.values())
        count = len(self._convolved_present)
        if count:
            # The convolution reads its columns as one block.
            sizes = columns[count:]
            sizes.insert(0, self._conv_columns)
            blocks = projected.split(sizes, -1)
            mixed = blocks[0]
            if self._convolves:
                bias = getattr(self.w, "bias_conv", None)
                mixed, window = convolve(mixed, memory[0], self.w.conv, bias)
                memory = (window,)
            pieces = mixed.split(columns[:count], -1)
            # SiLU stays where the convolution is cut.
            parts = [silu(piece) for piece in pieces]
            parts += blocks[1:]
        else:
            parts = projected.split(columns, -1)
        z = dict(zip(self._columns, parts, strict=True))
        return z, memory

    def step(self, projected: Tensor, state: State) -> OutputAndState:
        # `prepare` works on sequences: here of one token.
        sequence = projected[:, None]
        parts, memory = self.prepare(sequence, state[1:])
        z = {name: part[:, 0] for name, part in parts.items()}
        update = self.update(z)
        o, matrix = self.step_memory(update, state[0])
        y = self.output(o, z, update)
        return y, (matrix,) + memory

    def step_memory(self, update: Update, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the steps of one token: (o_t, S_t)."""
        if self.substeps == 1:
            return matrix_step(update, matrix)
        o = matrix
        for i in range(self.substeps):
            step = update.each(lambda part, i=i: part[:, i])
            o, matrix = matrix_step(step, matrix)
        return o, matrix

    def scan_memory(self, update: Update, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the steps of all tokens: (o_1..o_T, S_T)."""
        if self.substeps == 1:
            return matrix_scan(update, matrix)
        # Substeps are steps of a longer sequence; the last one of each token is read.
        steps = update.each(lambda part: part.flatten(1, 2))
        o, matrix = matrix_scan(steps, matrix)
        last = self.substeps - 1
        return o[:, last :: self.substeps], matrix

    def fast_scan_from(self, x: Inputs, state: State) -> OutputAndState:
        projected = self.project_inputs(x)
        return self.scan_projected(projected, state)

    def scan_projected(
        self, projected: Float[Tensor, "B T G"], state: State
    ) -> tuple[Float[Tensor, "B T H"], State]:
        """Compute `fast_scan_from` from the projections."""
        z, memory = self.prepare(projected, state[1:])
        update = self.update(z)
        o, matrix = self.scan_memory(update, state[0])
        y = self.output(o, z, update)
        return y, (matrix,) + memory

    def initial_state(self, start: Starts) -> State:
        # Start vectors have columns to spare where the width does not divide the size of S.
        numbers = self.shift_start(start)[:, : self._matrix]
        shape = (self.heads, self.keys, self.values)
        matrix = numbers.unflatten(-1, shape)
        return (matrix,) + self.initial_memory(start)

    @property
    def state_size(self) -> int | None:
        start = torch.zeros(1, self.start_size)
        memory = self.initial_memory(start)
        return self._matrix + sum(part.numel() for part in memory)

    @property
    def _convolves(self) -> bool:
        if self._conv_columns == 0:
            return False
        return getattr(self.w, "conv", None) is not None

    def split_heads(self, x: Float[Tensor, "*N M"]) -> Float[Tensor, "*N n D"]:
        """Split the last axis by heads."""
        return x.unflatten(-1, (self.heads, -1))


def normed(x: Tensor, scales: Tensor | None) -> Tensor:
    """Return RMSNorm(x); x itself if the scales are cut."""
    if scales is None:
        return x
    return rms_norm(x) * scales


def head_norm(
    h: Float[Tensor, "*N H"],
    heads: int,
    scales: Tensor | None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Float[Tensor, "*N H"]:
    """Return LayerNorm(h) per head; h itself if the scales are cut."""
    if scales is None:
        return h
    columns = h.shape[-1]
    flat = h.reshape(-1, columns)
    # Groups of channels are heads.
    normalised = torch.group_norm(flat, heads, scales, bias, eps)
    return normalised.view(h.shape)


def head_size(width: int, heads: int) -> int:
    """Return the columns of a head, rounded up."""
    return -(-width // heads)


def fixed_log_decays(heads: int, *, scales: bool = True) -> list[float]:
    """Return the log γ of every head: γ_h = 1 − 2^(−5−h); without scales 127/128 for all heads."""
    powers = [7] * heads
    if scales:
        powers = [5 + h for h in range(heads)]
    # log1p: 1 − 2^−k has few digits of 2^−k left.
    return [math.log1p(-(2.0**-power)) for power in powers]
