"""Recurrences whose weights do not fit on the chip, in Triton's interpreter, against `step`.

`test_interpreted.py` runs this file in a process with TRITON_INTERPRET=1.
"""

import pytest
import torch

from lmzoo.cells.base import CELLS
from lmzoo.kernels.gpu import mgu
from lmzoo.kernels.gpu.steps import blocks, gru, lstm, mgru, rnn
from lmzoo.kernels.gpu.steps import mgu as mgu_steps
from lmzoo.kernels.precision import WIDEST, Precision, use_precision
from tests.kernels.gpu import interpreted
from tests.kernels.gpu.interpreted import (
    LOGIT,
    VARIANTS,
    assert_equal_to_step,
    assert_members_are_computed_as_if_alone,
    distinct_mgru_mutants,
    distinct_mutants,
)
from tests.kernels.gpu.interpreted_precision import TOLERANCES

SIZES = [(3, 5, 8), (35, 1, 30), (33, 3, 40)]
"""Sequences, steps and units: less than, and a few more than, what one program computes."""
MODULES = (gru, lstm, mgru, mgu_steps, rnn)


@pytest.fixture(autouse=True)
def no_weight_fits(monkeypatch):
    for precision in WIDEST:
        monkeypatch.setitem(WIDEST, precision, 0)


@pytest.mark.parametrize("config", [*VARIANTS, LOGIT], ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_kernels_of_a_step_equal_the_loop_over_step(config, sizes):
    assert_equal_to_step(config, *sizes)


@pytest.mark.slow
@pytest.mark.parametrize("cuts", distinct_mutants(), ids=str)
def test_the_steps_of_every_mutant_equal_the_loop_over_step(cuts):
    assert_equal_to_step({"name": "mgu", "cuts": list(cuts)}, 5, 4, 40)


@pytest.mark.slow
def test_the_steps_of_every_mgru_mutant_equal_the_loop_over_step():
    for numbers in distinct_mgru_mutants():
        assert_equal_to_step({"name": "mgru", "mutations": list(numbers)}, 5, 4, 40)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mgu", "mgru", "gru", "lstm", "rnn"])
def test_a_width_beyond_that_of_any_chip(name, monkeypatch):
    monkeypatch.undo()
    assert WIDEST[Precision.TF32X3] < 300
    assert_equal_to_step({"name": name}, 97, 2, 300)


@pytest.mark.parametrize("name", ["mgu", "mgru", "gru", "lstm", "rnn"])
@pytest.mark.parametrize("precision", [Precision.TF32, Precision.BF16])
def test_the_error_is_that_of_the_precision(name, precision, monkeypatch):
    monkeypatch.setattr(interpreted, "TOLERANCE", TOLERANCES[precision])
    with use_precision(precision):
        error = assert_equal_to_step({"name": name}, 5, 4, 30)
    assert error > 1e-5  # the precision reaches the kernel


@pytest.mark.parametrize("name", ["mgu", "mgru", "gru", "lstm", "rnn"])
def test_members_are_computed_as_if_alone(name):
    assert_members_are_computed_as_if_alone(name, members=2, rows=34, steps=3, width=40)


@pytest.mark.parametrize(
    ("config", "kernels"),
    [
        ({"name": "rnn"}, 2),
        ({"name": "lstm"}, 2),
        ({"name": "gru"}, 2),
        ({"name": "gru", "reset": "before"}, 4),
        ({"name": "mgu"}, 4),
        ({"name": "mgu", "cuts": [4]}, 2),
        ({"name": "mgru"}, 2),
    ],
    ids=str,
)
def test_a_step_is_one_kernel_or_two_in_each_direction(config, kernels, monkeypatch):
    launched = []

    def count(kernel, *args, **options):
        launched.append(kernel)
        blocks.launch(kernel, *args, **options)

    for module in MODULES:
        monkeypatch.setattr(module, "launch", count)
    cell = CELLS.build(CELLS.parse(config), 8, 5)
    x = torch.randn(3, 5, 8, requires_grad=True)
    cell.scan(x, torch.randn(3, 8 * cell.num_state_vectors)).sum().backward()
    assert len(launched) == 5 * kernels + (config["name"] == "mgru")


def test_a_wrong_variant_is_noticed(monkeypatch):
    """The comparison fails if the kernels of a step drop the carried state."""
    build = mgu.MGUGpuScan.__init__

    def without_carry(self, **flags):
        build(self, **{**flags, "carry": False})

    monkeypatch.setattr(mgu.MGUGpuScan, "__init__", without_carry)
    with pytest.raises(AssertionError):
        assert_equal_to_step({"name": "mgu"}, 3, 5, 8)
