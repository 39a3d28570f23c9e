"""Energies of the distance between context and token (S1)."""

import math

import pytest
import torch

from lmzoo.emissions.rbf import Energy
from lmzoo.functional.normalise import Norm
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
def test_the_squared_distance_is_a_tied_softmax_with_a_bias() -> None:
    emission, (y, _, table) = make("rbf", energy="squared"), contexts()
    beta = emission.log_scale.exp()
    logits = 2 * beta * y @ table.T - beta * table.square().sum(-1)
    assert_close(emission.dense(y, table), logits.log_softmax(-1), FINE, "dense")


@torch.no_grad()
def test_embeddings_of_equal_length_make_the_squared_distance_a_tied_softmax() -> None:
    """β starts at ½, where the factor 2β is 1."""
    y, targets, table = contexts()
    table = table / table.norm(dim=-1, keepdim=True)
    actual = make("rbf", energy="squared").log_prob(y, targets, table)
    expected = make("vector", Norm.NONE).log_prob(y, targets, table)
    assert_close(actual, expected, 1e-7, "scores")  # β is rounded to float32


@torch.no_grad()
@pytest.mark.parametrize("energy", Energy)
def test_only_the_squared_distance_bounds_the_rank_of_the_logits(energy: Energy) -> None:
    generator = torch.Generator().manual_seed(0)
    y, table = (torch.randn(40, WIDTH, generator=generator).double() for _ in range(2))
    rank = torch.linalg.matrix_rank(make("rbf", energy=energy).logits(y, table), rtol=1e-9)
    assert (rank.item() <= WIDTH + 2) is (energy is Energy.SQUARED)


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


@torch.no_grad()
def test_a_far_token_costs_at_most_beta() -> None:
    emission = make("rbf")
    y, _, table = contexts()
    logits = emission.logits(y, torch.cat([table, 1e6 * table]))
    assert logits.amin() >= 0
    assert logits.amax() <= emission.log_scale.exp()
