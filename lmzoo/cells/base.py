"""The contract of a recurrent cell: project, step, scan.

A cell is split where the time loop cuts it. `project` is the part that needs no state:
one product over all positions at once. `step` is the recurrence proper. `scan` runs it:
by the loop over `step`, or by a sweep derived by hand where the cell offers one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.functional.draw import uniform
from lmzoo.functional.initialisers import Draw, fill
from lmzoo.kernels.scan.tokens import Words
from lmzoo.registry import Registry

Inputs = Tensor | Words
"""What a scan reads."""
State = tuple[Tensor, ...]
"""What a cell carries; the first tensor is h, (B, H)."""


class Cell(nn.Module, ABC):
    """A recurrence with input and state of one width E = H."""

    name: ClassVar[str]
    Config: ClassVar[type]
    parts: int = 1
    """Vectors of width H in the initial state (an LSTM has two)."""

    def __init__(self, config: Any, width: int, length: int) -> None:
        super().__init__()
        self.config = config
        self.width = width
        self.length = length

    @abstractmethod
    def project(self, x: Float[Tensor, "B T E"]) -> Float[Tensor, "B T G"]:
        """Everything the steps need of the inputs, for all positions at once."""

    @abstractmethod
    def step(
        self, projected: Float[Tensor, "B G"], state: State
    ) -> tuple[Float[Tensor, "B H"], State]:
        """One time step: (output, next state)."""

    def gates(self, projected: Float[Tensor, "B G"], state: State) -> dict[str, Tensor]:
        """What `step` would open by how much, by name, (B, ..) in [0, 1]; {} without gates."""
        return {}

    def initial(self, start: Float[Tensor, "B S"]) -> State:
        """The state that `start` (`parts` vectors of width H, concatenated) stands for."""
        return start.chunk(self.parts, dim=-1)

    def as_start(self, vectors: Float[Tensor, "*N S"]) -> Float[Tensor, "*N S"]:
        """Vectors that may be anything as what `initial` may be told: themselves, as a rule."""
        return vectors

    def scan(self, x: Inputs, start: Float[Tensor, "B S"]) -> Float[Tensor, "B T H"]:
        """The outputs of all steps from the given initial state.

        Inputs are vectors (B, T, E), or words (B, T) and their table (V, E).
        """
        fast = self.fast_scan(x, start)
        return self.naive_scan(x, start) if fast is None else fast

    def fast_scan(self, x: Inputs, start: Float[Tensor, "B S"]) -> Float[Tensor, "B T H"] | None:
        """The same by `functional/scan`; None where no such sweep is known."""
        return None

    def naive_scan(self, x: Inputs, start: Float[Tensor, "B S"]) -> Float[Tensor, "B T H"]:
        """The same by the loop over `step`: what a fast scan must equal."""
        state, outputs = self.initial(start), []
        x = x.vectors() if isinstance(x, Words) else x
        for projected in self.project(x).unbind(1):
            y, state = self.step(projected, state)
            outputs.append(y)
        return torch.stack(outputs, dim=1)

    def advance(self, x: Float[Tensor, "B E"], state: State) -> tuple[Float[Tensor, "B H"], State]:
        """One step of `scan`, from the input itself: (output, next state)."""
        return self.step(self.project(x[:, None])[:, 0], state)

    @property
    def state_size(self) -> int | None:
        """Floats carried per sequence from step to step; None if it grows."""
        return self.parts * self.width

    @property
    def input_blind(self) -> bool:
        """Whether the outputs do not depend on the inputs at all (controls)."""
        return False


CELLS: Registry[type[Cell]] = Registry("cell")


Adjust = Callable[[str, Tensor], Tensor]
"""What becomes of a weight, given its name and the values drawn for it."""


def as_drawn(name: str, drawn: Tensor) -> Tensor:
    """The weight as it was drawn."""
    return drawn


class Weights(nn.Module):
    """Named weights, all drawn in one order whether present or cut.

    A variant without some weights therefore starts from the very values that the full
    cell has for the others. A cut weight is None: not allocated, not counted. `adjust`
    may rescale what was drawn, or keep a part of it only, whichever scheme drew it. What is
    called bias.. or is among `biases` is a bias to such a scheme.
    """

    def __init__(
        self,
        shapes: dict[str, tuple[int, ...]],
        cut: set[str],
        fan_in: int,
        adjust: Adjust = as_drawn,
        biases: Collection[str] = (),
    ) -> None:
        super().__init__()
        self._shapes, self._fan_in, self._adjust = shapes, fan_in, adjust
        self._biases = {name for name in shapes if name.startswith("bias") or name in biases}
        for name, shape in shapes.items():
            drawn = adjust(name, uniform(shape, fan_in))
            self.register_parameter(name, None if name in cut else nn.Parameter(drawn))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def reset_parameters(self) -> None:
        """Draw every weight from U(fan_in), skipping over the cut ones."""
        with torch.no_grad():
            for name, shape in self._shapes.items():
                drawn = self._adjust(name, uniform(shape, self._fan_in))
                weight = getattr(self, name)
                if weight is not None:
                    weight.copy_(drawn)

    def redraw(self, name: str, draw: Draw) -> None:
        """By a named scheme: as wide as the full cell has it, then adjusted like any draw."""
        weight = getattr(self, name)
        drawn = weight.new_zeros(self._shapes[name])
        if name not in self._biases:
            fill(drawn, draw)
        weight.copy_(self._adjust(name, drawn))


def stacked(width: int, gates: int = 4) -> dict[str, tuple[int, ...]]:
    """Shapes of the weights of `gates` gates, one above the other as torch has them."""
    rows = gates * width
    return {
        "weight_ih": (rows, width),
        "weight_hh": (rows, width),
        "bias_ih": (rows,),
        "bias_hh": (rows,),
    }
