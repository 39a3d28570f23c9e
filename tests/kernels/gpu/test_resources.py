"""Every GPU kernel compiles for three architectures without a GPU, and fits on the chip."""

import pytest
import torch

pytest.importorskip("triton", reason="Triton is installed on Linux x86-64 only")

from lmzoo.kernels import dispatch
from lmzoo.kernels.dispatch import has_gpu_scan
from lmzoo.kernels.gpu.resources import (
    SHARED_LIMIT,
    WEIGHTS,
    WIDTHS,
    compile_kernel,
    elementwise,
    kernels,
    rest_of_step,
)
from lmzoo.kernels.gpu.scan import shared_memory
from lmzoo.kernels.precision import WIDEST, Precision

USED = {name: (kernel, constants) for name, kernel, constants in kernels(64, "tf32x3")}
ELEMENTWISE = {name: (kernel, constants) for name, kernel, constants in elementwise()}
REST = {name: (kernel, constants) for name, kernel, constants in rest_of_step()}


@pytest.mark.parametrize("capability", SHARED_LIMIT)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_an_elementwise_recurrence_compiles_without_spills(name: str, capability: int) -> None:
    found = compile_kernel(*ELEMENTWISE[name], capability)
    assert (found.spilled, found.shared) == (0, 0)


@pytest.mark.parametrize("capability", SHARED_LIMIT)
@pytest.mark.parametrize("name", REST)
def test_the_rest_of_a_step_compiles_without_spills(name: str, capability: int) -> None:
    found = compile_kernel(*REST[name], capability)
    assert found.spilled == 0
    assert found.shared <= SHARED_LIMIT[80]


@pytest.mark.parametrize("capability", SHARED_LIMIT)
@pytest.mark.parametrize("name", USED)
def test_a_recurrence_of_width_64_compiles_without_spills(name: str, capability: int) -> None:
    check(name, *USED[name], 64, "tf32x3", capability)


@pytest.mark.parametrize("name", ["mgu backward", "lstm backward"])
def test_products_of_bfloat16_compile_without_spills(name: str) -> None:
    found = {key: (kernel, constants) for key, kernel, constants in kernels(64, "bf16")}
    check(name, *found[name], 64, "bf16", 90)


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


MAX_SPILLED = 40
"""Bytes of a thread at width 128 with bfloat16; those of the GRU are the most."""


def check(name, kernel, constants, width, precision, capability) -> None:
    """The memory that dispatch expects is enough; a kernel that fits does not spill, or little."""
    expected = shared_memory(width, WEIGHTS[name.split()[0]], precision)
    found = compile_kernel(kernel, constants, capability)
    assert found.shared <= expected
    if expected <= SHARED_LIMIT[capability]:  # otherwise dispatch does not launch it on this GPU
        assert found.spilled <= (MAX_SPILLED if (precision, width) == ("bf16", 128) else 0)


class OnGPU(torch.Tensor):
    """A tensor that says that it is on a GPU."""

    device = torch.device("cuda")


@pytest.mark.parametrize("limit", [64 * 1024, 99 * 1024, 163 * 1024, 227 * 1024])
@pytest.mark.parametrize("name", WEIGHTS)
def test_a_recurrence_runs_only_where_its_kernels_fit(name: str, limit: int, monkeypatch) -> None:
    """Kernels are padded to a power of two, so width 33 needs the memory of width 64."""
    monkeypatch.setattr(dispatch, "_shared_memory", lambda _: limit)
    names = (f"{name} forward", f"{name} backward")
    needed = max(compile_kernel(*USED[key], 80).shared for key in names)
    start = torch.empty(0).as_subclass(OnGPU)
    for width in (33, 50, 64):
        accepted = has_gpu_scan(start, width, WEIGHTS[name])
        assert accepted == (needed <= limit)
    assert not has_gpu_scan(start, WIDEST[Precision.TF32X3] + 1, WEIGHTS[name])
