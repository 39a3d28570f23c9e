"""Which positions are scored; scores beyond the lengths set to 0, with a 0 for position 0."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lmzoo.kernels.dispatch import CustomFunction, has_gpu_kernels
from lmzoo.types import Lengths, Mask, Tokens, TokenScores


def length_mask(lengths: Lengths, count: int) -> Bool[Tensor, "B {count}"]:
    """Return the mask of `count` positions that is True at the first `lengths` of them."""
    return torch.arange(count, device=lengths.device) < lengths[:, None]


def scored_mask(tokens: Tokens, lengths: Lengths) -> Mask:
    """Return True where a position is scored, 1 <= t < length."""
    t = torch.arange(tokens.shape[1], device=tokens.device)
    return (t >= 1) & (t < lengths[:, None])


def mask_scores(
    values: Float[Tensor, "B scored"],
    lengths: Lengths,
    *,
    clamp: bool = False,
) -> TokenScores:
    """Return the values of positions 1..T-1, 0 at position 0, at t >= length, above 0 if `clamp`.

    Half precision becomes float32, because a sum over tokens needs more digits.
    """
    if has_gpu_kernels(values):
        return _Mask.apply(values, lengths, int(clamp))[0]
    if clamp:
        values = values.clamp_max(0)
    t = torch.arange(1, values.shape[1] + 1, device=values.device)
    if values.dtype in (torch.bfloat16, torch.float16):
        values = values.float()
    values = values.masked_fill(t >= lengths[:, None], 0.0)
    return nn.functional.pad(values, (1, 0))


class _Mask(CustomFunction):
    """(values, lengths, clamp), both tensors or neither with a member axis first -> (scores,)."""

    axes = 2

    @staticmethod
    def compute(values: Tensor, lengths: Tensor, clamp: int) -> tuple[Tensor]:
        from lmzoo.kernels.gpu.token_scores import forward

        return (forward(values.contiguous(), lengths.contiguous(), clamp),)

    @staticmethod
    def gradients(values: Tensor, g: Tensor, lengths: Tensor, clamp: int) -> tuple[Tensor]:
        from lmzoo.kernels.gpu.token_scores import backward

        return (backward(g, values.contiguous(), lengths.contiguous(), clamp),)
