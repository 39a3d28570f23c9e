"""All 4,096 patterns of the MGRU against its equations, and its options."""

from collections.abc import Mapping
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
    key = make("mgru", width, length, carry="prior", prior=False)
    bilinear = make("mgru", width, length, carry="bilinear", heads=2)
    names = {"w.hf": key, "w.xh": key, "attend.key": key}
    names |= {"attend.form": bilinear, "attend.mix.weight": bilinear}
    return {name: dict(cell.named_parameters())[name].detach() for name, cell in names.items()}


def gate_input(h: Tensor, m: Mapping[int, Tensor]) -> Tensor:
    """Return what the gate reads: h; h − ½ with 6 but not 7; ½ logit(h) with 9 as well."""
    logit = torch.atanh((2 * h - 1).clamp(-0.9999, 0.9999))
    return torch.where(m[6] & ~m[7], torch.where(m[9], logit, h - 0.5), h)


def carried(outputs: list[Tensor], h: Tensor, w: dict[str, Tensor], m: Mapping) -> Tensor:
    """Return j after the first step: h, or attention over o_0..o_{t-1}; 10 wins over 11."""
    earlier = torch.stack(outputs, dim=2)  # P B s H
    by_key = ((earlier @ w["attend.key"]).softmax(2) * earlier).sum(2)
    scores = torch.einsum("pbsh,whk,pbk->pbsw", earlier, w["attend.form"], h)
    by_query = ((scores @ w["attend.mix.weight"].T).softmax(2) * earlier).sum(2)
    return torch.where(m[10], by_key, torch.where(m[11], by_query, h))


def mgru(w: dict[str, Tensor], mutated: Tensor, x: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """Return outputs and states (P, B, T, H) of P patterns, rows of `mutated`, without Λ."""
    m = dict(enumerate(mutated.T[:, :, None, None]))
    u = {i: (~on).to(x.dtype) for i, on in m.items()}
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
        h = u[2] * (1 - f) * j + u[3] * f * g + m[5] * f * j
        states.append(h)
        outputs.append(torch.where(m[6] & ~m[8], h - 0.5, h))
    return torch.stack(outputs, dim=2), torch.stack(states, dim=2)


def config_of(mutations: tuple[int, ...]) -> Any:
    """Return the config of a pattern, or None if it is an error."""
    try:
        return CELLS.parse({"name": "mgru", "mutations": mutations, "prior": False, "heads": 2})
    except UserError:
        return None


@pytest.fixture(scope="module")
def configs() -> list[Any]:
    return [config_of(mutations) for mutations in PATTERNS]


@pytest.fixture(scope="module")
def expected() -> tuple[Tensor, Tensor]:
    return mgru(weights(), bits(12), *inputs(make("mgru")))


@pytest.fixture(scope="module")
def blind(expected: tuple[Tensor, Tensor]) -> list[bool]:
    """Return for every pattern whether its outputs ignore the inputs, by the equations."""
    cell = make("mgru")
    other, _ = mgru(weights(), bits(12), inputs(cell, seed=2)[0], inputs(cell)[1])
    return ((expected[0] - other).abs().amax((1, 2, 3)) < FINE).tolist()


def run(config: Any, weights_: dict[str, Tensor]) -> Tensor:
    """Return the outputs of a cell with these weights."""
    cell = MGRU(config, WIDTH, LENGTH).double()
    with torch.no_grad():
        for name, parameter in cell.named_parameters():
            parameter.copy_(weights_[name])
    return outputs(cell)


def test_every_pattern_computes_its_equation(configs, expected):
    all_weights = weights()
    results = {config: run(config, all_weights) for config in set(configs) - {None}}
    for config, states, mutations in zip(configs, expected[0], PATTERNS, strict=True):
        if config is not None:
            assert_close(results[config], states, FINE, f"outputs of {mutations}")


def test_exactly_the_patterns_with_zero_state_are_errors(configs, expected):
    zero = expected[1].abs().amax((1, 2, 3)) == 0
    assert [config is None for config in configs] == zero.tolist()


def test_configs_are_equal_exactly_if_functions_are_equal(configs, expected, blind):
    reading = [i for i, is_blind in enumerate(blind) if not is_blind]
    named = [configs[i] for i in reading]
    assert groups(expected[0][reading]) == [named.index(config) for config in named]
    assert (len(reading), len(set(named))) == (1024, 148)


def test_numbers_and_names_give_equal_configs():
    assert MGRU.Config(mutations=[4, 6]) == MGRU.Config(
        squash=Squash.SIGMOID, gate=Gate.CENTRED, output=Output.CENTRED
    )
    assert MGRU.Config(mutations="0;4,10") == MGRU.Config(
        cuts=[MGRUCut.STATE_TO_GATE], squash="sigmoid", carry=Carry.PRIOR
    )


@pytest.mark.parametrize("length", [4, 6])
def test_unused_entries_of_the_prior_get_no_gradient(length):
    carry = PriorCarry(WIDTH, length, prior=True)
    outputs = torch.randn(2, length - 1, WIDTH)
    state = torch.randn(2, WIDTH)
    total = sum(carry(outputs[:, :t], state).square().sum() for t in range(1, length - 1))
    total.backward()
    assert carry.unused == (carry.prior.grad == 0).sum()
