"""Which positions are scored; scores beyond the lengths set to 0, with a 0 for position 0."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from lmzoo.functional.precision import single
from lmzoo.types import Lengths, Mask, Tokens, TokenScores


def length_mask(lengths: Lengths, count: int) -> Bool[Tensor, "B {count}"]:
    """Return the mask of `count` positions that is True at the first `lengths` of them."""
    t = torch.arange(count, device=lengths.device)
    return t < lengths[:, None]


def of_tokens(
    dense: Float[Tensor, "*N V"],
    tokens: Int[Tensor, "*N"],
) -> Float[Tensor, "*N"]:
    """Return the entries of the given tokens in tables of all tokens."""
    scores = dense.gather(-1, tokens[..., None])
    return scores.squeeze(-1)


def scored_mask(tokens: Tokens, lengths: Lengths) -> Mask:
    """Return True where a position is scored, 1 <= t < length."""
    count = tokens.shape[1]
    t = torch.arange(count, device=tokens.device)
    is_real = t < lengths[:, None]
    return (t >= 1) & is_real


def mask_scores(
    values: Float[Tensor, "B scored"],
    lengths: Lengths,
    *,
    clamp: bool = False,
) -> TokenScores:
    """Return the values of positions 1..T-1, 0 at position 0, at t >= length, above 0 if `clamp`.

    Half precision becomes float32, because a sum over tokens needs more digits.
    """
    count = values.shape[1]
    t = torch.arange(1, count + 1, device=values.device)
    is_zero = t >= lengths[:, None]
    if clamp:
        # With `clamp_max`, a step on a GPU would have two launches more.
        is_zero = is_zero | (values > 0)
    # They are summed over a sequence, for which half precision has too few digits.
    values = single(values)
    scored = values.masked_fill(is_zero, 0.0)
    return pad(scored, (1, 0))
