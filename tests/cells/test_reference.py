"""Cells are the systems whose names they bear."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lmzoo.cells.base import CELLS, Cell
from lmzoo.laws.probes import disturb
from tests.cells.reference_forms import FORMS
from tests.cells.support import make

T = 12


def weights(cell: Cell) -> dict[str, Tensor]:
    return {name.removeprefix("w."): w.detach() for name, w in cell.named_parameters()}


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
    with torch.no_grad():
        start = torch.ones(1, cell.num_state_vectors * width, dtype=torch.float64)
        actual = cell.scan(x[None], start)[0]
        expected = FORMS[name](cell, weights(cell), x)
    # Decays are stored in single precision.
    assert (actual - expected).abs().max() <= 1e-7 * (1 + expected.abs().max())


Draw = Callable[[Tensor], bool]


def within(limit: float) -> Draw:
    """Uniform in ±limit."""
    return lambda w: bool(
        w.abs().max() <= limit * (1 + 1e-6)
        and abs(w.std() / (limit / math.sqrt(3)) - 1) < 8 / w.numel() ** 0.5
    )


def gaussian(std: float) -> Draw:
    """The standard deviation, and in larger tensors values that no uniform draw has."""

    def check(w: Tensor) -> bool:
        far = w.abs().max() > 2 * std or w.numel() < 200
        return bool(far and abs(w.std() / std - 1) < 5 / w.numel() ** 0.5)

    return check


def constant(value: float) -> Draw:
    return lambda w: bool((w == value).all())


def between(low: float, high: float, function: Callable[[Tensor], Tensor]) -> Draw:
    return lambda w: bool(low <= function(w).min()) and bool(function(w).max() <= high)


def orthogonal(gain: float) -> Draw:
    def check(w: Tensor) -> bool:
        if not (len(w) <= w.shape[1]):
            w = w.T
        identity = torch.eye(len(w), dtype=w.dtype)
        return torch.allclose(w @ w.T, gain**2 * identity, atol=1e-6)

    return check


E = 64
"""Width of the draws below; two heads of 32 channels, four of 16 in the sLSTM."""
STEP = between(1e-3, 0.1, torch.nn.functional.softplus)
RING = between(0.9, 0.999, lambda w: torch.exp(-torch.nn.functional.softplus(w)))
RATE, ANY_RATE = (between(low, 16.001, torch.exp) for low in (1, 0))
TORCH = within(E**-0.5)
ONE = constant(1)
ZERO = constant(0)
GLOROT = 2**-2.5 * math.sqrt(6)
SMALL = gaussian(math.sqrt(2 / (5 * E)))
LEARNED = {"log_rate": ANY_RATE, "bias_alpha": STEP}
GATES = {**{f"w{name}": gaussian(0.125) for name in "ax"}, "ba": ZERO, "bx": ZERO, "decay": RING}
COMMON = {"bias_conv": within(0.5), **dict.fromkeys(("norm", "forward_norm", "skip"), ONE)}
DRAWS: dict[str, dict[str, Draw]] = {
    "mamba": {"bias_delta": STEP, "log_rate": RATE},
    "mamba2": {"bias_delta": STEP, "log_rate": RATE},
    "mamba3": {
        "bias_delta": STEP,
        **dict.fromkeys(("norm_b", "norm_c", "bias_b", "bias_c"), ONE),
    },
    "m2rnn": {
        "log_rate": ANY_RATE,
        "bias_f": STEP,
        "mix": lambda w: bool((w == torch.eye(16, dtype=w.dtype)).all()),
    },
    "gla": {"bias_alpha": within(0.25)},
    "retention": {
        **dict.fromkeys("qk", within(GLOROT / 128**0.5)),
        **dict.fromkeys(("v", "gate"), within(GLOROT / 192**0.5)),
        "out": within((6 / 192) ** 0.5),
    },
    "deltanet": {},
    "gated_deltanet": LEARNED,
    "deltaproduct": LEARNED,
    "comba": {**LEARNED, "bias_b": ONE},
    "kda": {"log_rate": RATE, "bias_alpha": STEP, "bias_gate": within(32**-0.5)},
    "mlstm": {
        **dict.fromkeys("uoqkv", SMALL),
        "i": ZERO,
        "f": ZERO,
        "out": gaussian(0.25),
        "bias_i": between(0, 0.6, torch.abs),
        "bias_f": between(3, 6, torch.abs),
    },
    "slstm": {
        **{f"x{gate}": SMALL for gate in "ifoz"},
        **{f"h{gate}": ZERO for gate in "ifoz"},
        "bf": between(-7, 5, lambda w: w),
        "bo": ZERO,
        "bz": ZERO,
    },
    "rwkv7": {
        "r": orthogonal(1),
        "k": orthogonal(0.1),
        "v": orthogonal(1),
        "out": ZERO,
        **{f"{name}1": ZERO for name in "wag"},
        **{f"{name}2": orthogonal(0.1) for name in "wag"},
        "mu": between(0, 1, lambda w: w),
        "bias_w": between(-8, 3, lambda w: w),
        "bias_a": between(-0.7, 0.32, lambda w: w),
        "xi": between(0.6599, 0.7601, lambda w: w),
        "alpha": between(1.0199, 1.0201, lambda w: w),
        "rho": between(-0.0401, -0.0399, lambda w: w),
        "bias_norm": ZERO,
    },
    "hgrn2": {"bound": ZERO},
    "rg_lru": GATES,
    "min_gru": {"bz": TORCH, "bh": TORCH},
    "min_lstm": {f"b{gate}": TORCH for gate in "fih"},
    "lru": {
        **dict.fromkeys(("b_re", "b_im"), gaussian(128**-0.5)),
        "d": gaussian(1),
        **dict.fromkeys(("c_re", "c_im"), gaussian(0.125)),
        "gamma": between(0, 1, torch.exp),
        "nu": between(0, 1, lambda w: (-w.exp()).exp()),
        "theta": between(0, 6.28, torch.exp),
    },
}
"""Draws of the reference code, read from its source, where they differ from U(±1/√columns)."""


@pytest.mark.parametrize("name", DRAWS)
@settings(max_examples=5)
@given(seed=st.integers(0, 2**20))
def test_initial_weights_are_those_of_the_reference_code(name, seed):
    for weight, drawn in weights(make(name, E, T, seed)).items():
        usual = COMMON.get(weight) or within(drawn.shape[-1] ** -0.5)
        assert DRAWS[name].get(weight, usual)(drawn), f"{weight}: sd {drawn.std()}"


def test_beta_max_without_beta_is_the_same_config():
    for name in ("deltanet", "gated_deltanet"):
        one, two = (CELLS.parse({"name": name, "cuts": ["beta"], "beta_max": m}) for m in (1, 2))
        assert one == two
