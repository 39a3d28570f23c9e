"""Cells are the systems whose names they bear."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import softplus

from lmzoo.cells.base import CELLS, Cell
from lmzoo.laws.probes import disturb
from tests.cases import rows
from tests.cells.reference_forms import FORMS, Named
from tests.cells.support import make

T = 12
WIDTH_OF_DRAWS = 64
COMMON = rows("cells/draws.toml", "common")
DRAWS = rows("cells/draws.toml", "cells")


def weights(cell: Cell) -> Named:
    named = Named()
    for name, weight in cell.named_parameters():
        named[name.removeprefix("w.")] = weight.detach()
    return named


def test_every_form_has_draws():
    assert set(FORMS) == set(DRAWS)


@pytest.mark.parametrize("disturbed", [False, True], ids=["initial", "disturbed"])
@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=8)
@given(seed=st.integers(0, 2**20), width=st.sampled_from([8, 16, 24]))
def test_outputs_are_those_of_the_reference_code(name, *, disturbed, seed, width):
    """From the start state of a model, with the initial weights and with others."""
    cell = make(name, width, T, seed)
    if disturbed:
        disturb(cell)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(T, width, generator=generator, dtype=torch.float64)
    # A model starts from ones, which a cell maps to its own start state.
    start = torch.ones(1, cell.num_state_vectors * width, dtype=torch.float64)
    with torch.no_grad():
        actual = cell.scan(x[None], start)[0]
        expected = FORMS[name](cell, weights(cell), x)
    # Decays are stored in single precision.
    tolerance = 1e-7 * (1 + expected.abs().max())
    assert (actual - expected).abs().max() <= tolerance


FUNCTIONS = {
    "itself": lambda w: w,
    "abs": torch.abs,
    "exp": torch.exp,
    "softplus": softplus,
    "exp_minus_softplus": lambda w: torch.exp(-softplus(w)),
    "exp_minus_exp": lambda w: torch.exp(-torch.exp(w)),
}


def is_uniform(w: Tensor, limit: float) -> bool:
    """Whether w may be drawn uniformly in ±limit."""
    if w.abs().max() > limit * (1 + 1e-6):
        return False
    ratio = w.std() / (limit / math.sqrt(3))
    return bool(abs(ratio - 1) < 8 / w.numel() ** 0.5)


def is_normal(w: Tensor, std: float) -> bool:
    """Whether w has this deviation and, if it is large, values that no uniform draw has."""
    if w.numel() >= 200 and w.abs().max() <= 2 * std:
        return False
    return bool(abs(w.std() / std - 1) < 5 / w.numel() ** 0.5)


def is_orthogonal(w: Tensor, gain: float) -> bool:
    if len(w) > w.shape[1]:
        w = w.T
    identity = torch.eye(len(w), dtype=w.dtype)
    return torch.allclose(w @ w.T, gain**2 * identity, atol=1e-6)


def is_drawn(w: Tensor, draw: dict[str, Any]) -> bool:
    """Whether w may come from a draw of `draws.toml`."""
    if "uniform" in draw:
        return is_uniform(w, draw["uniform"])
    if "normal" in draw:
        return is_normal(w, draw["normal"])
    if "orthogonal" in draw:
        return is_orthogonal(w, draw["orthogonal"])
    if "constant" in draw:
        return bool((w == draw["constant"]).all())
    if "identity" in draw:
        return bool((w == torch.eye(draw["identity"], dtype=w.dtype)).all())
    low, high = draw["between"]
    values = FUNCTIONS[draw["of"]](w)
    return bool(low <= values.min()) and bool(values.max() <= high)


@pytest.mark.parametrize("name", DRAWS)
@settings(max_examples=5)
@given(seed=st.integers(0, 2**20))
def test_initial_weights_are_those_of_the_reference_code(name, seed):
    # What a cell draws otherwise wins.
    draws = COMMON | DRAWS[name]
    cell = make(name, WIDTH_OF_DRAWS, T, seed)
    for weight, drawn in weights(cell).items():
        usual = {"uniform": drawn.shape[-1] ** -0.5}
        assert is_drawn(drawn, draws.get(weight, usual)), f"{weight}: sd {drawn.std()}"


@pytest.mark.parametrize("name", ["deltanet", "gated_deltanet"])
def test_beta_max_without_beta_is_the_same_config(name):
    one = CELLS.parse({"name": name, "cuts": ["beta"], "beta_max": 1})
    two = CELLS.parse({"name": name, "cuts": ["beta"], "beta_max": 2})
    assert one == two
