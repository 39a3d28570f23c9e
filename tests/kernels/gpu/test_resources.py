"""Every GPU kernel compiles for three architectures without a GPU, and fits on the chip."""

import pytest

pytest.importorskip("triton", reason="Triton is installed on Linux x86-64 only")

from lmzoo.kernels.dispatch import SHARED_BASE, SHARED_BYTES, WIDEST
from lmzoo.kernels.gpu.resources import (
    SHARED_LIMIT,
    WEIGHTS,
    WIDTHS,
    compile_kernel,
    elementwise,
    kernels,
)

USED = {name: (kernel, constants) for name, kernel, constants in kernels(64, "tf32x3")}
ELEMENTWISE = {name: (kernel, constants) for name, kernel, constants in elementwise()}


@pytest.mark.parametrize("capability", SHARED_LIMIT)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_an_elementwise_recurrence_compiles_without_spills(name: str, capability: int) -> None:
    found = compile_kernel(*ELEMENTWISE[name], capability)
    assert (found.spilled, found.shared) == (0, 0)


@pytest.mark.parametrize("capability", SHARED_LIMIT)
@pytest.mark.parametrize("name", USED)
def test_a_recurrence_of_width_64_compiles_without_spills(name: str, capability: int) -> None:
    check(name, *USED[name], 64, "tf32x3", capability)


@pytest.mark.slow
@pytest.mark.parametrize("capability", SHARED_LIMIT)
@pytest.mark.parametrize("precision", WIDEST)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_width_that_runs_compiles_without_spills(
    width: int, precision: str, capability: int
) -> None:
    if width > WIDEST[precision]:
        pytest.skip("the kernels do not run at this width")
    for name, kernel, constants in kernels(width, precision):
        check(name, kernel, constants, width, precision, capability)


def check(name, kernel, constants, width, precision, capability) -> None:
    """The memory that dispatch expects is enough; a kernel that fits does not spill."""
    expected = SHARED_BYTES[precision] * WEIGHTS[name.split()[0]] * width**2 + SHARED_BASE
    if expected > SHARED_LIMIT[capability]:
        return  # dispatch does not launch it on this GPU
    found = compile_kernel(kernel, constants, capability)
    assert found.shared <= expected
    assert found.spilled == 0
