"""What `torch.func.vmap` maps over, as a member axis of hand-written autograd functions."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor


class Members:
    """Moves a mapped axis to where members stand, before the batch, and back.

    Where there are members already, both axes become one. A tensor that is not mapped
    is the same for all.
    """

    def __init__(self, size: int, *, already: bool) -> None:
        self.size, self.already = size, already

    def join(
        self, tensors: Sequence[Tensor], dims: Sequence[int | None], axes: Sequence[int]
    ) -> list[Tensor]:
        """Each tensor with members at its axis: 1 where time comes first, else 0."""
        return [self._join(*one) for one in zip(tensors, dims, axes, strict=True)]

    def _join(self, tensor: Tensor, dim: int | None, axis: int) -> Tensor:
        if dim is None:
            shape = [*tensor.shape[:axis], self.size, *tensor.shape[axis:]]
            tensor = tensor.unsqueeze(axis).expand(shape)
        elif dim != axis:  # a move to where it is costs as much as any other, both ways
            tensor = tensor.movedim(dim, axis)
        return tensor.flatten(axis, axis + 1) if self.already else tensor

    def split(self, found: Sequence[Tensor], axes: Sequence[int]) -> tuple[Any, Any]:
        """The results, and where their mapped axis stands."""
        if self.already:
            pairs = zip(found, axes, strict=True)
            found = [tensor.unflatten(axis, (self.size, -1)) for tensor, axis in pairs]
        return tuple(found), tuple(axes)


def mapped(
    function: Any, size: int, dims: Sequence[int | None], given: Sequence[Tensor], axes: int
) -> tuple[Any, Any]:
    """The rule by which `vmap` runs a function whose tensors have members first, or none have.

    The first of them has so many `axes` beside.
    """
    members = Members(size, already=given[0].dim() - (dims[0] is not None) > axes)
    found = function.apply(*members.join(given, dims, [0] * len(given)))
    return members.split(found, [0] * len(found))


def with_members(
    work: Callable[..., Sequence[Tensor]], given: Sequence[Tensor], axes: int
) -> tuple[Tensor, ...]:
    """What `work` makes of members; of what has none, as of one."""
    if given[0].dim() > axes:
        return tuple(work(*given))
    return tuple(found[0] for found in work(*(one[None] for one in given)))
