"""Emissions in float64, with contexts, targets and an embedding table."""

from lmzoo.emissions.base import Emission
from lmzoo.functional.normalise import Norm
from lmzoo.laws.emissions import VOCAB as VOCAB
from lmzoo.laws.emissions import WIDTH as WIDTH
from lmzoo.laws.emissions import build_emission
from lmzoo.laws.emissions import contexts as contexts


def make(name: str, norm: Norm = Norm.RMS, seed: int = 0, **fields) -> Emission:
    """Build an emission in float64, with weights drawn from this seed."""
    return build_emission({"name": name, **fields}, norm, seed)
