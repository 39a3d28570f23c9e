"""Gated cells: torch's layers, the cuts of the GRU and of the MGU, variants of the LSTM."""

import pytest
import torch
from torch import Tensor

from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS, Cell
from lmzoo.cells.gru import Cut
from lmzoo.cells.lstm import Cut as PeepholeCut
from lmzoo.cells.lstm import Peephole
from lmzoo.cells.mgu import MGU
from lmzoo.cells.rnn import spectral_radius
from lmzoo.laws.tiny import assert_close
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


@pytest.mark.parametrize("name", [*LIBRARY, "relu"])
def test_outputs_equal_those_of_torch(name):
    relu = name == "relu"
    cell = make("rnn" if relu else name, 5, 6, **({"activation": "relu"} if relu else {}))
    theirs = torch_layers(cell, **({"nonlinearity": "relu"} if relu else {}))
    x, start = inputs(cell, count=3)
    parts = tuple(part[None].contiguous() for part in start.split(5, dim=-1))
    expected, _ = theirs(x, parts if len(parts) > 1 else parts[0])
    assert_equal_double(cell.scan(x, start), expected)


@pytest.mark.parametrize("width", [2, 7, 40])
def test_spectral_scales_w_hh_to_radius_one(width):
    cell = make("rnn", width=width, spectral=True)
    plain = make("rnn", width=width)
    assert abs(spectral_radius(cell.w.weight_hh.detach()) - 1) < 1e-5
    assert abs(spectral_radius(plain.w.weight_hh.detach()) - 1) > 1e-2
    ratio = cell.w.weight_hh / plain.w.weight_hh
    assert_close(ratio, ratio[:1, :1].expand_as(ratio), 1e-5, "scale")
    for name in ("weight_ih", "bias_ih", "bias_hh"):
        assert cell.w.get_parameter(name).equal(plain.w.get_parameter(name))


SETS = [[], *([cut] for cut in Cut), [0, 4, 7], [0, 3, 6], [2, 5, 8], [9, 10], [1, 9]]


@pytest.mark.parametrize("reset", ["after", "before", "input"])
@pytest.mark.parametrize("cuts", SETS, ids=str)
def test_cuts_compute_their_equations(cuts, reset):
    """The full cell's weights, with zeros where a path is cut."""
    cell = make("gru", reset=reset, cuts=cuts)
    full = make("gru").w
    cut = {c if isinstance(c, Cut) else [*Cut][c] for c in cuts}
    kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    w = {k: dict(zip("rzn", full.get_parameter(k).chunk(3), strict=True)) for k in kinds}
    for path in cut & {*[*Cut][:9]}:
        source, _, gate = path.replace("_bias", "").rpartition("_to_")
        named = {"input": kinds[:1], "state": kinds[1:2], "": kinds[2:]}[source]
        for kind in named:
            weight = w[kind][{"reset": "r", "update": "z", "candidate": "n"}[gate]]
            weight.data.zero_()
    x, start = inputs(cell)
    h = start
    ys = []
    for t in range(cell.length):
        u = x[:, t]
        r, z = (
            torch.sigmoid(
                u @ w["weight_ih"][g].T
                + w["bias_ih"][g]
                + h @ w["weight_hh"][g].T
                + w["bias_hh"][g]
            )
            for g in "rz"
        )
        if Cut.RESET in cut:
            r = torch.ones_like(r)
        read = (r * u if reset == "input" else u) @ w["weight_ih"]["n"].T + w["bias_ih"]["n"]
        kept = (r * h if reset == "before" else h) @ w["weight_hh"]["n"].T + w["bias_hh"]["n"]
        n = torch.tanh(read + (r * kept if reset == "after" else kept))
        if Cut.UPDATE in cut:
            h = n
        else:
            h = (1 - z) * n + z * h
        ys.append(h)
    assert_equal_double(outputs(cell), torch.stack(ys, 1))


def test_which_gate_writes_is_no_choice_and_a_state_of_zeros_is_refused():
    assert CELLS.parse({"name": "gru", "update": "z_writes"}) == CELLS.parse("gru")
    with pytest.raises(UserError, match="leave h = 0 at every step"):
        CELLS.parse({"name": "gru", "cuts": [6, 7, 8, 10]})


SUBSETS = subsets(8)


def mgu(w: dict[str, Tensor], cut: Tensor, x: Tensor, start: Tensor) -> Tensor:
    """Return the states (P, B, T, H) of P sets of cuts, rows of `cut`."""
    u = (~cut).to(x.dtype).T[:, :, None, None]  # 8 P 1 1
    h = start.expand(len(cut), *start.shape)
    states = []
    for x_t in x.unbind(1):
        f = torch.sigmoid(u[0] * (x_t @ w["xf"]) + u[1] * (h @ w["hf"]) + u[2] * w["bf"])
        c = torch.tanh(u[3] * (x_t @ w["xh"]) + u[4] * ((h * f) @ w["hh"]) + u[5] * w["bh"])
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
    reading = [i for i, cell in enumerate(cells) if cell is not None and not cell.input_blind]
    configs = [cells[i].config for i in reading]
    assert groups(expected[reading]) == [configs.index(config) for config in configs]
    assert (len(reading), len(set(configs))) == (124, 92)


def test_cuts_are_given_by_name_number_or_text():
    named = MGU.Config(cuts=["input_to_gate", "gate_bias"])
    assert named == MGU.Config(cuts=[0, 2]) == MGU.Config(cuts="0,2") == MGU.Config(cuts="2;0")


@pytest.mark.parametrize("value", [[8], "reset", -1])
def test_an_unknown_cut_is_an_error_that_lists_the_known_ones(value):
    with pytest.raises(ValueError, match=r"no cut .*; known: input_to_gate \(0\), "):
        MGU.Config(cuts=value)


GATES = ("i", "f", "g", "o")


def rows(weight: Tensor) -> dict[str, Tensor]:
    """Return the rows of each gate."""
    return dict(zip(GATES, weight.chunk(4), strict=True))


def test_forget_bias_sets_the_sum_of_both_biases_and_nothing_else():
    cell = make("lstm", forget_bias=2.5)
    full = make("lstm")
    bias = rows(cell.w.bias_ih + cell.w.bias_hh)
    assert (bias["f"] == 2.5).all()
    for name, weight in cell.w.named_parameters():
        for gate in GATES:
            if gate != "f" or not name.startswith("bias"):
                assert_close(rows(weight)[gate], rows(full.w.get_parameter(name))[gate], 0, name)


def test_a_forget_bias_without_a_forget_gate_is_an_error():
    with pytest.raises(UserError, match=r"forget_bias=1\.0 needs a forget gate, but forget=none"):
        CELLS.parse({"name": "lstm", "forget": "none", "forget_bias": 1.0})


VARIANTS = [[], *([cut] for cut in PeepholeCut), [5, 2, 4, 6], [0, 1, 2], [1, 3, 4]]
GATE_CUTS: dict[str, set[str]] = {
    "i": {"input_gate"},
    "f": {"forget_gate", "coupled"},
    "o": {"output_gate"},
}


KINDS = [{"peephole": "full"}, {}, {"gate_recurrence": True}]


@pytest.mark.parametrize("fields", KINDS, ids=str)
@pytest.mark.parametrize("cuts", VARIANTS, ids=str)
def test_peepholes_and_the_variants_of_greff_compute_their_equations(cuts, fields):
    cell = make("lstm_peephole", cuts=cuts, **{"peephole": "diagonal", **fields})
    cut = cell.config.cuts
    w = cell.w
    (x, start) = inputs(cell)
    read = [g for g in "ifo" if not GATE_CUTS[g] & cut]
    columns = [g for g in GATES if g == "g" or g in read]

    def by_gate(part: Tensor) -> dict[str, Tensor]:
        return dict(zip(columns, part.chunk(len(columns)), strict=True))

    ih = by_gate(w.weight_ih)
    hh = by_gate(w.weight_hh)
    bias = by_gate(w.bias_ih + w.bias_hh)
    full = cell.config.peephole is Peephole.FULL
    peep = dict.fromkeys("ifo", torch.zeros(3, 3).double())
    if w.weight_ch is not None:
        if full:
            matrices = w.weight_ch.chunk(len(read))
        else:
            matrices = map(torch.diag, w.weight_ch)
        peep |= dict(zip(read, matrices, strict=True))
    h, c = start.chunk(2, dim=-1)
    gates = {g: torch.zeros_like(c) for g in "ifo"}
    for t in range(cell.length):
        a = {g: x[:, t] @ ih[g].T + h @ hh[g].T + bias[g] for g in ih}
        if cell.config.gate_recurrence:
            before = torch.cat([gates[g] for g in read], dim=-1)
            a |= {
                g: a[g] + before @ m.T
                for g, m in zip(read, w.weight_gates.chunk(len(read)), strict=True)
            }
        gates = {g: torch.ones_like(c) for g in "ifo"}
        gates |= {g: torch.sigmoid(a[g] + c @ peep[g].T) for g in "if" if g in read}
        if "coupled" in cut:
            gates["f"] = 1 - gates["i"]
        if "input_activation" in cut:
            new = a["g"]
        else:
            new = a["g"].tanh()
        before = c
        c = gates["f"] * c + gates["i"] * new
        if "o" in read:
            gates["o"] = torch.sigmoid(a["o"] + (before if full else c) @ peep["o"].T)
        h = gates["o"] * (c if "output_activation" in cut else c.tanh())
        assert_close(trace(cell, x, start)[0][:, t].detach(), h.detach(), FINE, f"h at {t}")


def test_coupled_gates_need_both_gates():
    with pytest.raises(UserError, match=r"coupled \(5\) is f = 1 − i, which needs both gates"):
        CELLS.parse({"name": "lstm_peephole", "cuts": [0, 5]})


@pytest.mark.parametrize("beta", [0.0, 1.5])
def test_janet_computes_its_equation(beta):
    cell = make("janet", beta=beta)
    w = cell.w
    x, start = inputs(cell)
    c = start - 1
    states = []
    for u in x.unbind(1):
        s, g = (u @ w.weight_ih.T + c @ w.weight_hh.T + w.bias).chunk(2, dim=-1)
        c = torch.sigmoid(s) * c + torch.sigmoid(beta - s) * torch.tanh(g)
        states.append(c)
    assert_equal_double(outputs(cell), torch.stack(states, 1))


def test_janet_starts_with_the_chrono_initialisation():
    f, g = make("janet", width=400, length=60).w.bias.exp().chunk(2)
    assert (g == 1).all()
    assert f.min() >= 1
    assert f.max() <= 59
    assert abs(f.mean() - 30) < 4 * 58 / (12 * 400) ** 0.5
