"""Cells are the systems whose names they bear."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lmzoo.cells.base import CELLS, Cell, Weights
from lmzoo.cells.matrix import MatrixCell
from lmzoo.laws.probes import disturb
from tests.cells.reference_forms import FORMS
from tests.cells.support import make

T = 12


def weights(cell: Cell) -> dict[str, Tensor]:
    return {name.removeprefix("w."): w.detach() for name, w in cell.named_parameters()}


def test_every_form_has_draws() -> None:
    assert set(FORMS) == set(DRAWS)


@pytest.mark.parametrize("disturbed", [False, True], ids=["initial", "disturbed"])
@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=8)
@given(seed=st.integers(0, 2**20), width=st.sampled_from([8, 16, 24]))
def test_outputs_are_those_of_the_reference_code(
    name: str, *, disturbed: bool, seed: int, width: int
) -> None:
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
        w = w if len(w) <= w.shape[1] else w.T
        identity = torch.eye(len(w), dtype=w.dtype)
        return torch.allclose(w @ w.T, gain**2 * identity, atol=1e-6)

    return check


E = 64
"""Width of the draws below; two heads of 32 channels, four of 16 in the sLSTM."""
STEP = between(1e-3, 0.1, torch.nn.functional.softplus)
RING = between(0.9, 0.999, lambda w: torch.exp(-torch.nn.functional.softplus(w)))
TORCH = within(E**-0.5)
GLOROT = 2**-2.5 * math.sqrt(6)
SMALL = gaussian(math.sqrt(2 / (5 * E)))
DRAWS: dict[str, dict[str, tuple[tuple[int, ...], Draw]]] = {
    "mamba": {
        "x": ((128, 64), TORCH), "gate": ((128, 64), TORCH),
        "conv": ((128, 4), within(0.5)), "bias_conv": ((128,), within(0.5)),
        "low_delta": ((4, 128), within(128**-0.5)), "delta": ((128, 4), within(0.5)),
        "b": ((16, 128), within(128**-0.5)), "c": ((16, 128), within(128**-0.5)),
        "bias_delta": ((128,), STEP), "skip": ((128,), constant(1)),
        "log_rate": ((2048,), between(1, 16.001, torch.exp)),
        "out": ((64, 128), within(128**-0.5)),
    },
    "mamba2": {
        "x": ((128, 64), TORCH), "b": ((16, 64), TORCH), "c": ((16, 64), TORCH),
        "delta": ((2, 64), TORCH), "gate": ((128, 64), TORCH),
        "conv": ((160, 4), within(0.5)), "bias_conv": ((160,), within(0.5)),
        "log_rate": ((2,), between(1, 16, torch.exp)), "bias_delta": ((2,), STEP),
        "skip": ((2,), constant(1)), "norm": ((128,), constant(1)),
        "out": ((64, 128), within(128**-0.5)),
    },
    "mamba3": {
        "x": ((128, 64), TORCH), "b": ((16, 64), TORCH), "c": ((16, 64), TORCH),
        "delta": ((2, 64), TORCH), "rate": ((2, 64), TORCH), "trap": ((2, 64), TORCH),
        "angle": ((4, 64), TORCH), "gate": ((128, 64), TORCH), "bias_delta": ((2,), STEP),
        **{f"norm_{name}": ((16,), constant(1)) for name in "bc"},
        **{f"bias_{name}": ((2, 16), constant(1)) for name in "bc"},
        "skip": ((2,), constant(1)), "out": ((64, 128), within(128**-0.5)),
    },
    "m2rnn": {
        "q": ((16, 64), TORCH), "k": ((16, 64), TORCH), "v": ((64, 64), TORCH),
        "f": ((4, 64), TORCH), "gate": ((64, 64), TORCH), "conv": ((96, 4), within(0.5)),
        "log_rate": ((4,), between(0, 16, torch.exp)), "bias_f": ((4,), STEP),
        "mix": ((4, 16, 16), lambda w: bool((w == torch.eye(16, dtype=w.dtype)).all())),
        "skip": ((64,), constant(1)), "norm": ((64,), constant(1)), "out": ((64, 64), TORCH),
    },
    "gla": {
        "q": ((32, 64), TORCH), "k": ((32, 64), TORCH), "v": ((64, 64), TORCH),
        "gate": ((64, 64), TORCH), "low": ((16, 64), TORCH),
        "alpha": ((32, 16), within(0.25)), "bias_alpha": ((32,), within(0.25)),
        "norm": ((32,), constant(1)), "out": ((64, 64), TORCH),
    },
    "retention": {
        "q": ((64, 64), within(GLOROT / 128**0.5)), "k": ((64, 64), within(GLOROT / 128**0.5)),
        "v": ((128, 64), within(GLOROT / 192**0.5)), "gate": ((128, 64), within(GLOROT / 192**0.5)),
        "out": ((64, 128), within(6**0.5 / 192**0.5)),
    },
    "deltanet": {
        "q": ((64, 64), TORCH), "k": ((64, 64), TORCH), "v": ((64, 64), TORCH),
        "beta": ((2, 64), TORCH), "conv": ((192, 4), within(0.5)),
        "norm": ((32,), constant(1)), "out": ((64, 64), TORCH),
    },
    "gated_deltanet": {
        "q": ((64, 64), TORCH), "k": ((64, 64), TORCH), "v": ((128, 64), TORCH),
        "beta": ((2, 64), TORCH), "alpha": ((2, 64), TORCH), "gate": ((128, 64), TORCH),
        "conv": ((256, 4), within(0.5)), "norm": ((64,), constant(1)),
        "log_rate": ((2,), between(0, 16, torch.exp)), "bias_alpha": ((2,), STEP),
        "out": ((64, 128), within(128**-0.5)),
    },
    "deltaproduct": {
        "q": ((64, 64), TORCH), "k": ((128, 64), TORCH), "v": ((256, 64), TORCH),
        "beta": ((4, 64), TORCH), "alpha": ((2, 64), TORCH), "gate": ((128, 64), TORCH),
        "conv": ((448, 4), within(0.5)), "norm": ((64,), constant(1)),
        "log_rate": ((2,), between(0, 16, torch.exp)), "bias_alpha": ((2,), STEP),
        "out": ((64, 128), within(128**-0.5)),
    },
    "kda": {
        "q": ((64, 64), TORCH), "k": ((64, 64), TORCH), "v": ((64, 64), TORCH),
        "beta": ((2, 64), TORCH), "alpha": ((32, 64), TORCH), "gate": ((32, 64), TORCH),
        "up_alpha": ((64, 32), within(32**-0.5)), "bias_alpha": ((64,), STEP),
        "up_gate": ((64, 32), within(32**-0.5)), "bias_gate": ((64,), within(32**-0.5)),
        "conv": ((192, 4), within(0.5)), "norm": ((32,), constant(1)),
        "log_rate": ((2,), between(1, 16, torch.exp)), "out": ((64, 64), TORCH),
    },
    "mlstm": {
        "u": ((128, 64), SMALL), "o": ((128, 64), SMALL),
        "q": ((32, 4, 4), SMALL), "k": ((32, 4, 4), SMALL), "v": ((32, 4, 4), SMALL),
        "conv": ((128, 4), within(0.5)), "bias_conv": ((128,), within(0.5)),
        "i": ((2, 384), constant(0)), "f": ((2, 384), constant(0)),
        "bias_i": ((2,), between(0, 0.6, torch.abs)), "bias_f": ((2,), between(3, 6, torch.abs)),
        "norm": ((128,), constant(1)), "skip": ((128,), constant(1)),
        "out": ((64, 128), gaussian(0.25)),
    },
    "slstm": {
        **{f"x{gate}": ((4, 16, 16), SMALL) for gate in "ifoz"},
        **{f"h{gate}": ((4, 16, 16), constant(0)) for gate in "ifoz"},
        "bf": ((64,), between(-7, 5, lambda w: w)), "bo": ((64,), constant(0)),
        "bz": ((64,), constant(0)), "norm": ((64,), constant(1)),
        "conv": ((64, 4), within(0.5)), "bias_conv": ((64,), within(0.5)),
    },
    "rwkv7": {
        "r": ((64, 64), orthogonal(1)), "k": ((64, 64), orthogonal(0.1)),
        "v": ((64, 64), orthogonal(1)), "out": ((64, 64), constant(0)),
        **{f"{name}1": ((16, 64), constant(0)) for name in "wag"},
        **{f"{name}2": ((64, 16), orthogonal(0.1)) for name in "wag"},
        "mu": ((384,), between(0, 1, lambda w: w)),
        "bias_w": ((64,), between(-8, 3, lambda w: w)),
        "bias_a": ((64,), between(-0.7, 0.32, lambda w: w)),
        "xi": ((64,), between(0.6599, 0.7601, lambda w: w)),
        "alpha": ((64,), between(1.0199, 1.0201, lambda w: w)),
        "rho": ((64,), between(-0.0401, -0.0399, lambda w: w)),
        "norm": ((64,), constant(1)), "bias_norm": ((64,), constant(0)),
    },
    "hgrn2": {
        "xf": ((64, 64), TORCH), "xq": ((64, 64), TORCH), "xv": ((64, 64), TORCH),
        "bound": ((64,), constant(0)), "norm": ((64,), constant(1)), "out": ((64, 64), TORCH),
    },
    "rg_lru": {
        "wa": ((64, 64), gaussian(0.125)), "wx": ((64, 64), gaussian(0.125)),
        "ba": ((64,), constant(0)), "bx": ((64,), constant(0)), "decay": ((64,), RING),
    },
    "griffin": {
        **{f"w{name}": ((64, 64), gaussian(0.125)) for name in "xyo"},
        **{f"b{name}": ((64,), constant(0)) for name in "xyo"},
        "conv": ((64, 4), gaussian(0.05)), "bias_conv": ((64,), constant(0)),
        **{f"inner.w.w{name}": ((64, 64), gaussian(0.125)) for name in "ax"},
        **{f"inner.w.b{name}": ((64,), constant(0)) for name in "ax"},
        "inner.w.decay": ((64,), RING),
    },
    "min_gru": {
        **{name: ((64, 64), TORCH) for name in ("xz", "xh")},
        **{name: ((64,), TORCH) for name in ("bz", "bh")},
    },
    "min_block": {
        "conv": ((64, 4), within(0.5)), "bias_conv": ((64,), within(0.5)),
        "mix": ((64, 64), TORCH), "bias_mix": ((64,), TORCH),
        "norm": ((64,), constant(1)), "forward_norm": ((64,), constant(1)),
        "up": ((256, 64), TORCH), "bias_up": ((256,), TORCH),
        "down": ((64, 256), within(1 / 16)), "bias_down": ((64,), within(1 / 16)),
        **{f"inner.w.{name}": ((64, 96), TORCH) for name in ("xz", "xh")},
        **{f"inner.w.{name}": ((96,), TORCH) for name in ("bz", "bh")},
        "inner.w.out": ((64, 96), within(96**-0.5)),
    },
    "min_lstm": {
        **{f"x{gate}": ((64, 64), TORCH) for gate in "fih"},
        **{f"b{gate}": ((64,), TORCH) for gate in "fih"},
    },
    "qrnn": {
        **{f"x{gate}": ((2, 64, 64), within(128**-0.5)) for gate in "zfo"},
        **{f"b{gate}": ((64,), within(128**-0.5)) for gate in "zfo"},
    },
    "sru": {
        "x": ((64, 64), within((3 / 64) ** 0.5)),
        **{f"x{gate}": ((64, 64), within((1.5 / 64) ** 0.5)) for gate in "fr"},
        **{f"c{gate}": ((64,), within(1.5**0.5)) for gate in "fr"},
        **{f"b{gate}": ((64,), constant(0)) for gate in "fr"},
    },
    "lru": {
        "b_re": ((64, 64), gaussian(128**-0.5)), "b_im": ((64, 64), gaussian(128**-0.5)),
        "c_re": ((64, 64), gaussian(0.125)), "c_im": ((64, 64), gaussian(0.125)),
        "d": ((64,), gaussian(1)), "nu": ((64,), between(0, 1, lambda w: (-w.exp()).exp())),
        "theta": ((64,), between(0, 6.28, torch.exp)), "gamma": ((64,), between(0, 1, torch.exp)),
    },
}  # fmt: skip
"""Shapes and draws of the reference code, read from its source."""


@pytest.mark.parametrize("name", DRAWS)
@settings(max_examples=5)
@given(seed=st.integers(0, 2**20))
def test_initial_weights_are_those_of_the_reference_code(name: str, seed: int) -> None:
    drawn = weights(make(name, E, T, seed))
    assert drawn.keys() == DRAWS[name].keys()
    for weight, (shape, draw) in DRAWS[name].items():
        assert tuple(drawn[weight].shape) == shape, weight
        assert draw(drawn[weight]), f"{weight}: sd {drawn[weight].std()}"


@pytest.mark.parametrize("name", FORMS)
def test_a_model_starts_from_a_state_of_zeros(name: str) -> None:
    cell = make(name)
    assert cell.zero_start == 1
    start = torch.ones(1, cell.num_state_vectors * cell.width, dtype=torch.float64)
    assert not cell.initial_state(start)[0].any()


def test_beta_above_one_reflects() -> None:
    """With β = 2 a step maps k to −k: the sign of the memory under a key is a parity."""
    cell = make("deltanet", width=4, beta_max=2.0, heads=1, cuts=["convolution", "norm"])
    assert isinstance(cell, MatrixCell)
    assert isinstance(cell.w, Weights)
    with torch.no_grad():
        cell.w.beta.fill_(1e3)
        x = torch.ones(1, 2, 4).double()
        z, _ = cell.prepare(cell.project(x), cell.initial_memory(torch.ones(1, 4).double()))
        update = cell.update(z)
        assert update.erase is not None
        assert update.probe is not None
        matrix = torch.eye(4).double() - update.erase[0, 0, 0][:, None] * update.probe[0, 0, 0]
    values = torch.linalg.eigvals(matrix).real.sort().values
    assert torch.allclose(values, torch.tensor([-1.0, 1, 1, 1]).double(), atol=1e-5)


def test_beta_max_without_beta_is_the_same_config() -> None:
    for name in ("deltanet", "gated_deltanet"):
        one, two = (CELLS.parse({"name": name, "cuts": ["beta"], "beta_max": m}) for m in (1, 2))
        assert one == two
