"""Gated cells: torch's layers, the cuts of the GRU and of the MGU, variants of the LSTM."""

import functools

import pytest
import torch

from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS
from lmzoo.cells.gru import Cut
from lmzoo.cells.lstm import Cut as PeepholeCut
from lmzoo.cells.lstm import Peephole
from lmzoo.cells.mgu import MGU
from lmzoo.cells.rnn import spectral_radius
from lmzoo.laws.tiny import assert_close
from tests.cases import parametrize, rows
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


@parametrize("name", LIBRARY)
def test_outputs_equal_those_of_torch(name):
    assert_computes_as(torch_layers, make(name, 5, 6))


def test_outputs_with_relu_equal_those_of_torch():
    # torch's default is tanh.
    cell = make("rnn", 5, 6, activation="relu")
    with_relu = functools.partial(torch_layers, nonlinearity="relu")
    assert_computes_as(with_relu, cell)


def assert_computes_as(library, cell):
    """Assert equal outputs; torch's LSTM has a tuple of states, the others have one."""
    x, start = inputs(cell, count=3)
    parts = start.split(5, dim=-1)
    # torch has the layers first.
    states = tuple(part[None].contiguous() for part in parts)
    if len(states) == 1:
        (states,) = states
    expected, _ = library(cell)(x, states)
    actual = cell.scan(x, start)
    assert_equal_double(actual, expected)


@parametrize("width", [2, 7, 40])
def test_spectral_scales_w_hh_to_radius_one(width):
    scaled = make("rnn", width=width, spectral=True).w
    drawn = make("rnn", width=width).w
    radius = spectral_radius(scaled.weight_hh.detach())
    drawn_radius = spectral_radius(drawn.weight_hh.detach())
    assert abs(radius - 1) < 1e-5
    assert abs(drawn_radius - 1) > 1e-2
    # One factor for the whole matrix.
    ratio = scaled.weight_hh / drawn.weight_hh
    first = ratio[:1, :1]
    expected = first.expand_as(ratio)
    assert_close(ratio, expected, 1e-5, "scale")
    for name in ("weight_ih", "bias_ih", "bias_hh"):
        weight = scaled.get_parameter(name)
        assert weight.equal(drawn.get_parameter(name))


SETS = rows("cells/paths.toml", "sets")
SETS += [[number] for number in range(len(Cut))]
PATHS = rows("cells/paths.toml", "gru")
"""What each path of the GRU reads: the weight or the two biases, and its gate."""


def weights_by_gate(w):
    """Return the rows of each gate in every weight."""
    found = {}
    for name, weight in w.named_parameters():
        # The order of torch's GRU.
        r, z, n = weight.detach().chunk(3)
        found[name] = {"reset": r, "update": z, "candidate": n}
    return found


def gru(w, u, h, reset, cut):
    """Return the next state from the input u and the state h."""

    def read(v, kind, gate):
        product = v @ w[f"weight_{kind}"][gate].T
        return product + w[f"bias_{kind}"][gate]

    r = read(u, "ih", "reset")
    r = r + read(h, "hh", "reset")
    z = read(u, "ih", "update")
    z = z + read(h, "hh", "update")
    r = torch.sigmoid(r)
    z = torch.sigmoid(z)
    if Cut.RESET in cut:
        r = torch.ones_like(r)
    # A variant in which r acts on the input of the candidate.
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
    written = (1 - z) * n
    return written + z * h


@parametrize("reset", ["after", "before", "input"])
@parametrize("cuts", SETS, ids=str)
def test_cuts_compute_their_equations(cuts, reset):
    """The full cell's weights, with zeros where a path is cut."""
    cell = make("gru", reset=reset, cuts=cuts)
    names = list(Cut)
    cut = {names[number] for number in cuts}
    w = weights_by_gate(make("gru").w)
    for path in cut & set(PATHS):
        gate = PATHS[path]["gate"]
        for kind in PATHS[path]["weights"]:
            w[kind][gate].zero_()
    x, h = inputs(cell)
    states = []
    for u in x.unbind(1):
        h = gru(w, u, h, reset, cut)
        states.append(h)
    expected = torch.stack(states, 1)
    assert_equal_double(outputs(cell), expected)


def test_which_gate_writes_is_no_choice():
    fields = {"name": "gru", "update": "z_writes"}
    config = CELLS.parse(fields)
    assert config == CELLS.parse("gru")


SUBSETS = subsets(8)


def mgu(w, cut, x, start):
    """Return the states (P, B, T, H) of P sets of cuts, rows of `cut`.

    u_i is 0 where the path i is cut: h ← u_6 (1 − f) h + u_7 f c.
    """
    kept = (~cut).to(x.dtype)
    u = kept.T[:, :, None, None]  # 8 P 1 1
    h = start.expand(len(cut), *start.shape)
    states = []
    for x_t in x.unbind(1):
        from_input = u[0] * (x_t @ w["xf"])
        from_state = u[1] * (h @ w["hf"])
        logits = from_input + from_state + u[2] * w["bf"]
        f = torch.sigmoid(logits)
        from_input = u[3] * (x_t @ w["xh"])
        # The gate acts before the matrix.
        forgetful = (h * f) @ w["hh"]
        from_state = u[4] * forgetful
        logits = from_input + from_state + u[5] * w["bh"]
        c = torch.tanh(logits)
        h = u[6] * (1 - f) * h
        h = h + u[7] * f * c
        states.append(h)
    return torch.stack(states, dim=2)


@pytest.fixture(scope="module")
def cells():
    """Return the cell of each set of cuts, or None if the set is an error."""

    def cell_of(cuts):
        try:
            return make("mgu", cuts=cuts)
        except UserError:
            # The state would be zero at every step.
            return None

    return [cell_of(cuts) for cuts in SUBSETS]


@pytest.fixture(scope="module")
def expected():
    wild = make("mgu")
    w = dict(wild.w.named_parameters())
    with torch.no_grad():
        x, start = inputs(wild)
        return mgu(w, bits(8), x, start)


def test_every_set_of_cuts_computes_its_equation(cells, expected):
    rows_of_states = zip(cells, expected, SUBSETS, strict=True)
    for cell, states, cuts in rows_of_states:
        if cell is not None:
            assert_close(outputs(cell), states, FINE, f"outputs of {cuts}")


def test_exactly_the_72_sets_with_zero_state_are_errors(cells, expected):
    largest = expected.abs().amax((1, 2, 3))
    zero = (largest == 0).tolist()
    assert [cell is None for cell in cells] == zero
    assert sum(zero) == 72


def test_configs_are_equal_exactly_if_functions_are_equal(cells, expected):
    reading = []
    for i, cell in enumerate(cells):
        # Functions that ignore their inputs are not compared.
        if cell is not None and not cell.input_blind:
            reading.append(i)
    configs = [cells[i].config for i in reading]
    first = [configs.index(config) for config in configs]
    assert groups(expected[reading]) == first
    assert len(reading) == 124
    assert len(set(configs)) == 92


def test_cuts_are_given_by_name_number_or_text():
    named = MGU.Config(cuts="input_to_gate, gate_bias")
    for same in ([0, 2], "0,2", "2;0"):
        assert MGU.Config(cuts=same) == named


GATES = ("i", "f", "g", "o")


def by_gate(weight):
    """Return the rows of each gate."""
    rows_of_gates = weight.chunk(4)
    return dict(zip(GATES, rows_of_gates, strict=True))


def test_forget_bias_sets_the_sum_of_both_biases():
    w = make("lstm", forget_bias=2.5).w
    # torch adds two biases.
    bias = by_gate(w.bias_ih + w.bias_hh)
    assert (bias["f"] == 2.5).all()


def test_forget_bias_changes_no_other_weight():
    cell = make("lstm", forget_bias=2.5)
    full = make("lstm")
    for name, weight in cell.w.named_parameters():
        actual = by_gate(weight)
        drawn = full.w.get_parameter(name)
        expected = by_gate(drawn)
        # The option sets the forget gate's biases.
        if name.startswith("bias"):
            del actual["f"]
        for gate in actual:
            assert actual[gate].equal(expected[gate])


VARIANTS = rows("cells/paths.toml", "variants")
VARIANTS += [[cut] for cut in PeepholeCut]
GATE_CUTS = {
    "i": {"input_gate"},
    "f": {"forget_gate", "coupled"},
    "o": {"output_gate"},
}


KINDS = [
    {"peephole": "full"},
    {"peephole": "diagonal"},
    {"peephole": "diagonal", "gate_recurrence": True},
]


def peepholes(w, gates, *, full):
    """Return the matrix from c to each gate; what is cut has zeros."""
    zeros = torch.zeros(3, 3).double()
    found = dict.fromkeys("ifo", zeros)
    if w.weight_ch is None:
        return found
    if full:
        matrices = w.weight_ch.chunk(len(gates))
    else:
        matrices = map(torch.diag, w.weight_ch)
    read = dict(zip(gates, matrices, strict=True))
    return found | read


class Greff:
    """The LSTM with peepholes and its cuts, from the weights of a cell."""

    def __init__(self, cell):
        w = cell.w
        self.cuts = cell.config.cuts
        self.full = cell.config.peephole is Peephole.FULL
        self.read = [gate for gate in "ifo" if not GATE_CUTS[gate] & self.cuts]
        self.ih = self.by_gate(w.weight_ih)
        self.hh = self.by_gate(w.weight_hh)
        self.bias = self.by_gate(w.bias_ih + w.bias_hh)
        self.peep = peepholes(w, self.read, full=self.full)
        self.recurrence = None
        if cell.config.gate_recurrence:
            self.recurrence = w.weight_gates.chunk(len(self.read))

    def by_gate(self, weight):
        # The weights are stacked in this order; a gate that is cut has none.
        columns = [gate for gate in GATES if gate in self.read + ["g"]]
        chunks = weight.chunk(len(columns))
        return dict(zip(columns, chunks, strict=True))

    def logits(self, u, h, gates):
        """Return what each gate reads, without its peephole."""
        a = {}
        for gate, bias in self.bias.items():
            seen = u @ self.ih[gate].T + h @ self.hh[gate].T
            a[gate] = seen + bias
        if self.recurrence is not None:
            parts = [gates[gate] for gate in self.read]
            earlier = torch.cat(parts, dim=-1)
            for gate, block in zip(self.read, self.recurrence, strict=True):
                a[gate] += earlier @ block.T
        return a

    def step(self, u, h, c, gates):
        """Return the next h and c, and the gates."""
        a = self.logits(u, h, gates)
        # A gate that is cut is open.
        gates = dict.fromkeys("ifo", torch.ones_like(c))
        for gate in "if":
            if gate in self.read:
                seen = a[gate] + c @ self.peep[gate].T
                gates[gate] = torch.sigmoid(seen)
        if "coupled" in self.cuts:
            gates["f"] = 1 - gates["i"]
        new = a["g"]
        if "input_activation" not in self.cuts:
            new = new.tanh()
        before = c
        kept = gates["f"] * c
        c = kept + gates["i"] * new
        if "o" in self.read:
            # Full peepholes of the output gate read the memory before.
            memory = c
            if self.full:
                memory = before
            seen = a["o"] + memory @ self.peep["o"].T
            gates["o"] = torch.sigmoid(seen)
        activated = c
        if "output_activation" not in self.cuts:
            activated = c.tanh()
        return gates["o"] * activated, c, gates


@torch.no_grad()
@parametrize("fields", KINDS, ids=str)
@parametrize("cuts", VARIANTS, ids=str)
def test_peepholes_and_the_variants_of_greff_compute_their_equations(cuts, fields):
    cell = make("lstm_peephole", cuts=cuts, **fields)
    variant = Greff(cell)
    x, start = inputs(cell)
    h, c = start.chunk(2, dim=-1)
    # Before the first token, the gates are closed.
    gates = dict.fromkeys("ifo", torch.zeros_like(c))
    states = []
    for u in x.unbind(1):
        h, c, gates = variant.step(u, h, c, gates)
        states.append(h)
    actual = trace(cell, x, start)[0]
    expected = torch.stack(states, 1)
    assert_equal_double(actual, expected)


@parametrize("beta", [0.0, 1.5])
def test_janet_computes_its_equation(beta):
    cell = make("janet", beta=beta)
    w = cell.w
    x, start = inputs(cell)
    c = start - 1
    states = []
    for u in x.unbind(1):
        logits = u @ w.weight_ih.T
        logits = logits + c @ w.weight_hh.T
        logits = logits + w.bias
        s, g = logits.chunk(2, dim=-1)
        kept = torch.sigmoid(s) * c
        # With β = 0, both gates sum to one.
        write = torch.sigmoid(beta - s)
        c = kept + write * torch.tanh(g)
        states.append(c)
    expected = torch.stack(states, 1)
    assert_equal_double(outputs(cell), expected)


def test_janet_starts_with_the_chrono_initialisation():
    # One less than the length.
    largest_lag = 59
    cell = make("janet", width=400, length=60)
    bias = cell.w.bias
    f, g = bias.exp().chunk(2)
    assert (g == 1).all()
    assert f.min() >= 1
    assert f.max() <= largest_lag
    # Uniform from 1 to 59, within four standard errors.
    deviation = 58 / 12**0.5
    error = deviation / 400**0.5
    assert abs(f.mean() - 30) < 4 * error
