r"""Rotary positions: a rotation of queries and keys by an angle that grows with the position.

    (R^t z)_{2i, 2i+1} = rotation of (z_2i, z_2i+1) by t 10000^(−2i/d)

(R^s q) · (R^t k) depends on s and t through s − t only. d is even.

Su et al. 2021 (arXiv:2104.09864).
"""

import torch
from jaxtyping import Float
from torch import Tensor


def rotate(z: Float[Tensor, "*N t d"], first: int = 0) -> Float[Tensor, "*N t d"]:
    """Rotate the vectors of the positions first..first+t-1."""
    steps, size = z.shape[-2:]
    position = torch.arange(first, first + steps, dtype=torch.float64, device=z.device)
    even = torch.arange(0, size, 2, dtype=torch.float64, device=z.device)
    angle = position[:, None] / 10000 ** (even / size)
    cos, sin = angle.cos().to(z.dtype), angle.sin().to(z.dtype)
    a, b = z[..., ::2], z[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)
