"""Looking over a model's shoulder: what its cells and attentions were asked while it scored.

    with watched(model) as seen:
        model.log_prob(tokens, lengths)
    seen.steps["cell"]      the gates and the state of every step
    seen.looks["blocks.0.attention"]      queries, keys and what they might see

While it is watched a cell is run by its own `step`, whose gates these are; afterwards the
model is as it was.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from lmzoo.blocks.attention import Attention, Remembered
from lmzoo.cells.base import Cell, State


@dataclass(frozen=True)
class CellStep:
    """One step of a cell."""

    gates: dict[str, Tensor]
    state: State
    """What is carried on."""


@dataclass(frozen=True)
class AttentionCall:
    """One call of an attention."""

    x: Tensor
    remembered: Remembered
    see: Tensor | None


@dataclass(frozen=True)
class Activity:
    """By the module's name in the model; what was never asked is not here."""

    steps: dict[str, list[CellStep]] = field(default_factory=dict)
    looks: dict[str, list[AttentionCall]] = field(default_factory=dict)


def has_activity(model: nn.Module) -> bool:
    """Whether it has a part that can be watched."""
    return any(isinstance(module, Cell | Attention) for module in model.modules())


@contextmanager
def record_activity(model: nn.Module) -> Iterator[Activity]:
    """Write down every step and every look until the block ends."""
    seen, touched = Activity(), []
    try:
        for name, module in model.named_modules():
            # An attribute of the object hides the method of its class, and leaves with it.
            own = vars(module)
            if isinstance(module, Cell):
                own["step"] = _stepping(module, seen.steps, name)
                own["scan"] = module.naive_scan
                touched += [(own, "step"), (own, "scan")]
            elif isinstance(module, Attention):
                own["look"] = _looking(module, seen.looks, name)
                touched.append((own, "look"))
        yield seen
    finally:
        for own, method in touched:
            del own[method]


def _stepping(cell: Cell, seen: dict[str, list[CellStep]], name: str) -> Callable[..., Any]:
    step = cell.step

    def stepping(projected: Tensor, state: State) -> tuple[Tensor, State]:
        output, after = step(projected, state)
        seen.setdefault(name, []).append(CellStep(cell.gates(projected, state), after))
        return output, after

    return stepping


def _looking(
    attention: Attention, seen: dict[str, list[AttentionCall]], name: str
) -> Callable[..., Any]:
    look = attention.look

    def looking(x: Tensor, remembered: Remembered, see: Tensor | None = None) -> Tensor:
        seen.setdefault(name, []).append(AttentionCall(x, remembered, see))
        return look(x, remembered, see)

    return looking
