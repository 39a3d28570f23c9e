r"""What a prediction depends on: the token d steps back, and the order of the tokens.

    r_d   = mean TV( P(· | s), P(· | s with another token d steps back) )
    order = mean TV( P(· | s), P(· | s with the tokens before the last shuffled) )
            / mean TV( P(· | s), P(· | s with the tokens before the last replaced) )

TV is the total variation distance, ½ Σ_v |p_v − q_v|. Other tokens are those of another sequence at
the same place. The shape of r says which function a model is, above all before training:

    bag of words     r_d is the same for all d, order ≈ 0       a mean over the tokens
    n-gram           r_d = 0 for d ≥ n                          a convolution of n − 1 tokens
    moving average   r_d falls by one factor per step           a recurrence that forgets

Source: derived from S2.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.base.errors import UserError
from lmzoo.contract import LanguageModel
from lmzoo.types import Tokens


@torch.no_grad()
def reach(model: LanguageModel, tokens: Tokens) -> tuple[Float[Tensor, "T-2"], float]:
    """Return r_1 .. r_{T-2} and the order of the last prediction, in evaluation mode.

    Args:
        model: A causal model.
        tokens: At least two sequences (B, T) without padding, from <start> on.

    Raises:
        UserError: The model is not causal.
    """
    if not model.generates or model.conditional:
        raise UserError(f"{model.name} does not predict a next token from a prefix alone")
    model.eval()
    prefix = tokens[:, :-1]
    other, steps = prefix.roll(1, 0), prefix.shape[1]
    p = model.next_log_prob(prefix).exp()

    def distance(changed: Tensor) -> float:
        """Return the mean over the sequences that changed; 0 if there are none."""
        differs = (changed != prefix).any(1)
        q = model.next_log_prob(changed).exp()
        values = (p - q).abs().sum(-1)[differs] / 2
        return float(values.mean()) if len(values) else 0.0

    back = []
    for d in range(1, steps):
        changed = prefix.clone()
        changed[:, -d] = other[:, -d]
        back.append(distance(changed))
    middle = slice(1, steps - 1)
    shuffled, replaced = prefix.clone(), prefix.clone()
    keys = torch.rand(shuffled[:, middle].shape, generator=torch.Generator().manual_seed(0))
    shuffled[:, middle] = prefix[:, middle].gather(1, keys.argsort(1))
    replaced[:, middle] = other[:, middle]
    content = distance(replaced)
    return torch.tensor(back), distance(shuffled) / content if content else 0.0
