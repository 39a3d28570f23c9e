"""Initial weights: their standard deviations, and a stream for each module."""

import copy

import pytest
import torch
from torch import nn

from lmzoo.base.errors import UserError
from lmzoo.functional.parameters import INITIALISERS, initialise, initialiser
from tests.cases import parametrize
from tests.tiny import tiny

OUT = 400
IN = 100


def drawn(name):
    """Return 40,000 draws; their deviation is known with a relative error below 0.01."""
    # NaN would stay where nothing is drawn.
    weight = torch.full((OUT, IN), torch.nan)
    initialiser(name)(weight)
    return weight


def stated_deviation(name):
    kind, _, size = name.partition("_")
    if kind == "xavier":
        return (2 / (IN + OUT)) ** 0.5
    if kind == "kaiming":
        return (2 / IN) ** 0.5
    if kind == "uniform":
        # U(−a, a) has the standard deviation a / √3.
        return float(size) / 3**0.5
    return float(size)


NAMES = [name for name in INITIALISERS if name != "default"]


@parametrize("name", NAMES)
def test_the_standard_deviation_matches_the_name(name):
    weight = drawn(name)
    std = stated_deviation(name)
    deviation = weight.std().item()
    assert deviation == pytest.approx(std, rel=0.02)
    mean = weight.mean().item()
    assert abs(mean) < 0.02 * std


UNIFORM = [name for name in NAMES if "uniform" in name]


@parametrize("name", UNIFORM)
def test_a_uniform_draw_has_a_bound(name):
    """A normal draw of the same standard deviation exceeds it."""
    bound = stated_deviation(name) * 3**0.5
    largest = drawn(name).abs().max()
    assert largest <= bound * 1.0001


@pytest.fixture
def module():
    linear = nn.Linear(3, 4)
    module = nn.Sequential(linear, nn.LayerNorm(4))
    initialise(module, 0)
    return module


def test_the_default_initialiser_changes_nothing(module):
    before = copy.deepcopy(module.state_dict())
    initialise(module, 0, "default")
    for name, value in module.state_dict().items():
        assert value.equal(before[name])


def test_redrawing_changes_matrices_clears_biases_and_keeps_norms(module):
    # Norms start as the identity, whatever the initialiser.
    linear, norm = module
    weight = linear.weight
    assert weight.abs().max() > 0.02
    assert linear.bias.any()
    initialise(module, 0, "normal_0.002")
    assert weight.abs().max() < 0.02
    assert not linear.bias.any()
    assert norm.weight.eq(1).all()


def test_an_unknown_initialiser_is_refused(module):
    with pytest.raises(UserError, match="'xavier'; choose one of default, xavier_"):
        initialise(module, 0, "xavier")


def test_variants_share_the_initial_weights_of_shared_modules():
    gru = tiny("recurrent_lm", cell="gru").state_dict()
    mgu = tiny("recurrent_lm", cell="mgu", starts=2).state_dict()
    parts = ("embedding.", "emission.")
    shared = [name for name in gru if name.startswith(parts)]
    assert len(shared) == 5
    for name in shared:
        assert gru[name].equal(mgu[name])
