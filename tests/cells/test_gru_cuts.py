"""The cuts of the GRU, MUT1 to MUT3 and the UGRNN, against their equations."""

import pytest
import torch
from torch import Tensor

from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS
from lmzoo.cells.gru import Cut
from lmzoo.laws.support import assert_close
from tests.cells.support import inputs, make, outputs
from tests.tiny import FINE

SETS = [[], *([cut] for cut in Cut), [0, 4, 7], [0, 3, 6], [2, 5, 8], [9, 10], [1, 9]]


@pytest.mark.parametrize("reset", ["after", "before", "input"])
@pytest.mark.parametrize("cuts", SETS, ids=str)
def test_cuts_compute_their_equations(cuts: list[Cut | int], reset: str) -> None:
    """The full cell's weights, with zeros where a path is cut."""
    cell, full = make("gru", reset=reset, cuts=cuts), make("gru").w
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
    h, ys = start, []
    for t in range(cell.length):
        u = x[:, t]
        r, z = (
            torch.sigmoid(
                u @ w["weight_ih"][g].T + w["bias_ih"][g]
                + h @ w["weight_hh"][g].T + w["bias_hh"][g]
            )
            for g in "rz"
        )  # fmt: skip
        r = torch.ones_like(r) if Cut.RESET in cut else r
        read = (r * u if reset == "input" else u) @ w["weight_ih"]["n"].T + w["bias_ih"]["n"]
        kept = (r * h if reset == "before" else h) @ w["weight_hh"]["n"].T + w["bias_hh"]["n"]
        n = torch.tanh(read + (r * kept if reset == "after" else kept))
        h = n if Cut.UPDATE in cut else (1 - z) * n + z * h
        ys.append(h)
    assert_close(outputs(cell), torch.stack(ys, 1).detach(), FINE, "outputs")


@pytest.mark.parametrize(
    ("some", "same"),
    [
        ({"cuts": [9, 0, 1]}, {"cuts": [9]}),
        ({"cuts": [10, 5]}, {"cuts": [10]}),
        ({"cuts": [7, 8]}, {"cuts": [7, 8, 9]}),
        ({"cuts": [7], "reset": "before"}, {"cuts": [7, 9, 2], "reset": "before"}),
        ({"cuts": [6], "reset": "input"}, {"cuts": [6, 9], "reset": "input"}),
        ({"update": "z_writes"}, {"update": "z_keeps"}),
    ],
    ids=str,
)
def test_equal_models_have_equal_configs(some: dict, same: dict) -> None:
    assert CELLS.parse({"name": "gru", **some}) == CELLS.parse({"name": "gru", **same})


def test_a_state_of_zeros_is_refused() -> None:
    with pytest.raises(UserError, match="leave h = 0 at every step"):
        CELLS.parse({"name": "gru", "cuts": [6, 7, 8, 10]})


@pytest.mark.parametrize("variant", [1, 2, 3])
def test_a_mutant_computes_its_equation(variant: int) -> None:
    cell = make("mut", variant=variant)
    w, (x, h) = cell.w, inputs(cell)
    ys: list[Tensor] = []
    for u in x.unbind(1):
        r = torch.sigmoid((u if variant == 2 else u @ w.xr) + h @ w.hr + w.br)
        z = u @ w.xz + w.bz
        if variant > 1:
            z = z + (h.tanh() if variant == 3 else h) @ w.hz
        n = torch.tanh((u.tanh() if variant == 1 else u @ w.xh) + (r * h) @ w.hh + w.bh)
        z = torch.sigmoid(z)
        h = n * z + h * (1 - z)
        ys.append(h)
    assert_close(outputs(cell), torch.stack(ys, 1).detach(), FINE, "outputs")
