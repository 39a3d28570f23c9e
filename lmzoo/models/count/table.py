r"""Sorted tables of n-grams: how counts are kept and found.

A context of k tokens is numbered through the context one token shorter, so that all its
suffixes are found on the way and every number fits 64 bits:

    context key   number(s_{t-k+1..t-1}) · V + s_{t-k}
    n-gram key    number(s_{t-k..t-1}) · V + s_t

A `Level` holds the keys of one k, sorted, and what is known of each: a context's back-off
weight γ and an n-gram's share f, in P_k(w | h) = f(h w) + γ(h) P_{k-1}(w | h').
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


class Level(nn.Module):
    """Contexts of one length and the n-grams that extend them by a token."""

    contexts: Tensor
    grams: Tensor
    backoff: Tensor
    share: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("contexts", "grams"):
            self.register_buffer(name, torch.empty(0, dtype=torch.int64))
        for name in ("backoff", "share"):
            self.register_buffer(name, torch.empty(0, dtype=torch.float64))
        self.register_load_state_dict_pre_hook(_make_room)

    def hold(self, contexts: Tensor, grams: Tensor, backoff: Tensor, share: Tensor) -> None:
        """Take these as the level's tables."""
        self.contexts, self.grams, self.backoff, self.share = contexts, grams, backoff, share


def _make_room(level: nn.Module, state: dict[str, Tensor], prefix: str, *_: object) -> None:
    """How many n-grams there are is data: take a checkpoint's sizes before its values."""
    for name, old in list(level.named_buffers()):
        if prefix + name in state:
            setattr(level, name, old.new_empty(state[prefix + name].shape))


def find(table: Int[Tensor, "K"], keys: Int[Tensor, "*N"]) -> Int[Tensor, "*N"]:
    """Where each key stands in a sorted table, −1 where it does not."""
    if len(table) == 0:
        return torch.full_like(keys, -1)
    place = torch.searchsorted(table, keys).clamp_max(len(table) - 1)
    return place.where(table[place] == keys, -1)


def history(tokens: Int[Tensor, "B T"], back: int) -> Int[Tensor, "B T"]:
    """s_{t-back} at t, −1 before the sequence: no n-gram reaches behind `<start>`."""
    return nn.functional.pad(tokens, (back, 0), value=-1)[:, : tokens.shape[1]]


def longer(shorter: Int[Tensor, "*N"], token: Int[Tensor, "*N"], vocab: int) -> Int[Tensor, "*N"]:
    """The key of a context, or of an n-gram; −1 where either part is missing."""
    return torch.where((shorter < 0) | (token < 0), -1, shorter * vocab + token)


def picked(
    values: Float[Tensor, "K"], place: Int[Tensor, "*N"], missing: float
) -> Float[Tensor, "*N"]:
    """The value at each place, `missing` at −1."""
    if len(values) == 0:
        return torch.full(place.shape, missing, dtype=values.dtype, device=place.device)
    return values[place.clamp_min(0)].where(place >= 0, missing)
