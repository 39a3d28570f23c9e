"""Cells are the systems whose names they bear."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import softplus

from lmzoo.cells.base import CELLS
from lmzoo.laws.probes import disturb
from tests.cases import parametrize, rows
from tests.cells.reference_forms import FORMS, Named
from tests.cells.support import make

T = 12
WIDTH_OF_DRAWS = 64
COMMON = rows("cells/draws.toml", "common")
DRAWS = rows("cells/draws.toml", "cells")


def weights(cell):
    named = Named()
    for name, weight in cell.named_parameters():
        own_name = name.removeprefix("w.")
        named[own_name] = weight.detach()
    return named


def test_every_form_has_draws():
    assert set(FORMS) == set(DRAWS)


SEEDS = st.integers(0, 2**20)
WIDTHS = st.sampled_from([8, 16, 24])


STATES = parametrize("disturbed", [False, True], ids=["initial", "disturbed"])


@STATES
@parametrize("name", FORMS)
@settings(max_examples=8)
@given(seed=SEEDS, width=WIDTHS)
def test_outputs_are_those_of_the_reference_code(name, *, disturbed, seed, width):
    """From the start state of a model, with the initial weights and with others."""
    cell = make(name, width, T, seed)
    # Initial weights are often zero or one, which hides a term.
    if disturbed:
        disturb(cell)
    generator = torch.Generator().manual_seed(seed)
    options = {"generator": generator, "dtype": torch.float64}
    x = torch.randn(T, width, **options)
    # A model starts from ones, which a cell maps to its own start state.
    size = cell.num_state_vectors * width
    start = torch.ones(1, size).double()
    with torch.no_grad():
        (actual,) = cell.scan(x[None], start)
        expected = FORMS[name](cell, weights(cell), x)
    # Decays are stored in single precision.
    largest = expected.abs().max()
    tolerance = 1e-7 * (1 + largest)
    error = (actual - expected).abs().max()
    assert error <= tolerance


FUNCTIONS = {
    "itself": lambda w: w,
    "abs": torch.abs,
    "exp": torch.exp,
    "softplus": softplus,
    "exp_minus_softplus": lambda w: torch.exp(-softplus(w)),
    "exp_minus_exp": lambda w: torch.exp(-torch.exp(w)),
}


def is_uniform(w, limit):
    """Whether w may be drawn uniformly in ±limit."""
    largest = w.abs().max()
    if largest > limit * (1 + 1e-6):
        return False
    # The deviation of a uniform draw in ±1 is 1/√3.
    ratio = w.std() / limit * math.sqrt(3)
    error = 1 / math.sqrt(w.numel())
    return bool(abs(ratio - 1) < 8 * error)


def is_normal(w, std):
    """Whether w has this deviation and, if it is large, values that no uniform draw has."""
    largest = w.abs().max()
    # 200 normal draws have one beyond two deviations, almost surely.
    if w.numel() >= 200 and largest <= 2 * std:
        return False
    ratio = w.std() / std
    error = 1 / math.sqrt(w.numel())
    return bool(abs(ratio - 1) < 5 * error)


def is_orthogonal(w, gain):
    if len(w) > w.shape[1]:
        # A tall matrix has orthogonal columns.
        w = w.T
    product = w @ w.T
    expected = gain**2 * torch.eye(len(w))
    return torch.allclose(product, expected.to(w), atol=1e-6)


def is_drawn(w, draw):
    """Whether w may come from a draw of `draws.toml`."""
    if "uniform" in draw:
        return is_uniform(w, draw["uniform"])
    if "normal" in draw:
        return is_normal(w, draw["normal"])
    if "orthogonal" in draw:
        return is_orthogonal(w, draw["orthogonal"])
    if "constant" in draw:
        return bool(w.eq(draw["constant"]).all())
    if "identity" in draw:
        identity = torch.eye(draw["identity"], dtype=w.dtype)
        return bool(w.eq(identity).all())
    low, high = draw["between"]
    # The draw is one of a function of the weight.
    values = FUNCTIONS[draw["of"]](w)
    if values.min() < low:
        return False
    return bool(values.max() <= high)


@parametrize("name", DRAWS)
@settings(max_examples=5)
@given(seed=SEEDS)
def test_initial_weights_are_those_of_the_reference_code(name, seed):
    # What a cell draws otherwise wins.
    draws = COMMON | DRAWS[name]
    cell = make(name, WIDTH_OF_DRAWS, T, seed)
    for weight, drawn in weights(cell).items():
        usual = {"uniform": drawn.shape[-1] ** -0.5}
        stated = draws.get(weight, usual)
        assert is_drawn(drawn, stated), f"{weight}: sd {drawn.std()}"


@parametrize("name", ["deltanet", "gated_deltanet"])
def test_beta_max_without_beta_is_the_same_config(name):
    # Without β, its largest value has no effect.
    without = {"name": name, "cuts": ["beta"]}
    one = CELLS.parse(without | {"beta_max": 1})
    two = CELLS.parse(without | {"beta_max": 2})
    assert one == two
