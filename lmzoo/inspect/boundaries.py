r"""Segment boundaries of a cell with boundary detectors, such as `hm_lstm`, in one sentence.

    ended[ℓ, t] = z^ℓ_t ∈ {0, 1}        after s_t is read, t = 0..n-2

The top layer of `hm_lstm` has no detector.

Source: Chung et al. 2017 (arXiv:1609.01704); S2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.contract import LanguageModel
from lmzoo.inspect.posterior import number_tokens


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
    own: Any = model
    return (
        getattr(getattr(own, "cell", None), "num_boundaries", 0) > 0
        and getattr(own.config, "starts", 2) <= 1
    )


@torch.no_grad()
def boundaries(model: Any, ids: Sequence[int], tokens: Sequence[str]) -> Boundaries:
    """Compute the boundaries of one sentence, given as ids and as text, `<start>` first."""
    was_training = model.training
    state, columns = model.eval().begin(1), []
    for token in ids[:-1]:
        _, state = model.advance(state, torch.tensor([token]))
        layers = [model.cell.boundaries(layer).flatten() for layer in state.layers]
        columns.append(torch.cat(layers))
    model.train(was_training)
    ended = torch.stack(columns, dim=1)
    names = tuple(f"layer {n}" for n in range(1, len(ended) + 1))
    return Boundaries(names, number_tokens(tokens[:-1]), ended)
