"""LSTMs with peepholes, those of Greff et al., JANET, and other forget gates (S3, S4)."""

import pytest
import torch
from torch import Tensor

from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS
from lmzoo.cells.lstm import Cut as PeepholeCut
from lmzoo.cells.lstm import Peephole
from lmzoo.laws.support import assert_close
from tests.cells.support import inputs, make, outputs, trace
from tests.tiny import FINE

GATES = ("i", "f", "g", "o")


def rows(weight: Tensor) -> dict[str, Tensor]:
    """Return the rows of each gate."""
    return dict(zip(GATES, weight.chunk(4), strict=True))


@pytest.mark.parametrize("peephole", ["full", "diagonal"])
def test_peepholes_compute_their_equation(peephole: str) -> None:
    cell = make("lstm_peephole", peephole=peephole)
    w, (x, start) = cell.w, inputs(cell)
    h, c = start.chunk(2, dim=-1)
    full = peephole == "full"
    ch = w.weight_ch.chunk(3) if full else [torch.diag(row) for row in w.weight_ch]
    for t in range(cell.length):
        at = {
            gate: x[:, t] @ rows(w.weight_ih)[gate].T
            + rows(w.bias_ih)[gate]
            + h @ rows(w.weight_hh)[gate].T
            + rows(w.bias_hh)[gate]
            for gate in GATES
        }
        i = torch.sigmoid(at["i"] + c @ ch[0].T)
        f = torch.sigmoid(at["f"] + c @ ch[1].T)
        before, c = c, f * c + i * torch.tanh(at["g"])
        o = torch.sigmoid(at["o"] + (before if full else c) @ ch[2].T)
        h = o * torch.tanh(c)
        assert_close(trace(cell, x, start)[0][:, t].detach(), h.detach(), FINE, f"h at {t}")


def test_forget_coupled_is_the_lstm_with_tied_gates() -> None:
    cell, full = make("lstm", forget="coupled"), make("lstm")
    assert not outputs(cell).allclose(outputs(full))
    with torch.no_grad():
        for weight in full.w.parameters():
            rows(weight)["f"].copy_(-rows(weight)["i"])
    assert_close(outputs(cell), outputs(full), FINE, "outputs")


def test_forget_none_is_the_lstm_with_an_open_gate() -> None:
    cell, full = make("lstm", forget="none"), make("lstm")
    with torch.no_grad():
        for name, weight in full.w.named_parameters():
            rows(weight)["f"].fill_(100.0 if name == "bias_ih" else 0.0)
    assert_close(outputs(cell), outputs(full), FINE, "outputs")


def test_forget_bias_sets_the_sum_of_both_biases_and_nothing_else() -> None:
    cell, full = make("lstm", forget_bias=2.5), make("lstm")
    bias = rows(cell.w.bias_ih + cell.w.bias_hh)
    assert (bias["f"] == 2.5).all()
    for name, weight in cell.w.named_parameters():
        for gate in GATES:
            if gate != "f" or not name.startswith("bias"):
                assert_close(rows(weight)[gate], rows(full.w.get_parameter(name))[gate], 0, name)


def test_a_forget_bias_without_a_forget_gate_is_an_error() -> None:
    with pytest.raises(UserError, match=r"forget_bias=1\.0 needs a forget gate, but forget=none"):
        CELLS.parse({"name": "lstm", "forget": "none", "forget_bias": 1.0})


VARIANTS = [[], *([cut] for cut in PeepholeCut), [5, 2, 4, 6], [0, 1, 2], [1, 3, 4]]
GATE_CUTS: dict[str, set[str]] = {
    "i": {"input_gate"}, "f": {"forget_gate", "coupled"}, "o": {"output_gate"}
}  # fmt: skip


@pytest.mark.parametrize("gate_recurrence", [False, True])
@pytest.mark.parametrize("cuts", VARIANTS, ids=str)
def test_the_variants_of_greff_compute_their_equations(
    cuts: list[PeepholeCut | int], *, gate_recurrence: bool
) -> None:
    fields = {"peephole": "diagonal", "gate_recurrence": gate_recurrence}
    cell = make("lstm_peephole", **fields, cuts=cuts)
    cut, w, (x, start) = cell.config.cuts, cell.w, inputs(cell)
    read = [g for g in "ifo" if not GATE_CUTS[g] & cut]
    ih, hh, bias = (
        dict(
            zip([g for g in GATES if g == "g" or g in read], part.chunk(1 + len(read)), strict=True)
        )
        for part in (w.weight_ih, w.weight_hh, w.bias_ih + w.bias_hh)
    )
    peep = {} if w.weight_ch is None else dict(zip(read, w.weight_ch, strict=True))
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
        gates |= {g: torch.sigmoid(a[g] + c * peep.get(g, 0)) for g in "if" if g in read}
        if "coupled" in cut:
            gates["f"] = 1 - gates["i"]
        c = gates["f"] * c + gates["i"] * (a["g"] if "input_activation" in cut else a["g"].tanh())
        if "o" in read:
            gates["o"] = torch.sigmoid(a["o"] + c * peep.get("o", 0))
        h = gates["o"] * (c if "output_activation" in cut else c.tanh())
        assert_close(trace(cell, x, start)[0][:, t].detach(), h.detach(), FINE, f"h at {t}")


@pytest.mark.parametrize(
    ("cuts", "forget"), [([], "gate"), (["coupled"], "coupled"), (["forget_gate"], "none")]
)
def test_without_peepholes_it_is_the_lstm(cuts: list[str], forget: str) -> None:
    cell = make("lstm_peephole", cuts=["peepholes", *cuts])
    assert_close(outputs(cell), outputs(make("lstm", forget=forget)), FINE, "outputs")
    kinds = [CELLS.parse({"name": "lstm_peephole", "peephole": k, "cuts": [6]}) for k in Peephole]
    assert kinds[0] == kinds[1]


def test_coupled_gates_need_both_gates() -> None:
    with pytest.raises(UserError, match=r"coupled \(5\) is f = 1 − i, which needs both gates"):
        CELLS.parse({"name": "lstm_peephole", "cuts": [0, 5]})


def test_janet_is_the_lstm_with_a_forget_gate_alone() -> None:
    """With β = 0, and the weights of i those of −f; with β, i gains β."""
    for beta in (0.0, 1.5):
        cuts = ["output_gate", "output_activation", "peepholes", *(["coupled"] if not beta else [])]
        cell, full = make("janet", beta=beta), make("lstm_peephole", cuts=cuts)
        f, g = zip(
            *(w.chunk(2) for w in (cell.w.weight_ih, cell.w.weight_hh, cell.w.bias)), strict=True
        )
        bias = [beta - f[2], g[2]] if not beta else [beta - f[2], f[2], g[2]]
        with torch.no_grad():
            for name, i in (("weight_ih", 0), ("weight_hh", 1)):
                rows_ = [-f[i], g[i]] if not beta else [-f[i], f[i], g[i]]
                full.w.get_parameter(name).copy_(torch.cat(rows_))
            full.w.bias_ih.copy_(torch.cat(bias))
            full.w.bias_hh.zero_()
        x, start = inputs(cell)
        theirs = full.scan(x, torch.cat([start - 1, start - 1], dim=-1))
        assert_close(cell.scan(x, start), theirs, FINE, "outputs")


def test_janet_starts_with_the_chrono_initialisation() -> None:
    f, g = make("janet", width=400, length=60).w.bias.exp().chunk(2)
    assert (g == 1).all()
    assert f.min() >= 1
    assert f.max() <= 59
    assert abs(f.mean() - 30) < 4 * 58 / (12 * 400) ** 0.5
