"""Record the steps of a model's cells and the calls of its attentions while it scores.

    with record_activity(model) as activity:
        model.log_prob(tokens, lengths)
    activity.cell_steps["cell"]                          gates and state of every step
    activity.attention_calls["blocks.0.attention"]       inputs of every call

Inside the block, a cell runs its `step` instead of a fast kernel, so that its gates can be
recorded. After the block, the model is unchanged.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from lmzoo.blocks.attention import Attention, KeysAndValues
from lmzoo.cells.base import Cell, State


@dataclass(frozen=True)
class CellStep:
    """One step of a cell."""

    gates: dict[str, Tensor]
    state: State
    """The state after the step."""


@dataclass(frozen=True)
class AttentionCall:
    """The inputs of one call of an attention."""

    x: Tensor
    cache: KeysAndValues
    mask: Tensor | None


@dataclass(frozen=True)
class Activity:
    """Recorded steps and calls by the module's name; modules that did not run are absent."""

    cell_steps: dict[str, list[CellStep]] = field(default_factory=dict)
    attention_calls: dict[str, list[AttentionCall]] = field(default_factory=dict)


def has_activity(model: nn.Module) -> bool:
    """Return whether the model has a cell or an attention."""
    return any(isinstance(module, Cell | Attention) for module in model.modules())


@contextmanager
def record_activity(model: nn.Module) -> Iterator[Activity]:
    """Record every cell step and every attention call until the block ends."""
    activity, overrides = Activity(), []
    try:
        for name, module in model.named_modules():
            # An instance attribute hides the method of the class until it is deleted.
            attributes = vars(module)
            if isinstance(module, Cell):
                attributes["step"] = _recording_step(module, activity.cell_steps, name)
                attributes["scan"] = module.naive_scan
                overrides += [(attributes, "step"), (attributes, "scan")]
            elif isinstance(module, Attention):
                attributes["attend"] = _recording_attend(module, activity.attention_calls, name)
                overrides.append((attributes, "attend"))
        yield activity
    finally:
        for attributes, method in overrides:
            del attributes[method]


def _recording_step(
    cell: Cell, records: dict[str, list[CellStep]], name: str
) -> Callable[..., Any]:
    step = cell.step

    def recording_step(projected: Tensor, state: State) -> tuple[Tensor, State]:
        output, new_state = step(projected, state)
        records.setdefault(name, []).append(CellStep(cell.gates(projected, state), new_state))
        return output, new_state

    return recording_step


def _recording_attend(
    attention: Attention, records: dict[str, list[AttentionCall]], name: str
) -> Callable[..., Any]:
    attend = attention.attend

    def recording_attend(x: Tensor, cache: KeysAndValues, mask: Tensor | None = None) -> Tensor:
        records.setdefault(name, []).append(AttentionCall(x, cache, mask))
        return attend(x, cache, mask)

    return recording_attend
