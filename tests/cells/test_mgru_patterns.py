"""All 4,096 patterns of the minimal gated recurrent unit against its equations."""

from typing import Any

import pytest
import torch
from torch import Tensor

from lmzoo.cells.base import CELLS
from lmzoo.cells.mgru import MGRU
from lmzoo.errors import UserError
from tests.cells.mgru_equations import mgru, weights
from tests.cells.run import LENGTH, WIDTH, bits, groups, inputs, make, outputs, subsets
from tests.laws.support import assert_close
from tests.tiny import FINE

PATTERNS = subsets(12)


def attempt(mutations: tuple[int, ...]) -> Any:
    """The pattern's config, None where it is refused."""
    try:
        return CELLS.parse({"name": "mgru", "mutations": mutations, "prior": False, "heads": 2})
    except UserError:
        return None


@pytest.fixture(scope="module")
def configs() -> list[Any]:
    return [attempt(mutations) for mutations in PATTERNS]


@pytest.fixture(scope="module")
def expected() -> tuple[Tensor, Tensor]:
    return mgru(weights(), bits(12), *inputs(make("mgru")))


@pytest.fixture(scope="module")
def blind(expected: tuple[Tensor, Tensor]) -> list[bool]:
    """Whether other inputs leave the outputs as they are, by the equations."""
    cell = make("mgru")
    other, _ = mgru(weights(), bits(12), inputs(cell, seed=2)[0], inputs(cell)[1])
    return ((expected[0] - other).abs().amax((1, 2, 3)) < FINE).tolist()


def run(config: Any, known: dict[str, Tensor]) -> Tensor:
    cell = MGRU(config, WIDTH, LENGTH).double()
    with torch.no_grad():
        for name, parameter in cell.named_parameters():
            parameter.copy_(known[name])
    return outputs(cell)


def test_every_pattern_is_its_equation(configs: list[Any], expected: tuple[Tensor, Tensor]) -> None:
    known = weights()
    found = {config: run(config, known) for config in set(configs) - {None}}
    for config, states, mutations in zip(configs, expected[0], PATTERNS, strict=True):
        if config is not None:
            assert_close(found[config], states, FINE, f"outputs of {mutations}")


def test_exactly_the_zero_states_are_refused(
    configs: list[Any], expected: tuple[Tensor, Tensor]
) -> None:
    zero = expected[1].abs().amax((1, 2, 3)) == 0
    assert [config is None for config in configs] == zero.tolist()


def test_a_refusal_gives_its_reason() -> None:
    with pytest.raises(UserError, match=r"cuts carry \(2\), write \(3\) leave h = 0 at every step; "):
        make("mgru", mutations=[2, 3])


def test_exactly_the_3072_input_blind_are_named(configs: list[Any], blind: list[bool]) -> None:
    cells = {config: MGRU(config, WIDTH, LENGTH) for config in set(configs) - {None}}
    found = [config is None or cells[config].input_blind for config in configs]
    assert found == blind == [bool({1, 3} & set(mutations)) for mutations in PATTERNS]
    assert sum(found) == 3072


def test_configs_are_equal_exactly_where_functions_are(
    configs: list[Any], expected: tuple[Tensor, Tensor], blind: list[bool]
) -> None:
    seeing = [i for i, is_blind in enumerate(blind) if not is_blind]
    named = [configs[i] for i in seeing]
    assert groups(expected[0][seeing]) == [named.index(config) for config in named]
    assert (len(seeing), len(set(named))) == (1024, 148)


def test_a_weight_is_allocated_exactly_where_it_matters(configs: list[Any]) -> None:
    for config, mutations in zip(configs, PATTERNS, strict=True):
        if config is None or {1, 3} & set(mutations):
            continue
        on, carried = set(mutations), {2, 5} & set(mutations) != {2}
        names = {"w.xh"} | (set() if 0 in on else {"w.hf"})
        # Under 0, cutting the carry and keeping undo each other, and j is then carried.
        if carried and 10 in on:
            names |= {"attend.key"}
        elif carried and 11 in on:
            names |= {"attend.form", "attend.mix.weight"}
        found = {name for name, _ in MGRU(config, 2, 2).named_parameters()}
        assert found == names, mutations
