"""Every precision of the products of a recurrence, against float64, in Triton's interpreter.

`test_interpreted.py` runs this file in a process with TRITON_INTERPRET=1.
"""

import pytest
import torch

from lmzoo.kernels.device import WIDEST, Precision, use_precision
from lmzoo.kernels.gpu import rnn
from tests.kernels.gpu import interpreted
from tests.kernels.gpu.interpreted import assert_equal_to_step

TOLERANCES = {Precision.TF32X3: 2e-6, Precision.TF32: 2**-10, Precision.BF16: 2**-8}
"""Of TF32 and bfloat16, one unit in the last place of an operand."""


@pytest.mark.parametrize("name", ["mgu", "mgru", "gru", "lstm", "rnn"])
def test_the_precision_reaches_the_kernel(name, monkeypatch):
    monkeypatch.setattr(interpreted, "TOLERANCE", 1.0)
    errors = []
    for precision in Precision:
        with use_precision(precision):
            errors.append(assert_equal_to_step({"name": name}, 5, 4, 30))
    assert errors[0] < TOLERANCES[Precision.TF32X3] < 1e-5 < errors[1] < errors[2]
    assert errors[1] < TOLERANCES[Precision.TF32]
    assert errors[2] < TOLERANCES[Precision.BF16]


def test_weights_stay_on_the_chip_up_to_a_width():
    """The widest of the default is less wide than that of the others."""
    for precision, widest in WIDEST.items():
        recurrence = rnn.Scan(precision=precision)
        fits = [recurrence.fits(torch.zeros(1, 1, width)) for width in (widest, widest + 1)]
        assert fits == [True, False]
