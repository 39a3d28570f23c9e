"""Every precision of the products of a recurrence, against float64, in Triton's interpreter.

`test_interpreted.py` runs this file in a process with TRITON_INTERPRET=1.
"""

import torch

from lmzoo.kernels.device import WIDEST, Precision, use_precision
from lmzoo.kernels.gpu import rnn
from tests.cases import parametrize
from tests.kernels.gpu import interpreted
from tests.kernels.gpu.interpreted import assert_equal_to_step

TOLERANCES = {
    Precision.TF32X3: 2e-6,
    Precision.TF32: 2**-10,
    Precision.BF16: 2**-8,
}
"""Of TF32 and bfloat16, one unit in the last place of an operand."""


@parametrize("name", ["mgu", "mgru", "gru", "lstm", "rnn"])
def test_the_precision_reaches_the_kernel(name, monkeypatch):
    monkeypatch.setattr(interpreted, "TOLERANCE", 1.0)
    errors = {}
    for precision in Precision:
        with use_precision(precision):
            errors[precision] = assert_equal_to_step({"name": name}, 5, 4, 30)
    for precision, error in errors.items():
        assert error < TOLERANCES[precision]
    # Each is less precise than the one before, so each was used.
    best, middle, worst = errors.values()
    assert best < 1e-5 < middle < worst


def test_weights_stay_on_the_chip_up_to_a_width():
    """The widest of the default is less wide than that of the others."""
    for precision, widest in WIDEST.items():
        recurrence = rnn.Scan(precision=precision)
        widths = (widest, widest + 1)
        inputs = [torch.zeros(1, 1, width) for width in widths]
        fits = [recurrence.fits(x) for x in inputs]
        assert fits == [True, False]
