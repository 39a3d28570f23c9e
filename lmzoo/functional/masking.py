r"""Which words a masked language model must guess, and what stands in their places.

    m_t    ~ Bernoulli(select)                                         guessed
    fate_t ~ hide: the mask   swap: a random word   else: itself        of the guessed

Devlin et al. 2019 (arXiv:1810.04805), 3.1 and A.1.
"""

from typing import NamedTuple

import torch

from lmzoo.types import Mask, Tokens


class Masking(NamedTuple):
    """What became of each word of a batch."""

    tokens: Tokens
    """With random words swapped in."""
    hidden: Mask
    """Whose vectors are to be the mask's."""
    guessed: Mask


def mask_words(
    tokens: Tokens, words: Mask, vocab: int, *, select: float, hide: float, swap: float
) -> Masking:
    """Each of the `words` by itself, from the global generator; all else stays."""
    guessed = words & (torch.rand(words.shape, device=words.device) < select)
    fate = torch.rand(words.shape, device=words.device)
    swapped = guessed & (fate >= hide) & (fate < hide + swap)
    others = torch.randint(vocab, tokens.shape, device=tokens.device)
    return Masking(torch.where(swapped, others, tokens), guessed & (fate < hide), guessed)
