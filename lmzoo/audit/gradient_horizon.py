r"""How far back a recurrent model learns from: the gradient of one loss in each earlier state.

    g_d = mean over sequences of ‖ ∂ℓ_t / ∂h_{t−d} ‖,     ℓ_t = −log P(s_t | s_<t), t the last

h_t is computed from h_{t−1} and s_{t−1} and predicts s_t; h_{t−d} stands for all that is
carried there (an LSTM's cell too). g_d / g_1 is what is left of the gradient after d − 1
more steps. The *sum* over steps, which is what a weight gets, need not vanish: near steps
dominate it.

    f_t ≡ f      ∂c_t/∂c_{t−d} = f^d  along the cell alone, and exactly I for f ≡ 1

Hochreiter 1991; Bengio et al. 1994; zoo.md 4.4 (S3, S4).
"""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.contract import Carried, LanguageModel
from lmzoo.errors import UserError
from lmzoo.types import Tokens


def gradient_horizon(model: LanguageModel, tokens: Tokens) -> Float[Tensor, "T-2"]:
    """g_1 .. g_{T-2} of sequences of full length, in evaluation.

    Raises:
        UserError: the model carries no state of fixed size, or scores nothing left to right.
    """
    if model.state_size is None or not model.causal:
        raise UserError(_without_state(model))
    model.eval()
    carried, scores, states = model.begin(len(tokens)), None, []
    for token in tokens[:, :-1].unbind(1):
        scores, carried = model.advance(carried, token)
        leaves: list[Tensor] = []
        carried = _tracked(carried, leaves)
        if not leaves:
            raise UserError(_without_state(model))
        states.append(leaves)
    assert scores is not None  # they are of h_t itself: the first state that counts is h_{t-1}
    loss = -scores.gather(1, tokens[:, -1:]).sum()
    return _norms(loss, states[:-1])


def _without_state(model: LanguageModel) -> str:
    return (
        f"{model.name} carries no state of fixed size from token to token; "
        "a gradient horizon is of recurrent rows: rnn_lm, lstm_lm, gru ..."
    )


def _norms(loss: Tensor, states: list[list[Tensor]]) -> Tensor:
    every = [leaf for leaves in states for leaf in leaves]
    found = iter(torch.autograd.grad(loss, every, allow_unused=True))
    norms = []
    for leaves in states:
        squares = [_square(next(found), leaf) for leaf in leaves]
        norms.append(torch.stack(squares).sum(0).sqrt().mean())
    return torch.stack(norms[::-1])


def _square(gradient: Tensor | None, leaf: Tensor) -> Tensor:
    """Σ g² of each sequence."""
    if gradient is None:
        return leaf.new_zeros(len(leaf))
    return gradient.flatten(1).square().sum(1)


def _tracked(carried: Carried, leaves: list[Tensor]) -> Carried:
    """The same, every number of it a tensor of its own in the graph."""
    if isinstance(carried, Tensor):
        if not carried.is_floating_point():
            return carried
        leaf = carried + 0
        leaves.append(leaf if leaf.requires_grad else leaf.requires_grad_())
        return leaf
    if isinstance(carried, tuple):
        parts = [_tracked(part, leaves) for part in carried]
        make: Any = type(carried)
        return make(*parts) if hasattr(carried, "_fields") else tuple(parts)
    return carried


def half_life(norms: Float[Tensor, "D"]) -> int | None:
    """The first d > 1 whose gradient is at most half of g_1; None if there is none."""
    below = (norms <= norms[0] / 2).nonzero().flatten().tolist()
    return below[0] + 1 if below else None


def horizons(norms: Float[Tensor, "D"]) -> Iterator[tuple[int, float, float]]:
    """(d, g_d, g_d / g_1) for a table."""
    for d, g in enumerate(norms.tolist(), 1):
        yield d, g, g / norms[0].item()
