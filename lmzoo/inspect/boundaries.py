r"""Where the layers of a hierarchical multiscale LSTM ended their segments in a sentence.

    ended[ℓ, t] = z^ℓ_t ∈ {0, 1}        once s_t had been read, t = 0..n-2

The top layer has no boundary. Whether the segments are phrases is for the reader to see.

Chung et al. 2017 (arXiv:1609.01704), their figure of z; S2; zoo.md 4.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.cells.hm_lstm import HierarchicalMultiscaleLSTM
from lmzoo.contract import LanguageModel
from lmzoo.inspect.hooks import record_activity
from lmzoo.inspect.latent_values import numbered
from lmzoo.models.recurrent.recurrent_lm import RecurrentLM


@dataclass(frozen=True)
class Boundaries:
    """Axes of `ended`: the layers that have a boundary, lowest first, and the tokens read."""

    layers: tuple[str, ...]
    tokens: tuple[str, ...]
    ended: Float[Tensor, "layers n"]


def has_boundaries(model: LanguageModel) -> bool:
    """Whether it is made of such cells, two layers or more, and begins in one state only."""
    return (
        isinstance(model, RecurrentLM)
        and isinstance(model.cell, HierarchicalMultiscaleLSTM)
        and model.cell.config.depth > 1
        and model.config.starts <= 1
    )


@torch.no_grad()
def boundaries(model: LanguageModel, ids: Sequence[int], tokens: Sequence[str]) -> Boundaries:
    """The boundaries of one sentence, given as ids and as text, `<start>` first."""
    was_training, row = model.training, torch.tensor([list(ids)])
    with record_activity(model.eval()) as seen:
        model.log_prob(row, torch.tensor([len(ids)]))
    model.train(was_training)
    # The last part of such a cell's state is z, (1, D - 1).
    by_cell = [torch.cat([step.state[-1] for step in steps]).T for steps in seen.steps.values()]
    ended = torch.cat(by_cell)
    names = tuple(f"layer {n}" for n in range(1, len(ended) + 1))
    return Boundaries(names, numbered(tokens[:-1]), ended)
