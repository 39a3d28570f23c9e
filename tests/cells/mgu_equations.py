"""The equations of the MGU, for all 256 sets of cuts at once."""

import torch
from torch import Tensor


def mgu(w: dict[str, Tensor], cut: Tensor, x: Tensor, start: Tensor) -> Tensor:
    """Return the states (P, B, T, H) of P sets of cuts, rows of `cut`."""
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
    """Return the states of a GRU with reset=before, whose r equals z if `reset_is_update`."""
    states = []
    for x_t in x.unbind(1):
        z = torch.sigmoid(x_t @ w["xf"] + h @ w["hf"] + w["bf"])
        r = z if reset_is_update else torch.sigmoid(x_t @ w["xf"] - h @ w["hf"] + w["bf"])
        candidate = torch.tanh(x_t @ w["xh"] + (r * h) @ w["hh"] + w["bh"])
        h = (1 - z) * h + z * candidate
        states.append(h)
    return torch.stack(states, dim=1)
