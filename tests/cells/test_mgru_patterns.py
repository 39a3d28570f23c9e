"""All 4,096 patterns of the MGRU against its equations."""

from typing import Any

import pytest
import torch
from torch import Tensor

from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS
from lmzoo.cells.mgru import MGRU
from tests.cells.mgru_equations import mgru, weights
from tests.cells.support import LENGTH, WIDTH, bits, groups, inputs, make, outputs, subsets
from tests.laws.support import assert_close
from tests.tiny import FINE

PATTERNS = subsets(12)


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


def test_every_pattern_computes_its_equation(
    configs: list[Any], expected: tuple[Tensor, Tensor]
) -> None:
    all_weights = weights()
    results = {config: run(config, all_weights) for config in set(configs) - {None}}
    for config, states, mutations in zip(configs, expected[0], PATTERNS, strict=True):
        if config is not None:
            assert_close(results[config], states, FINE, f"outputs of {mutations}")


def test_exactly_the_patterns_with_zero_state_are_errors(
    configs: list[Any], expected: tuple[Tensor, Tensor]
) -> None:
    zero = expected[1].abs().amax((1, 2, 3)) == 0
    assert [config is None for config in configs] == zero.tolist()


def test_the_error_names_the_cuts() -> None:
    with pytest.raises(
        UserError, match=r"cuts carry \(2\), write \(3\) leave h = 0 at every step; "
    ):
        make("mgru", mutations=[2, 3])


def test_exactly_3072_patterns_are_input_blind(configs: list[Any], blind: list[bool]) -> None:
    cells = {config: MGRU(config, WIDTH, LENGTH) for config in set(configs) - {None}}
    result = [config is None or cells[config].input_blind for config in configs]
    assert result == blind == [bool({1, 3} & set(mutations)) for mutations in PATTERNS]
    assert sum(result) == 3072


def test_configs_are_equal_exactly_if_functions_are_equal(
    configs: list[Any], expected: tuple[Tensor, Tensor], blind: list[bool]
) -> None:
    reading = [i for i, is_blind in enumerate(blind) if not is_blind]
    named = [configs[i] for i in reading]
    assert groups(expected[0][reading]) == [named.index(config) for config in named]
    assert (len(reading), len(set(named))) == (1024, 148)


def test_exactly_the_used_weights_are_allocated(configs: list[Any]) -> None:
    for config, mutations in zip(configs, PATTERNS, strict=True):
        if config is None or {1, 3} & set(mutations):
            continue
        on, carried = set(mutations), {2, 5} & set(mutations) != {2}
        names = {"w.xh"} | (set() if 0 in on else {"w.hf"})
        # With state_to_gate (0), the cut carry (2) and keep (5) cancel, so that j is used.
        if carried and 10 in on:
            names |= {"attend.key"}
        elif carried and 11 in on:
            names |= {"attend.form", "attend.mix.weight"}
        assert {name for name, _ in MGRU(config, 2, 2).named_parameters()} == names, mutations
