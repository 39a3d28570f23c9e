import pytest
import torch
from torch import Tensor

from lmzoo.base.config import config as cell_config
from lmzoo.cells import gla
from lmzoo.cells.base import CELLS, Cell
from lmzoo.cells.cuts import Cuts
from lmzoo.cells.lru import RGLRU, RGLRUCut
from lmzoo.cells.minimal import Candidate, MinGRU, MinGRUCut
from lmzoo.laws import cells as laws
from lmzoo.laws.probes import disturb
from lmzoo.laws.tiny import assert_close
from tests.cells.support import make

CARRY_CONFIGS = [{"name": "mgru", "carry": "prior"}, {"name": "mgru", "carry": "bilinear"}]
DIAGONAL = {"name": "lstm_peephole", "peephole": "diagonal"}
CONFIGS = [*({"name": name} for name in CELLS), *CARRY_CONFIGS, DIAGONAL]


@pytest.fixture(params=CONFIGS, ids=lambda part: "-".join(part.values()))
def cell(request: pytest.FixtureRequest) -> Cell:
    return make(**request.param)


LOOPS = ("slstm", "hm_lstm", "gated_feedback", "grid_lstm", "mgru")
"""Cells that take seconds for 2,000 tokens."""


@pytest.mark.parametrize("law", laws.UNCUT_LAWS, ids=lambda law: law.__name__)
def test_every_cell_obeys_every_law(cell, law):
    disturb(cell)
    if law is laws.law_half_precision_lasts and cell.name in LOOPS:
        pytest.skip("slow")
    law(cell)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPS)
def test_half_precision_lasts_in_slow_cells(name):
    laws.law_half_precision_lasts(make(name))


def test_the_law_sees_positions_in_half_precision(monkeypatch):
    rotate = gla.rotate

    def rounded(x: Tensor, t: Tensor, last: float) -> Tensor:
        return rotate(x, t.bfloat16().to(t.dtype) if x.dtype == torch.float32 else t, last)

    monkeypatch.setattr(gla, "rotate", rounded)
    with pytest.raises(AssertionError, match="autocast: relative error"):
        laws.law_half_precision_lasts(make("retention"))


def test_the_state_after_a_fast_scan_is_that_of_the_steps(cell):
    """In float32, for which there are kernels."""
    disturb(cell)
    x, start = (part.float() for part in laws.inputs(cell.double()))
    state = cell.float().initial_state(start)
    done = cell.fast_scan_from(x, state) or cell.naive_scan_from(x, state)
    steps = cell.naive_scan_from(x, state)
    for part, expected in zip([done[0], *done[1]], [steps[0], *steps[1]], strict=True):
        assert_close(part, expected, 1e-4, "outputs and state")


WITH_CUTS = [{"name": name} for name in CELLS if laws.option_sets(CELLS[name].Config)] + [
    {"name": "gru", "reset": "before"},
    {"name": "gru", "reset": "input"},
    {"name": "lstm_peephole", "peephole": "diagonal", "gate_recurrence": False},
    {"name": "lstm_peephole", "peephole": "diagonal", "gate_recurrence": True},
    {"name": "min_gru", "state_to_gate": True, "candidate": "tanh"},
    {"name": "min_lstm", "candidate": "tanh"},
    {"name": "hgrn2", "heads": 8},
]


@pytest.mark.parametrize("most", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("config", WITH_CUTS, ids=lambda part: "-".join(map(str, part.values())))
def test_one_function_has_one_config(config, most):
    laws.law_equal_functions_have_equal_configs(make(**config, width=8), most)


class TwoConfigs(MinGRU):
    """A path to a gate that nothing reads is cut, too."""

    @cell_config
    class Config:
        cuts: Cuts[MinGRUCut] = frozenset()
        candidate: Candidate = Candidate.POSITIVE
        state_to_gate: bool = False


class UnusedWeights(RGLRU):
    """The gates of a decay that is cut keep their weights."""

    @cell_config
    class Config:
        cuts: Cuts[RGLRUCut] = frozenset()
        c: float = 8.0


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (TwoConfigs, r"carry \(4\), write_gate \(5\) = cuts "),
        (UnusedWeights, r"cuts root \(6\), carry \(7\): w.wa has no effect"),
    ],
)
def test_the_law_sees_two_configs_and_unused_weights(kind, found):
    with pytest.raises(AssertionError, match=found):
        laws.law_equal_functions_have_equal_configs(kind(kind.Config(), 3, 4), most=3)


@pytest.mark.parametrize("name", ["rwkv7", "mlstm"])
def test_a_head_may_have_one_channel(name):
    laws.law_blocks_with_carried_state_equal_one_scan(make(name, width=2, heads=8))
