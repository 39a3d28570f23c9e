r"""Which tokens a masked language model predicts, and what replaces them in the input.

    m_t    ~ Bernoulli(select)                                            predicted
    fate_t ~ hide: the mask   swap: a random token   else: unchanged      of the predicted tokens

Devlin et al. 2019 (arXiv:1810.04805), 3.1 and A.1.
"""

from typing import NamedTuple

import torch

from lmzoo.types import Mask, Tokens


class Masking(NamedTuple):
    """The input tokens, and which of them are hidden and predicted."""

    tokens: Tokens
    """The input, with random tokens where they were swapped."""
    hidden: Mask
    """Where the mask's vector replaces the token's."""
    predicted: Mask


def mask_tokens(
    tokens: Tokens, eligible: Mask, vocab: int, *, select: float, hide: float, swap: float
) -> Masking:
    """Mask each eligible token independently, with torch's global generator.

    Args:
        tokens: the tokens of a batch.
        eligible: the tokens that may be predicted.
        vocab: V.
        select: the probability that a token is predicted.
        hide: the share of predicted tokens that are hidden.
        swap: the share of predicted tokens that a random token replaces.
    """
    predicted = eligible & (torch.rand(eligible.shape, device=eligible.device) < select)
    fate = torch.rand(eligible.shape, device=eligible.device)
    swapped = predicted & (fate >= hide) & (fate < hide + swap)
    random = torch.randint(vocab, tokens.shape, device=tokens.device)
    return Masking(torch.where(swapped, random, tokens), predicted & (fate < hide), predicted)
