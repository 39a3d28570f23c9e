"""Emissions in float64, with contexts, targets and an embedding table."""

from typing import Any

import torch
from torch import Tensor

from lmzoo.emissions.base import EMISSIONS, Emission
from lmzoo.functional.normalise import Norm

WIDTH, VOCAB = 4, 7


def make(name: str, norm: Norm = Norm.RMS, seed: int = 0, **fields: Any) -> Emission:
    """Build an emission in float64, with weights drawn from this seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        emission = EMISSIONS.build(EMISSIONS.parse({"name": name, **fields}), WIDTH, norm)
    return emission.double()


def contexts(batch: int = 3, steps: int = 5, seed: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Return context vectors (B, T, E), targets (B, T) and an embedding table (V, E)."""
    generator = torch.Generator().manual_seed(seed)
    options: dict[str, Any] = {"generator": generator, "dtype": torch.float64}
    y = torch.randn(batch, steps, WIDTH, **options)
    targets = torch.randint(VOCAB, (batch, steps), generator=generator)
    return y, targets, torch.randn(VOCAB, WIDTH, **options)
