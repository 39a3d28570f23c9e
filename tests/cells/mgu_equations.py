"""The minimal gated unit as its specification writes it, all 256 cut sets at once."""

import torch
from torch import Tensor


def mgu(w: dict[str, Tensor], cut: Tensor, x: Tensor, start: Tensor) -> Tensor:
    """States (P, B, T, H) under P cut sets, rows of truth values (P, 8); no weight is cut away."""
    u = (~cut).to(x.dtype).T[:, :, None, None]  # 8 P 1 1
    h, states = start.expand(len(cut), *start.shape), []
    for x_t in x.unbind(1):
        f = torch.sigmoid(u[0] * (x_t @ w["xf"]) + u[1] * (h @ w["hf"]) + u[2] * w["bf"])
        c = torch.tanh(u[3] * (x_t @ w["xh"]) + u[4] * ((h * f) @ w["hh"]) + u[5] * w["bh"])
        h = u[6] * (1 - f) * h + u[7] * f * c
        states.append(h)
    return torch.stack(states, dim=2)


def gru_reset_before(
    w: dict[str, Tensor], x: Tensor, h: Tensor, *, reset_is_update: bool
) -> Tensor:
    """A GRU that resets before the product; r and z are two gates or, tied, one."""
    states = []
    for x_t in x.unbind(1):
        z = torch.sigmoid(x_t @ w["xf"] + h @ w["hf"] + w["bf"])
        r = z if reset_is_update else torch.sigmoid(x_t @ w["xf"] - h @ w["hf"] + w["bf"])
        candidate = torch.tanh(x_t @ w["xh"] + (r * h) @ w["hh"] + w["bh"])
        h = (1 - z) * h + z * candidate
        states.append(h)
    return torch.stack(states, dim=1)
