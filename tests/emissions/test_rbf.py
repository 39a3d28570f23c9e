"""Energies of the distance between context and token (S1)."""

import math

import pytest
import torch

from lmzoo.emissions.distances import Energy
from tests.emissions.support import WIDTH, contexts, make
from tests.laws.support import assert_close
from tests.tiny import FINE

FORMULAS = {
    "rbf": lambda d: -math.exp(-d * d / WIDTH),
    "squared": lambda d: d * d,
    "root": lambda d: math.sqrt(1 + d * d),
    "log": lambda d: math.log(1 + d * d),
}


@torch.no_grad()
@pytest.mark.parametrize("energy", Energy)
def test_it_computes_its_definition(energy: str) -> None:
    emission = make("rbf", energy=energy)
    y, _, table = contexts(batch=2, steps=3)
    for context, scores in zip(
        y.flatten(0, 1), emission.dense(y, table).flatten(0, 1), strict=True
    ):
        energies = [FORMULAS[energy](math.dist(context.tolist(), e.tolist())) for e in table]
        weights = [math.exp(-emission.log_scale.exp().item() * one) for one in energies]
        expected = torch.tensor(weights, dtype=torch.float64).log()
        expected = expected - expected.logsumexp(0)
        assert_close(scores, expected, FINE, "dense")


@torch.no_grad()
@pytest.mark.parametrize("energy", Energy)
def test_initial_logits_have_the_slope_of_a_tied_softmax(energy: Energy) -> None:
    """Near d² = E, moving a token towards the context by δ in y·e(v) raises its logit by δ."""
    emission = make("rbf", energy=energy)
    y = torch.zeros(1, WIDTH).double()
    near, far = ((WIDTH + change) ** 0.5 for change in (-1e-4, 1e-4))
    table = torch.zeros(2, WIDTH).double()
    table[0, 0], table[1, 0] = near, far
    difference = emission.logits(y, table)[0]
    assert (difference[0] - difference[1]).item() == pytest.approx(1e-4, rel=1e-3)
