"""Every precision of the products of a recurrence, against float64, in Triton's interpreter.

`test_interpreted.py` runs this file in a process with TRITON_INTERPRET=1.
"""

import pytest
import torch

from lmzoo.kernels.dispatch import has_gpu_scan
from lmzoo.kernels.precision import WIDEST, Precision, use_precision
from tests.kernels.gpu import interpreted
from tests.kernels.gpu.interpreted import VARIANTS, assert_equal_to_step

TOLERANCES = {Precision.TF32X3: 2e-6, Precision.TF32: 2**-10, Precision.BF16: 2**-8}
"""Of TF32 and bfloat16, one unit in the last place of an operand."""


@pytest.mark.parametrize("config", VARIANTS, ids=str)
@pytest.mark.parametrize("precision", [Precision.TF32, Precision.BF16])
def test_the_error_is_that_of_the_precision(config, precision, monkeypatch):
    monkeypatch.setattr(interpreted, "TOLERANCE", TOLERANCES[precision])
    with use_precision(precision):
        assert_equal_to_step(config, 5, 4, 30)


@pytest.mark.parametrize("name", ["mgu", "mgru", "gru", "lstm", "rnn"])
def test_the_precision_reaches_the_kernel(name, monkeypatch):
    monkeypatch.setattr(interpreted, "TOLERANCE", 1.0)
    errors = []
    for precision in Precision:
        with use_precision(precision):
            errors.append(assert_equal_to_step({"name": name}, 5, 4, 30))
    assert errors[0] < TOLERANCES[Precision.TF32X3] < 1e-5 < errors[1] < errors[2]


def test_only_recurrences_that_fit_run_by_kernels():
    """The width of the default's kernels is smaller than that of the others."""
    start = torch.zeros(1, 1)
    for precision, widest in WIDEST.items():
        with use_precision(precision):
            accepted = [has_gpu_scan(start, width, 1) for width in (widest, widest + 1)]
        assert accepted == [True, False]
