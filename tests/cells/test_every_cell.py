import pytest
import torch

from lmzoo.base.config import config as cell_config
from lmzoo.base.errors import UserError
from lmzoo.cells import gla
from lmzoo.cells.base import CELLS
from lmzoo.cells.cuts import Cuts
from lmzoo.cells.lru import RGLRU, RGLRUCut
from lmzoo.cells.minimal import Candidate, MinGRU, MinGRUCut
from lmzoo.laws import cells as laws
from lmzoo.laws.probes import disturb
from lmzoo.laws.tiny import assert_close
from tests.cases import cases, parametrize, rows
from tests.cells.support import make

CONFIGS = [{"name": name} for name in CELLS]
CONFIGS += rows("cells/cases.toml", "besides")


def name_of(fields):
    """Return the name of a test: all values of the fields."""
    return "-".join(map(str, fields.values()))


@pytest.fixture(params=CONFIGS, ids=name_of)
def cell(request):
    return make(**request.param)


LOOPS = ("slstm", "hm_lstm", "gated_feedback", "grid_lstm", "mgru")
"""Cells that take seconds for 2,000 tokens."""


EACH_LAW = parametrize("law", laws.UNCUT_LAWS, ids=lambda law: law.__name__)


@EACH_LAW
def test_every_cell_obeys_every_law(cell, law):
    # Weights that start at zero would hide what they multiply.
    disturb(cell)
    if law is laws.law_half_precision_lasts and cell.name in LOOPS:
        pytest.skip("slow")
    law(cell)


@pytest.mark.slow
@parametrize("name", LOOPS)
def test_half_precision_lasts_in_slow_cells(name):
    laws.law_half_precision_lasts(make(name))


def test_the_law_sees_positions_in_half_precision(monkeypatch):
    rotate = gla.rotate

    def rounded(x, t, last):
        if x.dtype == torch.float32:
            rounded_t = t.bfloat16()
            # Only the position is rounded.
            t = rounded_t.to(t.dtype)
        return rotate(x, t, last)

    monkeypatch.setattr(gla, "rotate", rounded)
    with pytest.raises(AssertionError, match="autocast: relative error"):
        laws.law_half_precision_lasts(make("retention"))


def test_the_state_after_a_fast_scan_is_that_of_the_steps(cell):
    """In float32, for which there are kernels."""
    disturb(cell)
    cell.double()
    drawn = laws.inputs(cell)
    x, start = (part.float() for part in drawn)
    cell.float()
    first = cell.initial_state(start)
    scanned = cell.fast_scan_from(x, first)
    if scanned is None:
        return  # the steps are its only scan
    outputs, state = scanned
    expected_outputs, expected_state = cell.naive_scan_from(x, first)
    assert_close(outputs, expected_outputs, 1e-4, "outputs")
    for part, expected in zip(state, expected_state, strict=True):
        assert_close(part, expected, 1e-4, "state")


WITH_CUTS = rows("cells/cases.toml", "with_cuts")
for name in CELLS:
    if laws.option_sets(CELLS[name].Config):
        WITH_CUTS.append({"name": name})


SLOW_THREE = pytest.param(3, marks=pytest.mark.slow)


@parametrize("most", [2, SLOW_THREE])
@parametrize("config", WITH_CUTS, ids=name_of)
def test_one_function_has_one_config(config, most):
    cell = make(**config, width=8)
    laws.law_equal_functions_have_equal_configs(cell, most)


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


EXPECTED = {
    TwoConfigs: r"carry \(4\), write_gate \(5\) = cuts ",
    UnusedWeights: r"cuts root \(6\), carry \(7\): w.wa has no effect",
}


@parametrize(("kind", "found"), EXPECTED.items())
def test_the_law_sees_two_configs_and_unused_weights(kind, found):
    cell = kind(kind.Config(), 3, 4)
    with pytest.raises(AssertionError, match=found):
        laws.law_equal_functions_have_equal_configs(cell, most=3)


@parametrize("name", ["rwkv7", "mlstm"])
def test_a_head_may_have_one_channel(name):
    cell = make(name, width=2, heads=8)
    laws.law_blocks_with_carried_state_equal_one_scan(cell)


@cases("cells/cases.toml", "refused", "fields, words")
def test_a_cell_that_cannot_be_is_refused(fields, words):
    with pytest.raises(UserError, match=words):
        make(**fields)
