r"""Segment boundaries of a cell with boundary detectors, such as `hm_lstm`, in one sentence.

    ended[ℓ, t] = z^ℓ_t ∈ {0, 1}        after s_t is read, t = 0..n-2

The top layer of `hm_lstm` has no detector.

Source: Chung et al. 2017 (arXiv:1609.01704); S2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.cells.base import Cell
from lmzoo.contract import LanguageModel
from lmzoo.inspect.hooks import record_activity
from lmzoo.inspect.posterior import number_tokens
from lmzoo.models.recurrent.recurrent_lm import RecurrentLM


@dataclass(frozen=True)
class Boundaries:
    """Boundaries of one sentence."""

    layers: tuple[str, ...]
    """Names of the layers that have a detector, lowest first."""
    tokens: tuple[str, ...]
    """The tokens that are read."""
    ended: Float[Tensor, "layers n"]


def has_boundaries(model: LanguageModel) -> bool:
    """Return whether the model has a cell with boundary detectors and one initial state."""
    return (
        isinstance(model, RecurrentLM)
        and model.cell.num_boundaries > 0
        and model.config.starts <= 1
    )


@torch.no_grad()
def boundaries(model: LanguageModel, ids: Sequence[int], tokens: Sequence[str]) -> Boundaries:
    """Compute the boundaries of one sentence, given as ids and as text, `<start>` first."""
    was_training, row = model.training, torch.tensor([list(ids)])
    with record_activity(model.eval()) as activity:
        model.log_prob(row, torch.tensor([len(ids)]))
    model.train(was_training)
    by_cell = []
    for name, steps in activity.cell_steps.items():
        cell = cast("Cell", model.get_submodule(name))
        by_cell.append(torch.cat([cell.boundaries(step.state) for step in steps]).T)
    ended = torch.cat(by_cell)
    names = tuple(f"layer {n}" for n in range(1, len(ended) + 1))
    return Boundaries(names, number_tokens(tokens[:-1]), ended)
