r"""The gradient horizon of a recurrent model: the gradient of one loss in each earlier state.

    g_d = mean over sequences of ‖ ∂ℓ_t / ∂h_{t−d} ‖,     ℓ_t = −log P(s_t | s_<t), t the last

h_t is computed from h_{t−1} and s_{t−1} and predicts s_t. h_{t−d} is the whole recurrent state, for
an LSTM with its cell. g_d / g_1 is the share of the gradient that remains after d − 1 more steps.
The gradient of a weight is a sum over steps and need not vanish, as the last steps dominate it.

    f_t ≡ f      ∂c_t/∂c_{t−d} = f^d  along the cell alone, and exactly I for f ≡ 1

Source: Hochreiter 1991; Bengio et al. 1994; S3, S4.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.base.errors import UserError
from lmzoo.contract import DecodingState, LanguageModel
from lmzoo.types import Tokens


def gradient_horizon(model: LanguageModel, tokens: Tokens) -> Float[Tensor, "T-2"]:
    """Return g_1 .. g_{T-2} in evaluation mode, of sequences without padding."""
    if model.state_size is None or not model.generates:
        raise UserError(_no_state_message(model))
    model.eval()
    state, scores, states = model.begin(len(tokens)), None, []
    for token in tokens[:, :-1].unbind(1):
        scores, state = model.advance(state, token)
        leaves: list[Tensor] = []
        state = _copy_state(state, leaves)
        if not leaves:
            raise UserError(_no_state_message(model))
        states.append(leaves)
    assert scores is not None
    loss = -scores.gather(1, tokens[:, -1:]).sum()
    # The last copy, of h_t, is made after its scores, so the loss does not depend on it.
    return _gradient_norms(loss, states[:-1])


def _no_state_message(model: LanguageModel) -> str:
    return (
        f"{model.name} has no recurrent state of fixed size; "
        "use a recurrent row such as rnn_lm, lstm_lm or gru"
    )


def _gradient_norms(loss: Tensor, states: list[list[Tensor]]) -> Tensor:
    all_leaves = [leaf for leaves in states for leaf in leaves]
    gradients = iter(torch.autograd.grad(loss, all_leaves, allow_unused=True))
    norms = []
    for leaves in states:
        squares = [_squared_norm(next(gradients), leaf) for leaf in leaves]
        norms.append(torch.stack(squares).sum(0).sqrt().mean())
    return torch.stack(norms[::-1])


def _squared_norm(gradient: Tensor | None, leaf: Tensor) -> Tensor:
    if gradient is None:
        return leaf.new_zeros(len(leaf))
    return gradient.flatten(1).square().sum(1)


def _copy_state(state: DecodingState, leaves: list[Tensor]) -> DecodingState:
    """Copy the state and append its floating-point tensors, which require grad, to `leaves`."""
    if isinstance(state, Tensor):
        if not state.is_floating_point():
            return state
        leaf = state + 0
        leaves.append(leaf if leaf.requires_grad else leaf.requires_grad_())
        return leaf
    if isinstance(state, tuple):
        parts = [_copy_state(part, leaves) for part in state]
        make: Any = type(state)
        return make(*parts) if hasattr(state, "_fields") else tuple(parts)
    return state


def half_life(norms: Float[Tensor, "D"]) -> int | None:
    """Return the first d > 1 with g_d ≤ g_1 / 2, or None."""
    below = (norms <= norms[0] / 2).nonzero().flatten().tolist()
    return below[0] + 1 if below else None
