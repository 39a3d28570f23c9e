"""The contract of a recurrent cell: project, step, scan.

`project` computes everything that does not depend on the state, for all positions at once. `step`
is the recurrence. `scan` runs the recurrence over a sequence: on a CPU with a kernel if the cell
has one, otherwise with a loop over `step`.

A recurrence computes in float32 at least (`scan`, `scan_from`, `advance`). In bfloat16 and float16
a count stops at 256 or 2,048, a gate near 1 becomes 1, and a sum loses what is small: under
autocast products only are rounded, and after `.to(torch.bfloat16)` the weights and the outputs.
"""

import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_map

from lmzoo.base.registry import Registry
from lmzoo.base.search_space import Choice, IntRange
from lmzoo.functional.parameters import Draw, Undecayed, draw_matrices, uniform
from lmzoo.functional.precision import HALF, single
from lmzoo.kernels.scan import Starts
from lmzoo.kernels.tokens import TokenInputs, map_vectors, take_rows
from lmzoo.types import Hidden, SequenceVectors, Shape, Vectors

Inputs = Tensor | TokenInputs
"""Inputs of a scan: vectors (B, T, E), or token ids (B, T) with an embedding table (V, E)."""
State = tuple[Tensor, ...]
"""The state of a cell; the first tensor is h, (B, H)."""
OutputAndState = tuple[Tensor, State]
Outputs = Float[Tensor, "B T H"]
Parts = dict[str, Tensor]
"""Tensors by name: blocks of a projected input (q, k, v, ..), or windows of convolutions."""


def in_single_precision(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method of a cell, a function of inputs and a state, compute in float32 at least."""

    @functools.wraps(method)
    def computed(cell: "Cell", x: Inputs, state: Tensor | State) -> Any:
        if isinstance(x, TokenInputs):
            dtype = x.table.dtype
        else:
            dtype = x.dtype
        if dtype not in HALF:
            return method(cell, x, state)
        # A copy of the weights: the cell itself keeps its type.
        tensors = itertools.chain(cell.named_parameters(), cell.named_buffers())
        weights = {name: single(tensor) for name, tensor in tensors}
        x = map_vectors(single, x)
        arguments = (method, x, tree_map(single, state))
        found = functional_call(cell, weights, arguments)
        if isinstance(found, Tensor):
            return found.to(dtype)
        outputs, state = found
        return outputs.to(dtype), state

    return computed


class Cell(nn.Module, ABC):
    """A recurrence whose inputs and state have the same width, E = H."""

    name: ClassVar[str]
    Config: ClassVar[type]
    num_state_vectors: int = 1
    """Vectors of width H in the initial state (2 for an LSTM: h and c)."""
    outputs_state: bool = False
    """Whether the state is h alone and the outputs are h, so that `fast_scan` gives both."""
    pack_limit: ClassVar[int] = 2**20
    """Largest (B, T, E) of a member, in numbers, for which a pack is faster on a CPU: above it one
    member alone uses the whole CPU, and several exceed its cache."""
    num_boundaries: int = 0
    """Boundary detectors of a cell that segments its input; see `boundaries`."""
    zero_start: float = 0.0
    """The constant start vector that means a state of zeros.

    1 for cells whose published start is 0: models start from a vector of ones.
    """

    def __init__(self, config: Any, width: int, length: int):
        super().__init__()
        self.config = config
        self.cuts: frozenset[Any] = getattr(config, "cuts", frozenset())
        self.width = width
        self.length = length

    def forward(
        self,
        method: Callable[..., Any],
        x: Inputs,
        state: Any,
    ) -> Any:
        """Call a method of the cell; `functional_call` needs it."""
        # `functional_call` runs `forward` only: this lets it run any method.
        return method(self, x, state)

    @abstractmethod
    def project(self, x: Float[Tensor, "B T E"]) -> Float[Tensor, "B T G"]:
        """Compute the part of the steps that depends on the inputs only, for all positions."""

    @abstractmethod
    def step(
        self,
        projected: Float[Tensor, "B G"],
        state: State,
    ) -> tuple[Hidden, State]:
        """Compute one time step from the projected input: (output, next state)."""

    def initial_state(self, start: Starts) -> State:
        """Return the state whose vectors are concatenated in `start`, S = num_state_vectors · H."""
        shifted = self.shift_start(start)
        return shifted.chunk(self.num_state_vectors, -1)

    def shift_start(self, start: Starts) -> Starts:
        """Return the start vector in units of the state."""
        if self.zero_start:
            return start - self.zero_start
        return start

    def boundaries(self, state: State) -> Float[Tensor, "B D"]:
        """Return the D = num_boundaries detectors in a state: 1 where a layer ended a segment."""
        raise NotImplementedError(f"{self.name} has no boundary detectors")

    def constrain_start(self, vectors: Float[Tensor, "*N S"]) -> Float[Tensor, "*N S"]:
        """Map unconstrained vectors to valid initial states; the identity for most cells."""
        return vectors

    @in_single_precision
    def scan(self, x: Inputs, start: Starts) -> Outputs:
        """Return the outputs of all steps, from the initial states `start`."""
        outputs = self.fast_scan(x, start)
        if outputs is None:
            return self.naive_scan(x, start)
        return outputs

    def fast_scan(self, x: Inputs, start: Starts) -> Outputs | None:
        """Compute `scan` with a kernel; None without one for this variant, device and dtype."""
        state = self.initial_state(start)
        done = self.fast_scan_from(x, state)
        if done is None:
            return None
        return done[0]

    def naive_scan(self, x: Inputs, start: Starts) -> Outputs:
        """Compute `scan` with a loop over `step`: the reference for `fast_scan`."""
        state = self.initial_state(start)
        outputs, _ = self.naive_scan_from(x, state)
        return outputs

    @in_single_precision
    def scan_from(self, x: Inputs, state: State) -> tuple[Outputs, State]:
        """Return the outputs of all steps from a state, and the state after them.

        Gradients pass through the outputs; the returned state is detached.
        """
        done = self.fast_scan_from(x, state)
        if done is None:
            done = self.naive_scan_from(x, state)
        outputs, state = done
        # Callers feed these states back: gradients end here, as in truncated backpropagation.
        return outputs, tuple(part.detach() for part in state)

    def fast_scan_from(self, x: Inputs, state: State) -> OutputAndState | None:
        """Compute `scan_from` without a loop over `step`; None where this is not possible.

        A cell has this method or, if `outputs_state`, `fast_scan`. `find_recurrence` returns its
        kernels.
        """
        if not self.outputs_state:
            return None
        (h,) = state
        outputs = self.fast_scan(x, h)
        if outputs is None:
            return None
        # The outputs are the states, so the last one is the state after all positions.
        last = outputs[:, -1]
        return outputs, (last,)

    def naive_scan_from(self, x: Inputs, state: State) -> OutputAndState:
        """Compute `scan_from` with a loop over `step`."""
        outputs = []
        if isinstance(x, TokenInputs):
            x = x.vectors()
        # Of all positions in one product, then step by step.
        every = single(self.project(x))
        for projected in every.unbind(1):
            y, state = self.step(projected, state)
            outputs.append(y)
        if not outputs:
            return x, state  # no positions; E = H
        return torch.stack(outputs, 1), state

    def project_inputs(self, x: Inputs) -> Float[Tensor, "B T G"]:
        """Project all positions; of tokens, each row of the table once."""
        projected = map_vectors(lambda vectors: single(self.project(vectors)), x)
        if not isinstance(projected, TokenInputs):
            return projected
        # Rows of a table are projected once, however often their tokens occur.
        return take_rows(projected.table, projected.tokens)

    @in_single_precision
    def advance(self, x: SequenceVectors, state: State) -> tuple[Hidden, State]:
        """Compute one step of `scan` from the input itself: (output, next state)."""
        # `project` works on sequences: here of one token.
        sequence = x[:, None]
        projected = single(self.project(sequence))
        return self.step(projected[:, 0], state)

    @property
    def start_size(self) -> int:
        """Numbers in a start vector, S."""
        return self.num_state_vectors * self.width

    @property
    def state_size(self) -> int | None:
        """Floats in the state of one sequence; None if the state grows with the sequence."""
        return self.start_size

    @property
    def input_blind(self) -> bool:
        """True if the outputs do not depend on the inputs (a control)."""
        return False


CELLS: Registry[type[Cell]] = Registry("cell")
CellChoice = Annotated[Any, CELLS]

Heads = Annotated[int, Choice((1, 2, 4, 8)), Field(ge=1)]
Depth = Annotated[int, IntRange(1, 4), Field(ge=1)]
States = Annotated[int, IntRange(4, 64, log=True), Field(ge=1)]
Expand = Annotated[int, Choice((1, 2)), Field(ge=1)]
"""Fields that many cells have, with the range that a search tries."""


OwnDraw = Callable[[Shape], Tensor]
"""A function from a shape to initial values."""
Adjustment = Callable[[str, Tensor], Tensor]
"""A function from a weight's name and its drawn values to its initial values."""


def keep_drawn(name: str, drawn: Tensor) -> Tensor:
    """Return the drawn values: the adjustment that changes nothing."""
    return drawn


class Weights(nn.Module):
    """The weights of a cell, by name.

    All weights are drawn in one order, cut weights included, so a variant with cuts starts with the
    same values as the full cell in its other weights. A cut weight is None.

    Args:
        shapes: Shapes of the weights of the full cell; their order is the order of the draws.
        cut: Names of the weights to leave out.
        fan_in: Weights are drawn from U(fan_in).
        adjust: Applied to every drawn weight. It may rescale the weight or return a part of it.
        biases: Names of biases, besides those with "bias..": a named initialisation scheme sets
            them to 0, and they do not decay.
        own: Draws of weights with a published initialisation of their own, by name. A named scheme
            draws the matrices among them, and keeps vectors and biases.
    """

    def __init__(
        self,
        shapes: dict[str, Shape],
        cut: Collection[str] = (),
        *,
        fan_in: int,
        adjust: Adjustment = keep_drawn,
        biases: Collection[str] = (),
        own: Mapping[str, OwnDraw] | None = None,
    ):
        super().__init__()
        self.own_draws = dict(own or {})
        self._shapes = shapes
        self._fan_in = fan_in
        self._adjust = adjust
        self._biases = set(biases) | {name for name in shapes if name.startswith("bias")}
        for name in shapes:
            # Drawn even if it is cut: the weights after it then have the values of the full cell.
            drawn = self._draw(name)
            weight = None
            if name not in cut:
                if name in self._biases:
                    weight = Undecayed(drawn)
                else:
                    weight = nn.Parameter(drawn)
            self.register_parameter(name, weight)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def reset_parameters(self):
        """Draw every weight from U(fan_in); draw and discard the values of cut weights."""
        with torch.no_grad():
            for name in self._shapes:
                drawn = self._draw(name)
                weight = getattr(self, name)
                if weight is not None:
                    weight.copy_(drawn)

    @torch.no_grad()
    def fill(self, draw: Callable[[str, Shape], Tensor]):
        """Set every weight to what is left of a draw of the full cell's shape."""
        for name, weight in self.named_parameters():
            drawn = draw(name, self._shapes[name])
            weight.copy_(self._adjust(name, drawn))

    def _draw(self, name: str) -> Tensor:
        """Return the initial value of one weight of the full cell."""
        shape = self._shapes[name]
        # A draw of its own may advance the generator, too: the order of weights decides all values.
        own = self.own_draws.get(name)
        if own is None:
            drawn = uniform(shape, self._fan_in)
        else:
            drawn = own(shape)
        return self._adjust(name, drawn)

    def redraw(self, name: str, draw: Draw):
        """Draw one weight by a named scheme, in the full cell's shape, then adjust it."""
        weight = getattr(self, name)
        shape = self._shapes[name]
        is_bias = name in self._biases
        # Vectors with a draw of their own, such as a bias that opens a gate, keep it.
        if name in self.own_draws and (is_bias or len(shape) < 2):
            return
        # In the shape of all gates: a draw may depend on it (orthogonal).
        drawn = weight.new_zeros(shape)
        if not is_bias:
            draw_matrices(drawn, draw)
        weight.copy_(self._adjust(name, drawn))


def gate_shapes(width: int, gates: int = 4) -> dict[str, Shape]:
    """Return the weight shapes of `gates` gates, stacked by rows as in torch.nn.LSTM."""
    matrix = (gates * width, width)
    vector = (gates * width,)
    return {
        "weight_ih": matrix,
        "weight_hh": matrix,
        "bias_ih": vector,
        "bias_hh": vector,
    }


def keep_gates(
    rows: Float[Tensor, "G *_"],
    gates: str,
    kept: Collection[str],
) -> Tensor:
    """Return the rows of some gates, from stacked rows of all `gates`, one letter each."""
    blocks = rows.chunk(len(gates))
    parts = [part for gate, part in zip(gates, blocks, strict=True) if gate in kept]
    if not parts:
        # An empty block has the right number of columns.
        return rows[:0]
    return torch.cat(parts)


def all_gates(
    weight: Tensor,
    gates: str,
    kept: Collection[str],
    **others: Tensor,
) -> Tensor:
    """Return stacked rows of all `gates` from those of `kept`; others are given, or 0."""
    kept = [gate for gate in gates if gate in kept]
    if len(kept) == len(gates):
        return weight
    blocks = weight.chunk(len(kept))
    parts = dict(zip(kept, blocks, strict=True))
    parts |= others
    # A gate that is cut has zeros.
    zero = torch.zeros_like(blocks[0])
    return torch.cat([parts.get(gate, zero) for gate in gates])


def affine(
    x: Vectors,
    weight: Float[Tensor, "E G"] | None,
    bias: Float[Tensor, "G"] | None = None,
) -> Float[Tensor, "*N G"]:
    """Return x W + b; a missing weight or bias counts as zero, and G is E if both are missing."""
    if weight is not None:
        product = x @ weight
        if bias is None:
            return product
        return product + bias
    if bias is None:
        # All paths are cut.
        return x.new_zeros(x.shape)
    shape = x.shape[:-1] + bias.shape
    return bias.expand(shape)
