"""Every GPU kernel compiles without a GPU, for four architectures in the slow tests, and fits."""

import contextlib
import re
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch

pytest.importorskip("triton", reason="Triton is installed on Linux x86-64 only")

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import triton
from gpu_resources import (
    RECURRENCES,
    SHARED_LIMIT,
    WIDTHS,
    compile_kernel,
    elementwise,
    kernels,
    rest_of_step,
)
from triton.backends.compiler import GPUTarget

from lmzoo.base.errors import UserError
from lmzoo.kernels.device import WIDEST
from lmzoo.kernels.gpu import check_version, rnn, scan
from lmzoo.kernels.gpu.launch import launch
from lmzoo.kernels.gpu.scan import shared_memory

USED = {name: (kernel, constants) for name, kernel, constants in kernels(64, "tf32x3")}
CAPABILITIES = [90, *(pytest.param(c, marks=pytest.mark.slow) for c in SHARED_LIMIT if c != 90)]
MAX_SPILLED = 304
FEW_SPILLED = 16
"""Bytes of a thread at width 128, where a program has 512 threads and so 128 registers each (the
GRU in TF32 has the most), and elsewhere; with the compiler of Triton 3.7."""


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_kernel_compiles_without_spills(capability):
    for name, kernel, constants in elementwise():
        found = compile_kernel(kernel, constants, capability)
        assert (found.spilled, found.shared) == (0, 0), name
    for name, kernel, constants in rest_of_step():
        found = compile_kernel(kernel, constants, capability)
        # Larger tiles of a softmax spill, and take half of the time on an H200.
        assert found.spilled <= FEW_SPILLED or "softmax" in name, name
        assert found.shared <= SHARED_LIMIT[80], name
    for name, (kernel, constants) in USED.items():
        check(name, kernel, constants, 64, "tf32x3", capability)


@pytest.mark.slow
@pytest.mark.parametrize("capability", SHARED_LIMIT)
@pytest.mark.parametrize("precision", WIDEST)
def test_every_width_that_runs_compiles_without_spills(precision, capability):
    for width in (width for width in WIDTHS if width <= WIDEST[precision]):
        for name, kernel, constants in kernels(width, precision):
            check(name, kernel, constants, width, precision, capability)


def check(name, kernel, constants, width, precision, capability):
    """The memory that dispatch expects is enough; a kernel that fits does not spill, or little."""
    expected = shared_memory(width, RECURRENCES[name.split()[0]].blocks, precision)
    found = compile_kernel(kernel, constants, capability)
    assert found.shared <= expected
    if expected <= SHARED_LIMIT[capability]:  # otherwise dispatch does not launch it on this GPU
        assert found.spilled <= (MAX_SPILLED if width == 128 else FEW_SPILLED), name


def test_an_old_triton_is_refused_in_one_line():
    for version in ("3.6.0", "3.10.1", "4.0.0+git"):
        check_version(version)
    with pytest.raises(UserError, match=r"3\.5\.1 is too old .* 3\.6 or later"):
        check_version("3.5.1")


def test_a_kernel_runs_on_the_device_of_its_tensors(monkeypatch):
    """Triton launches on the current device; every launch passes through `launch`."""
    entered: list[object] = []
    monkeypatch.setattr(
        torch.cuda, "device", lambda device: contextlib.nullcontext(entered.append(device))
    )
    kernel = mock.MagicMock()
    launch(kernel, (3,), [torch.empty(1).as_subclass(OnGPU), 4])
    assert entered == [torch.device("cuda")]
    assert kernel.__getitem__.call_args.args == ((3,),)
    folder = Path(scan.__file__).parent
    sources = {path.name: path.read_text() for path in folder.glob("*.py")}
    assert [name for name, text in sources.items() if re.search(r"\w\[grid\]\(", text)] == [
        "launch.py"
    ]


def test_a_launch_compiles_the_step_of_its_recurrence(monkeypatch):
    """Steps and flags are constants of one kernel; Triton binds them when it is launched."""
    driver = mock.Mock()
    driver.get_current_device.return_value = 0
    driver.get_current_target.return_value = GPUTarget("cuda", 90, 32)
    monkeypatch.setattr(triton.runtime.driver, "_active", driver)
    compiled = []
    for recurrence in (rnn.Scan(), rnn.Scan("relu")):
        tensors = [torch.zeros(2, 4, 4, 32) for _ in range(6)]
        constants = recurrence.constants(0, 32)
        compiled.append(scan._forward.warmup(*tensors, 4, 4, 32, **constants, grid=(1, 2)))
    assert compiled[0].asm["ptx"] != compiled[1].asm["ptx"]


class OnGPU(torch.Tensor):
    """A tensor that says that it is on a GPU."""

    device = torch.device("cuda")


@pytest.mark.parametrize("name", RECURRENCES)
def test_a_kernel_runs_only_where_it_fits(name, monkeypatch):
    """Kernels are padded to a power of two, so width 33 needs the memory of width 64."""
    names = (f"{name} forward", f"{name} backward")
    needed = max(compile_kernel(*USED[key], 90).shared for key in names)
    recurrence = RECURRENCES[name]

    def fits(width: int, limit: int) -> bool:
        monkeypatch.setattr(scan, "memory_of_program", lambda _: limit)
        return recurrence.fits(torch.empty(1, 1, width * recurrence.vectors).as_subclass(OnGPU))

    for limit in (64 * 1024, 99 * 1024, 163 * 1024, 227 * 1024):
        assert [fits(width, limit) for width in (33, 50, 64, 65)] == [needed <= limit] * 3 + [False]
