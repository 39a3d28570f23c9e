"""Emission heads in float64 with contexts, targets and a table to score."""

from typing import Any

import torch
from torch import Tensor

from lmzoo.emissions.base import EMISSIONS, Emission
from lmzoo.functional.normalise import Norm

WIDTH, VOCAB = 4, 7


def make(name: str, norm: Norm = Norm.RMS, seed: int = 0, **fields: Any) -> Emission:
    """The head with the weights that this seed gives, in float64."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = EMISSIONS.build(EMISSIONS.read({"name": name, **fields}), WIDTH, norm)
    return head.double()


def contexts(batch: int = 3, steps: int = 5, seed: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Context vectors (B, T, E), targets (B, T) and an embedding table (V, E)."""
    generator = torch.Generator().manual_seed(seed)
    options: dict[str, Any] = {"generator": generator, "dtype": torch.float64}
    y = torch.randn(batch, steps, WIDTH, **options)
    targets = torch.randint(VOCAB, (batch, steps), generator=generator)
    return y, targets, torch.randn(VOCAB, WIDTH, **options)
