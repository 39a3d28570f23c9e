"""Cuts of one elementwise cell give another cell, and each computes its published equation."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.cells.base import Cell
from lmzoo.laws.support import assert_close
from lmzoo.laws.tiny import FINE
from tests.cells.support import inputs, make, outputs
from tests.tiny import quick

SEEDS = st.integers(0, 10_000)


def copy(target: Cell, source: Cell, **names: str) -> None:
    """Copy weights; a name with a leading minus is copied with the other sign."""
    with torch.no_grad():
        for name, other in names.items():
            value = source.get_parameter(f"w.{other.lstrip('-')}")
            value = value.reshape(target.get_parameter(f"w.{name}").shape)
            target.get_parameter(f"w.{name}").copy_(-value if other[0] == "-" else value)


def same(left: Cell, right: Cell, seed: int) -> None:
    """Assert equal outputs for equal random inputs and states of width H."""
    x, state = inputs(left, seed=seed)
    results = [cell.scan(x, state + cell.zero_start) for cell in (left, right)]
    assert_close(*results, FINE, "outputs")


@given(seed=SEEDS)
@quick
def test_min_gru_with_tanh_is_the_minimal_gated_unit(seed: int) -> None:
    """Without state_to_candidate (4); and with its path h → z put back, without that cut of z."""
    names = {"xz": "xf", "bz": "bf", "xh": "xh", "bh": "bh"}
    for restored, cuts in ((False, [1, 4]), (True, [4])):
        mgu = make("mgu", cuts=cuts, seed=seed)
        cell = make("min_gru", candidate="tanh", state_to_gate=restored)
        copy(cell, mgu, **names, **({"hz": "hf"} if restored else {}))
        same(cell, mgu, seed)


@given(seed=SEEDS)
@quick
def test_min_lstm_with_tied_gates_is_the_min_gru(seed: int) -> None:
    """i = 1 − f by the cut write_gate, or by opposite weights under the normaliser."""
    gru = make("min_gru", seed=seed)
    tied = make("min_lstm", cuts=["write_gate"])
    copy(tied, gru, xf="-xz", bf="-bz", xh="xh", bh="bh")
    same(tied, gru, seed)
    for cuts in ([], ["normaliser"]):
        full = make("min_lstm", cuts=cuts)
        copy(full, gru, xf="-xz", bf="-bz", xi="xz", bi="bz", xh="xh", bh="bh")
        same(full, gru, seed)


@given(seed=SEEDS)
@quick
def test_qrnn_with_window_1_is_sru_without_its_highway(seed: int) -> None:
    """Without the squash of one, and the paths from the state of the other."""
    for cuts, sru_cuts, weights in (
        ([4, 5], [1, 4, 7, 8], {}),
        ([4], [1, 4, 7], {"xo": "xr", "bo": "br"}),
    ):
        sru = make("sru", cuts=sru_cuts, seed=seed)
        qrnn = make("qrnn", window=1, cuts=cuts)
        copy(qrnn, sru, xz="x", xf="xf", bf="bf", **weights)
        with torch.no_grad():
            qrnn.w.bz.zero_()
        same(qrnn, sru, seed)


@given(seed=SEEDS, window=st.integers(1, 4))
@quick
def test_qrnn_computes_its_convolution(seed: int, window: int) -> None:
    cell = make("qrnn", window=window, cuts=["carry", "output_gate"], length=6, seed=seed)
    x, start = inputs(cell, seed=seed)
    padded = torch.nn.functional.pad(x.mT, (window - 1, 0))
    z, f = (  # torch's kernel is (out, in, k), its last entry reads the newest input
        torch.conv1d(padded, weight.flip(0).permute(2, 1, 0), bias).mT
        for weight, bias in ((cell.w.xz, cell.w.bz), (cell.w.xf, cell.w.bf))
    )
    expected = (1 - torch.sigmoid(f)) * torch.tanh(z)
    assert_close(cell.scan(x, start), expected, FINE, "convolution")


@given(seed=SEEDS)
@quick
def test_qrnn_write_gate_of_one_minus_f_is_fo_pooling(seed: int) -> None:
    coupled, ifo = make("qrnn", seed=seed), make("qrnn", write_gate=True)
    copy(ifo, coupled, **{name: name for name in ("xz", "bz", "xf", "bf", "xo", "bo")})
    copy(ifo, coupled, xi="-xf", bi="-bf")
    same(ifo, coupled, seed)


@given(seed=SEEDS)
@quick
def test_sru_computes_its_equation(seed: int) -> None:
    cell = make("sru", highway_bias=-0.5, seed=seed)
    w, (x, start) = cell.w, inputs(cell, seed=seed)
    c = start - 1
    for t, y in enumerate(outputs(cell, seed).unbind(1)):
        f = torch.sigmoid(x[:, t] @ w.xf + w.cf * c + w.bf)
        r = torch.sigmoid(x[:, t] @ w.xr + w.cr * c + w.br)
        c = f * c + (1 - f) * (x[:, t] @ w.x)
        highway = (1 + 2 * torch.tensor(-0.5).double().exp()).sqrt() * x[:, t]
        assert_close(y, (r * c + (1 - r) * highway).detach(), 1e-7, f"h at {t}")
