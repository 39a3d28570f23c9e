"""Initial weights: their standard deviations, and a stream for each module."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from lmzoo.base.errors import UserError
from lmzoo.base.seeds import derive_seed
from lmzoo.functional.initialisers import INITIALISERS, initialiser
from lmzoo.functional.seeding import initialise
from tests.tiny import quick, tiny

OUT, IN = 400, 100
STDS = {
    "xavier_uniform": (2 / (IN + OUT)) ** 0.5,
    "xavier_normal": (2 / (IN + OUT)) ** 0.5,
    "kaiming_uniform": (2 / IN) ** 0.5,
    "kaiming_normal": (2 / IN) ** 0.5,
    "normal_0.1": 0.1,
    "normal_0.02": 0.02,
    "normal_0.002": 0.002,
    "uniform_0.1": 0.1 / 3**0.5,
    "uniform_0.05": 0.05 / 3**0.5,
    "uniform_0.01": 0.01 / 3**0.5,
    "uniform_0.001": 0.001 / 3**0.5,
}


@pytest.mark.parametrize("name", [name for name in INITIALISERS if name != "default"])
def test_the_standard_deviation_matches_the_name(name: str) -> None:
    """40,000 draws give the standard deviation with a relative error below 0.01."""
    torch.manual_seed(0)
    weight = torch.full((OUT, IN), torch.nan)
    initialiser(name)(weight)
    assert weight.std().item() == pytest.approx(STDS[name], rel=0.02)
    assert abs(weight.mean().item()) < 0.02 * STDS[name]
    if "uniform" in name:  # a normal of the same standard deviation exceeds this bound
        assert weight.abs().max().item() <= STDS[name] * 3**0.5 * 1.0001


def test_redrawing_changes_matrices_clears_biases_and_keeps_norms() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    initialise(module, 0)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    initialise(module, 0, "default")
    assert all(before[name].equal(value) for name, value in module.state_dict().items())
    initialise(module, 0, "normal_0.002")
    assert module[0].weight.abs().max() < 0.02 < before["0.weight"].abs().max()
    assert not module[0].bias.any()
    assert before["0.bias"].any()
    assert module[1].weight.eq(1).all()


def test_an_unknown_name_raises_an_error_that_lists_the_names() -> None:
    message = r"unknown initialiser 'xavier'; choose one of default, xavier_"
    with pytest.raises(UserError, match=message):
        initialiser("xavier")


def test_variants_share_the_initial_weights_of_shared_modules() -> None:
    gru, mgu = tiny("recurrent_lm", cell="gru"), tiny("recurrent_lm", cell="mgu", starts=2)
    gru_weights, mgu_weights = gru.state_dict(), mgu.state_dict()
    shared = [key for key in gru_weights if key.split(".")[0] in ("embedding", "emission")]
    assert len(shared) == 5
    assert all(gru_weights[key].equal(mgu_weights[key]) for key in shared)


def test_each_module_draws_from_its_own_stream() -> None:
    both = nn.ModuleDict({"one": nn.Linear(3, 3), "two": nn.Linear(3, 3)})
    initialise(both, 0)
    assert not both["one"].weight.equal(both["two"].weight)
    alone = nn.ModuleDict({"two": nn.Linear(3, 3)})
    initialise(alone, 0)
    assert alone["two"].weight.equal(both["two"].weight)


def test_initialising_leaves_the_global_generator_unchanged() -> None:
    model = tiny("DLM26")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        expected = torch.rand(3)
        torch.manual_seed(5)
        initialise(model, 7)
        assert torch.rand(3).equal(expected)


@quick
@given(st.lists(st.tuples(st.integers(0, 9), st.text(max_size=3)), min_size=2, unique=True))
def test_different_names_give_different_seeds(named: list[tuple[int, str]]) -> None:
    seeds = [derive_seed(seed, name) for seed, name in named]
    assert len(set(seeds)) == len(named)
    assert all(0 <= seed < 2**63 for seed in seeds)
