r"""The gradient horizon of a recurrent model: the gradient of one loss in each earlier state.

    g_d = mean over sequences of ‖ ∂ℓ_t / ∂h_{t−d} ‖,     ℓ_t = −log P(s_t | s_<t), t the last

h_t is computed from h_{t−1} and s_{t−1} and predicts s_t. h_{t−d} is the whole recurrent state, for
an LSTM with its cell. g_d / g_1 is the share of the gradient that remains after d − 1 more steps.
The gradient of a weight is a sum over steps and need not vanish, as the last steps dominate it.

    f_t ≡ f      ∂c_t/∂c_{t−d} = f^d  along the cell alone, and exactly I for f ≡ 1

Source: Hochreiter 1991; Bengio et al. 1994; S3, S4.
"""

from itertools import chain

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils._pytree import tree_map_only

from lmzoo.base.errors import UserError
from lmzoo.contract import LanguageModel
from lmzoo.kernels.guest import in_evaluation
from lmzoo.types import Tokens


@in_evaluation
def gradient_horizon(model: LanguageModel, tokens: Tokens) -> Float[Tensor, "T-2"]:
    """Return g_1 .. g_{T-2} in evaluation mode, of sequences without padding."""
    refusal = UserError(
        f"{model.name} has no recurrent state of fixed size; "
        "use a recurrent row such as rnn_lm, lstm_lm or gru"
    )
    if model.state_size is None or not model.generates:
        raise refusal
    state = model.begin(len(tokens))
    scores = torch.empty(0)
    leaves = list[list[Tensor]]()

    def copy(part: Tensor) -> Tensor:
        """Copy a part of the state, whose gradient is wanted if it has floating-point numbers."""
        if not part.is_floating_point():
            return part
        own = part + 0
        if not own.requires_grad:
            own.requires_grad_()
        leaves[-1].append(own)
        return own

    for token in tokens[:, :-1].unbind(1):
        scores, state = model.advance(state, token)
        leaves.append([])
        state = tree_map_only(Tensor, copy, state)
        if not leaves[-1]:
            raise refusal
    last = tokens[:, -1:]
    loss = -scores.gather(1, last).sum()
    leaves.pop()  # the copy of h_t is made after its scores, so the loss does not depend on it
    every = list(chain.from_iterable(leaves))
    gradients = iter(torch.autograd.grad(loss, every, materialize_grads=True))
    norms = []
    for step in leaves:
        # The square of the norm in the whole state is the sum over its tensors.
        squares = []
        for _ in step:
            gradient = next(gradients).flatten(1)
            squares.append(gradient.square().sum(1))
        norm = torch.stack(squares).sum(0).sqrt()
        norms.append(norm.mean())
    # Distance 1 first: the steps are in the order of the sequence.
    return torch.stack(norms[::-1])


def half_life(norms: Float[Tensor, "D"]) -> int | None:
    """Return the first d > 1 with g_d ≤ g_1 / 2, or None."""
    is_below = norms <= norms[0] / 2
    below = is_below.nonzero().flatten().tolist()
    if below:
        return below[0] + 1
    return None
