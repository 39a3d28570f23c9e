"""Which positions are scored; scores beyond the lengths set to 0, with a 0 for position 0."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.kernels.autograd import Backward, CustomFunction, MemberAxis, call_with_members
from lmzoo.kernels.dispatch import has_gpu_kernels
from lmzoo.types import Lengths, Mask, Tokens, TokenScores


def scored_mask(tokens: Tokens, lengths: Lengths) -> Mask:
    """Return True where a position is scored, 1 <= t < length."""
    t = torch.arange(tokens.shape[1], device=tokens.device)
    return (t >= 1) & (t < lengths[:, None])


def mask_scores(
    values: Float[Tensor, "B scored"], lengths: Lengths, *, clamp: bool = False
) -> TokenScores:
    """Return the values of positions 1..T-1, 0 at position 0 and at t >= length.

    Half precision becomes float32, because a sum over tokens needs more digits.

    Args:
        values: a number for each position but the first, (B, T-1).
        lengths: the number of tokens of each sequence.
        clamp: whether values above 0 become 0.
    """
    if has_gpu_kernels(values):
        return _Mask.apply(values, lengths, int(clamp))[0]
    values = values.clamp_max(0) if clamp else values
    t = torch.arange(1, values.shape[1] + 1, device=values.device)
    if values.dtype in (torch.bfloat16, torch.float16):
        values = values.float()
    values = values.masked_fill(t >= lengths[:, None], 0.0)
    return nn.functional.pad(values, (1, 0))


class _Mask(CustomFunction):
    """(values, lengths, clamp), both tensors or neither with a member axis first -> (scores,)."""

    @staticmethod
    def forward(values: Tensor, lengths: Tensor, clamp: int) -> tuple[Tensor, ...]:
        from lmzoo.kernels.gpu.token_scores import forward

        def mask(values: Tensor, lengths: Tensor) -> tuple[Tensor]:
            return (forward(values.contiguous(), lengths.contiguous(), clamp),)

        return call_with_members(mask, (values, lengths), axes=2)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        *tensors, ctx.clamp = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        return _MaskBackward.apply(*upstream, *ctx.saved_tensors, ctx.clamp)[0], None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return _with_members(_Mask, info, in_dims, args)


class _MaskBackward(Backward):
    """(∂L/∂scores, values, lengths, clamp) -> (∂L/∂values,)."""

    @staticmethod
    def forward(g: Tensor, values: Tensor, lengths: Tensor, clamp: int) -> tuple[Tensor, ...]:
        from lmzoo.kernels.gpu.token_scores import backward

        def mask(g: Tensor, values: Tensor, lengths: Tensor) -> tuple[Tensor]:
            return (backward(g, values.contiguous(), lengths.contiguous(), clamp),)

        return call_with_members(mask, (g, values, lengths), axes=2)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return _with_members(_MaskBackward, info, in_dims, args)


def _with_members(function: Any, info: Any, in_dims: Any, args: Any) -> Any:
    *tensors, clamp = args
    nested = tensors[0].dim() - (in_dims[0] is not None) > 2
    members = MemberAxis(info.batch_size, nested=nested)
    outputs = function.apply(*members.merge(tensors, in_dims[:-1], [0] * len(tensors)), clamp)
    return members.split(outputs, [0])
