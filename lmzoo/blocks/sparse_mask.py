r"""Masks of causal attention: all earlier positions, a local window, or a window and a stride.

    window = 0              j <= i
    window = w              i − w < j <= i
    window = w, stride = l  i − w < j <= i, or j <= i and (i − j) mod l = 0

D layers of a local window read the last D (w − 1) + 1 positions. With a stride of l = w ≈ √T, two
layers connect any two positions by O(T √T) pairs instead of O(T²).

Child et al. 2019 (arXiv:1904.10509), the strided pattern with both of its parts in every head.
"""

import torch
from jaxtyping import Bool
from torch import Tensor


def sparse_causal_mask(
    count: int,
    window: int = 0,
    stride: int = 0,
    device: torch.device | None = None,
    *,
    last: int | None = None,
) -> Bool[Tensor, "rows {count}"]:
    """Return True where position i (row) attends to position j (column).

    The rows are those of all `count` positions, or of the `last` ones only.
    """
    j = torch.arange(count, device=device)
    i = j if last is None else j[count - last :]
    back = i[:, None] - j
    seen = back >= 0
    if not window:
        return seen
    near = back < window
    return seen & (near | (back % stride == 0) if stride else near)
