"""Gated cells: torch's layers, the cuts of the GRU and of the MGU, variants of the LSTM."""

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS, Cell, Weights
from lmzoo.cells.gru import Cut
from lmzoo.cells.lstm import Cut as PeepholeCut
from lmzoo.cells.lstm import Peephole
from lmzoo.cells.mgu import MGU
from lmzoo.cells.rnn import spectral_radius
from lmzoo.laws.tiny import assert_close
from tests.cases import rows
from tests.cells.support import (
    LIBRARY,
    bits,
    groups,
    inputs,
    make,
    outputs,
    subsets,
    torch_layers,
    trace,
)
from tests.tiny import FINE, assert_equal_double


@pytest.mark.parametrize("name", LIBRARY)
def test_outputs_equal_those_of_torch(name):
    assert_computes_as(torch_layers, make(name, 5, 6))


def test_outputs_with_relu_equal_those_of_torch():
    cell = make("rnn", 5, 6, activation="relu")
    with_relu = functools.partial(torch_layers, nonlinearity="relu")
    assert_computes_as(with_relu, cell)


def assert_computes_as(library, cell: Cell):
    """Assert equal outputs; torch's LSTM has a tuple of states, the others have one."""
    x, start = inputs(cell, count=3)
    parts = start.split(5, dim=-1)
    states = tuple(part[None].contiguous() for part in parts)
    if len(states) == 1:
        (states,) = states
    expected, _ = library(cell)(x, states)
    assert_equal_double(cell.scan(x, start), expected)


@pytest.mark.parametrize("width", [2, 7, 40])
def test_spectral_scales_w_hh_to_radius_one(width):
    cell = make("rnn", width=width, spectral=True)
    plain = make("rnn", width=width)
    radius = spectral_radius(cell.w.weight_hh.detach())
    drawn_radius = spectral_radius(plain.w.weight_hh.detach())
    assert abs(radius - 1) < 1e-5
    assert abs(drawn_radius - 1) > 1e-2
    ratio = cell.w.weight_hh / plain.w.weight_hh
    first = ratio[:1, :1]
    assert_close(ratio, first.expand_as(ratio), 1e-5, "scale")
    for name in ("weight_ih", "bias_ih", "bias_hh"):
        drawn = plain.w.get_parameter(name)
        assert cell.w.get_parameter(name).equal(drawn)


SETS = [[], [0, 4, 7], [0, 3, 6], [2, 5, 8], [9, 10], [1, 9]]
SETS += [[cut] for cut in Cut]
PATHS = rows("cells/paths.toml", "gru")
"""What each path of the GRU reads: the weight or the two biases, and its gate."""


def weights_by_gate(w: Weights) -> dict[str, dict[str, Tensor]]:
    """Return the rows of each gate in every weight."""
    found = {}
    for name, weight in w.named_parameters():
        r, z, n = weight.detach().chunk(3)
        found[name] = {"reset": r, "update": z, "candidate": n}
    return found


def gru(w: dict[str, dict[str, Tensor]], u: Tensor, h: Tensor, reset: str, cut: set[Cut]) -> Tensor:
    """Return the next state from the input u and the state h."""

    def read(v: Tensor, kind: str, gate: str) -> Tensor:
        return v @ w[f"weight_{kind}"][gate].T + w[f"bias_{kind}"][gate]

    r = torch.sigmoid(read(u, "ih", "reset") + read(h, "hh", "reset"))
    z = torch.sigmoid(read(u, "ih", "update") + read(h, "hh", "update"))
    if Cut.RESET in cut:
        r = torch.ones_like(r)
    if reset == "input":
        u = r * u
    new = read(u, "ih", "candidate")
    if reset == "before":
        kept = read(r * h, "hh", "candidate")
    elif reset == "after":
        kept = r * read(h, "hh", "candidate")
    else:
        kept = read(h, "hh", "candidate")
    n = torch.tanh(new + kept)
    if Cut.UPDATE in cut:
        return n
    return (1 - z) * n + z * h


@pytest.mark.parametrize("reset", ["after", "before", "input"])
@pytest.mark.parametrize("cuts", SETS, ids=str)
def test_cuts_compute_their_equations(cuts, reset):
    """The full cell's weights, with zeros where a path is cut."""
    cell = make("gru", reset=reset, cuts=cuts)
    names = list(Cut)
    cut = {names[number] if isinstance(number, int) else number for number in cuts}
    w = weights_by_gate(make("gru").w)
    for path in cut & set(PATHS):
        for kind in PATHS[path]["weights"]:
            w[kind][PATHS[path]["gate"]].zero_()
    x, h = inputs(cell)
    states = []
    for u in x.unbind(1):
        h = gru(w, u, h, reset, cut)
        states.append(h)
    assert_equal_double(outputs(cell), torch.stack(states, 1))


def test_which_gate_writes_is_no_choice():
    config = CELLS.parse({"name": "gru", "update": "z_writes"})
    assert config == CELLS.parse("gru")


SUBSETS = subsets(8)


def mgu(w: dict[str, Tensor], cut: Tensor, x: Tensor, start: Tensor) -> Tensor:
    """Return the states (P, B, T, H) of P sets of cuts, rows of `cut`.

    u_i is 0 where the path i is cut: h ← u_6 (1 − f) h + u_7 f c.
    """
    u = (~cut).to(x.dtype).T[:, :, None, None]  # 8 P 1 1
    h = start.expand(len(cut), *start.shape)
    states = []
    for x_t in x.unbind(1):
        input_to_gate = u[0] * (x_t @ w["xf"])
        state_to_gate = u[1] * (h @ w["hf"])
        f = torch.sigmoid(input_to_gate + state_to_gate + u[2] * w["bf"])
        input_to_candidate = u[3] * (x_t @ w["xh"])
        state_to_candidate = u[4] * ((h * f) @ w["hh"])
        c = torch.tanh(input_to_candidate + state_to_candidate + u[5] * w["bh"])
        h = u[6] * (1 - f) * h + u[7] * f * c
        states.append(h)
    return torch.stack(states, dim=2)


@pytest.fixture(scope="module")
def cells() -> list[Cell | None]:
    """Return the cell of each set of cuts, or None if the set is an error."""

    def cell_of(cuts: tuple[int, ...]) -> Cell | None:
        try:
            return make("mgu", cuts=cuts)
        except UserError:
            return None

    return [cell_of(cuts) for cuts in SUBSETS]


@pytest.fixture(scope="module")
def expected() -> Tensor:
    wild = make("mgu")
    w = dict(wild.w.named_parameters())
    with torch.no_grad():
        return mgu(w, bits(8), *inputs(wild))


def test_every_set_of_cuts_computes_its_equation(cells, expected):
    for cell, states, cuts in zip(cells, expected, SUBSETS, strict=True):
        if cell is not None:
            assert_close(outputs(cell), states, FINE, f"outputs of {cuts}")


def test_exactly_the_72_sets_with_zero_state_are_errors(cells, expected):
    zero = (expected.abs().amax((1, 2, 3)) == 0).tolist()
    assert [cell is None for cell in cells] == zero
    assert sum(zero) == 72


def test_configs_are_equal_exactly_if_functions_are_equal(cells, expected):
    reading = []
    for i, cell in enumerate(cells):
        if cell is not None and not cell.input_blind:
            reading.append(i)
    configs = [cells[i].config for i in reading]
    assert groups(expected[reading]) == [configs.index(config) for config in configs]
    assert len(reading) == 124
    assert len(set(configs)) == 92


def test_cuts_are_given_by_name_number_or_text():
    named = MGU.Config(cuts=["input_to_gate", "gate_bias"])
    for same in ([0, 2], "0,2", "2;0"):
        assert MGU.Config(cuts=same) == named


GATES = ("i", "f", "g", "o")


def by_gate(weight: Tensor) -> dict[str, Tensor]:
    """Return the rows of each gate."""
    return dict(zip(GATES, weight.chunk(4), strict=True))


def test_forget_bias_sets_the_sum_of_both_biases():
    w = make("lstm", forget_bias=2.5).w
    bias = by_gate(w.bias_ih + w.bias_hh)
    assert (bias["f"] == 2.5).all()


def test_forget_bias_changes_no_other_weight():
    cell = make("lstm", forget_bias=2.5)
    full = make("lstm")
    for name, weight in cell.w.named_parameters():
        actual = by_gate(weight)
        expected = by_gate(full.w.get_parameter(name))
        if name.startswith("bias"):
            del actual["f"]
        for gate in actual:
            assert actual[gate].equal(expected[gate])


VARIANTS: list[list[Any]] = [[], [5, 2, 4, 6], [0, 1, 2], [1, 3, 4]]
VARIANTS += [[cut] for cut in PeepholeCut]
GATE_CUTS: dict[str, set[str]] = {
    "i": {"input_gate"},
    "f": {"forget_gate", "coupled"},
    "o": {"output_gate"},
}


KINDS = [
    {"peephole": "full"},
    {"peephole": "diagonal"},
    {"peephole": "diagonal", "gate_recurrence": True},
]


def peepholes(w: Weights, gates: list[str], *, full: bool) -> dict[str, Tensor]:
    """Return the matrix from c to each gate; what is cut has zeros."""
    found = dict.fromkeys("ifo", torch.zeros(3, 3).double())
    if w.weight_ch is None:
        return found
    if full:
        matrices = w.weight_ch.chunk(len(gates))
    else:
        matrices = map(torch.diag, w.weight_ch)
    return found | dict(zip(gates, matrices, strict=True))


@torch.no_grad()
@pytest.mark.parametrize("fields", KINDS, ids=str)
@pytest.mark.parametrize("cuts", VARIANTS, ids=str)
def test_peepholes_and_the_variants_of_greff_compute_their_equations(cuts, fields):
    cell = make("lstm_peephole", cuts=cuts, **fields)
    cut = cell.config.cuts
    w = cell.w
    x, start = inputs(cell)
    read = [gate for gate in "ifo" if not GATE_CUTS[gate] & cut]
    columns = [gate for gate in GATES if gate == "g" or gate in read]

    def parts(weight: Tensor) -> dict[str, Tensor]:
        return dict(zip(columns, weight.chunk(len(columns)), strict=True))

    ih = parts(w.weight_ih)
    hh = parts(w.weight_hh)
    bias = parts(w.bias_ih + w.bias_hh)
    full = cell.config.peephole is Peephole.FULL
    peep = peepholes(w, read, full=full)
    h, c = start.chunk(2, dim=-1)
    gates = dict.fromkeys("ifo", torch.zeros_like(c))
    states = []
    for u in x.unbind(1):
        a = {gate: u @ ih[gate].T + h @ hh[gate].T + bias[gate] for gate in ih}
        if cell.config.gate_recurrence:
            earlier = torch.cat([gates[gate] for gate in read], dim=-1)
            blocks = w.weight_gates.chunk(len(read))
            for gate, block in zip(read, blocks, strict=True):
                a[gate] = a[gate] + earlier @ block.T
        # A gate that is cut is open.
        gates = dict.fromkeys("ifo", torch.ones_like(c))
        for gate in "if":
            if gate in read:
                gates[gate] = torch.sigmoid(a[gate] + c @ peep[gate].T)
        if "coupled" in cut:
            gates["f"] = 1 - gates["i"]
        new = a["g"]
        if "input_activation" not in cut:
            new = new.tanh()
        before = c
        c = gates["f"] * c + gates["i"] * new
        if "o" in read:
            seen = c
            if full:
                seen = before
            gates["o"] = torch.sigmoid(a["o"] + seen @ peep["o"].T)
        activated = c
        if "output_activation" not in cut:
            activated = c.tanh()
        h = gates["o"] * activated
        states.append(h)
    actual = trace(cell, x, start)[0]
    assert_equal_double(actual, torch.stack(states, 1))


@pytest.mark.parametrize("beta", [0.0, 1.5])
def test_janet_computes_its_equation(beta):
    cell = make("janet", beta=beta)
    w = cell.w
    x, start = inputs(cell)
    c = start - 1
    states = []
    for u in x.unbind(1):
        logits = u @ w.weight_ih.T + c @ w.weight_hh.T + w.bias
        s, g = logits.chunk(2, dim=-1)
        kept = torch.sigmoid(s) * c
        c = kept + torch.sigmoid(beta - s) * torch.tanh(g)
        states.append(c)
    assert_equal_double(outputs(cell), torch.stack(states, 1))


def test_janet_starts_with_the_chrono_initialisation():
    largest_lag = 59
    f, g = make("janet", width=400, length=60).w.bias.exp().chunk(2)
    assert (g == 1).all()
    assert f.min() >= 1
    assert f.max() <= largest_lag
    # Uniform from 1 to 59, within four standard errors.
    deviation = 58 / 12**0.5
    assert abs(f.mean() - 30) < 4 * deviation / 400**0.5
