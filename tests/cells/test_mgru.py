"""All 4,096 patterns of the MGRU against its equations, and its options."""

from typing import Any

import pytest
import torch
from torch import Tensor

from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS
from lmzoo.cells.mgu import MGRU, Carry, Gate, MGRUCut, Output, PriorCarry, Squash
from lmzoo.laws.tiny import assert_close
from tests.cells.support import LENGTH, WIDTH, bits, groups, inputs, make, outputs, subsets
from tests.tiny import FINE

PATTERNS = subsets(12)


def weights(width: int = WIDTH, length: int = LENGTH) -> dict[str, Tensor]:
    """Return all weights that a pattern may use: gate, candidate, and both kinds of attention."""
    by_key = make("mgru", width, length, carry="prior", prior=False)
    by_query = make("mgru", width, length, carry="bilinear", heads=2)
    parameters = [*by_query.named_parameters(), *by_key.named_parameters()]
    return {name: weight.detach() for name, weight in parameters}


def gate_input(h: Tensor, m: Tensor) -> Tensor:
    """Return what the gate reads: h; h − ½ with 6 but not 7; ½ logit(h) with 9 as well."""
    centred = h - 0.5
    logit = torch.atanh((2 * centred).clamp(-0.9999, 0.9999))
    changed = torch.where(m[9], logit, centred)
    return torch.where(m[6] & ~m[7], changed, h)


def carried(outputs: list[Tensor], h: Tensor, w: dict[str, Tensor], m: Tensor) -> Tensor:
    """Return j after the first step: h, or attention over o_0..o_{t-1}; 10 wins over 11."""
    earlier = torch.stack(outputs, dim=2)  # P B s H
    key_weights = (earlier @ w["attend.key"]).softmax(2)
    by_key = (key_weights * earlier).sum(2)
    scores = torch.einsum("pbsh,whk,pbk->pbsw", earlier, w["attend.form"], h)
    query_weights = (scores @ w["attend.mix.weight"].T).softmax(2)
    by_query = (query_weights * earlier).sum(2)
    j = torch.where(m[11], by_query, h)
    return torch.where(m[10], by_key, j)


def mgru(w: dict[str, Tensor], mutated: Tensor, x: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """Return outputs and states (P, B, T, H) of P patterns, rows of `mutated`, without Λ.

    m_i is whether mutation i is there, and u_i = 1 − m_i.
    """
    m = mutated.T[:, :, None, None]
    u = (~m).to(x.dtype)
    h = start.expand(len(mutated), *start.shape)
    outputs = []
    states = []
    for x_t in x.unbind(1):
        f = torch.sigmoid(u[0] * (gate_input(h, m) @ w["w.hf"]))
        candidate = u[1] * (x_t @ w["w.xh"])
        g = torch.where(m[4], torch.sigmoid(candidate), torch.tanh(candidate))
        j = h
        if outputs:
            j = carried(outputs, h, w, m)
        kept = u[2] * (1 - f) * j
        written = u[3] * f * g
        h = kept + written + m[5] * f * j
        states.append(h)
        centred = m[6] & ~m[8]
        outputs.append(torch.where(centred, h - 0.5, h))
    return torch.stack(outputs, dim=2), torch.stack(states, dim=2)


def config_of(mutations: tuple[int, ...]):
    """Return the config of a pattern, or None if it is an error."""
    fields = {"name": "mgru", "mutations": mutations, "prior": False, "heads": 2}
    try:
        return CELLS.parse(fields)
    except UserError:
        return None


@pytest.fixture(scope="module")
def configs() -> list[Any]:
    return [config_of(mutations) for mutations in PATTERNS]


@pytest.fixture(scope="module")
def expected() -> tuple[Tensor, Tensor]:
    x, start = inputs(make("mgru"))
    return mgru(weights(), bits(12), x, start)


@pytest.fixture(scope="module")
def blind(expected: tuple[Tensor, Tensor]) -> list[bool]:
    """Return for every pattern whether its outputs ignore the inputs, by the equations."""
    cell = make("mgru")
    other_x, _ = inputs(cell, seed=2)
    _, start = inputs(cell)
    other, _ = mgru(weights(), bits(12), other_x, start)
    change = (expected[0] - other).abs().amax((1, 2, 3))
    return (change < FINE).tolist()


def run(config, named: dict[str, Tensor]) -> Tensor:
    """Return the outputs of a cell with these weights."""
    cell = MGRU(config, WIDTH, LENGTH).double()
    with torch.no_grad():
        for name, parameter in cell.named_parameters():
            parameter.copy_(named[name])
    return outputs(cell)


def test_every_pattern_computes_its_equation(configs, expected):
    named = weights()
    # Patterns of one function have one config, which is built once.
    functions = set(configs) - {None}
    results = {config: run(config, named) for config in functions}
    for config, states, mutations in zip(configs, expected[0], PATTERNS, strict=True):
        if config is not None:
            assert_close(results[config], states, FINE, f"outputs of {mutations}")


def test_exactly_the_patterns_with_zero_state_are_errors(configs, expected):
    zero = expected[1].abs().amax((1, 2, 3)) == 0
    errors = [config is None for config in configs]
    assert errors == zero.tolist()


def test_configs_are_equal_exactly_if_functions_are_equal(configs, expected, blind):
    reading = [i for i, is_blind in enumerate(blind) if not is_blind]
    named = [configs[i] for i in reading]
    assert groups(expected[0][reading]) == [named.index(config) for config in named]
    assert len(reading) == 1024
    assert len(set(named)) == 148


def test_numbers_are_other_names_of_options():
    numbered = MGRU.Config(mutations=[4, 6])
    named = MGRU.Config(squash=Squash.SIGMOID, gate=Gate.CENTRED, output=Output.CENTRED)
    assert numbered == named


def test_numbers_are_other_names_of_cuts():
    numbered = MGRU.Config(mutations="0;4,10")
    cuts = [MGRUCut.STATE_TO_GATE]
    named = MGRU.Config(cuts=cuts, squash="sigmoid", carry=Carry.PRIOR)
    assert numbered == named


@pytest.mark.parametrize("length", [4, 6])
def test_unused_entries_of_the_prior_get_no_gradient(length):
    carry = PriorCarry(WIDTH, length, prior=True)
    outputs = torch.randn(2, length - 1, WIDTH)
    state = torch.randn(2, WIDTH)
    for t in range(1, length - 1):
        j = carry(outputs[:, :t], state)
        j.square().sum().backward()
    assert carry.unused == (carry.prior.grad == 0).sum()
