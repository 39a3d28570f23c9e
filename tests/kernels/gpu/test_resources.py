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
from tests.cases import parametrize

USED = {name: (kernel, constants) for name, kernel, constants in kernels(64, "tf32x3")}
OTHERS = sorted(SHARED_LIMIT.keys() - {90})
CAPABILITIES = [90]
CAPABILITIES += [pytest.param(other, marks=pytest.mark.slow) for other in OTHERS]
MAX_SPILLED = 304
FEW_SPILLED = 16
"""Bytes of a thread at width 128, where a program has 512 threads and so 128 registers each (the
GRU in TF32 has the most), and elsewhere; with the compiler of Triton 3.7."""


@parametrize("capability", CAPABILITIES)
def test_every_kernel_compiles_without_spills(capability):
    for name, kernel, constants in elementwise():
        found = compile_kernel(kernel, constants, capability)
        assert not found.spilled, name
        assert not found.shared, name
    for name, kernel, constants in rest_of_step():
        found = compile_kernel(kernel, constants, capability)
        # Larger tiles of a softmax spill, and take half of the time on an H200.
        few = found.spilled <= FEW_SPILLED
        assert few or "softmax" in name, name
        assert found.shared <= SHARED_LIMIT[80], name
    for name, (kernel, constants) in USED.items():
        check(name, kernel, constants, 64, "tf32x3", capability)


@pytest.mark.slow
@parametrize("capability", SHARED_LIMIT)
@parametrize("precision", WIDEST)
def test_every_width_that_runs_compiles_without_spills(precision, capability):
    widest = WIDEST[precision]
    for width in WIDTHS:
        if width > widest:
            continue
        for name, kernel, constants in kernels(width, precision):
            check(name, kernel, constants, width, precision, capability)


def check(name, kernel, constants, width, precision, capability):
    """The memory that dispatch expects is enough; a kernel that fits does not spill, or little."""
    recurrence = name.split()[0]
    blocks = RECURRENCES[recurrence].blocks
    expected = shared_memory(width, blocks, precision)
    found = compile_kernel(kernel, constants, capability)
    assert found.shared <= expected
    most = FEW_SPILLED
    if width == 128:
        most = MAX_SPILLED
    if expected <= SHARED_LIMIT[capability]:  # otherwise dispatch does not launch it on this GPU
        assert found.spilled <= most, name


def test_an_old_triton_is_refused_in_one_line():
    for version in ("3.6.0", "3.10.1", "4.0.0+git"):
        check_version(version)
    with pytest.raises(UserError, match=r"3\.5\.1 is too old .* 3\.6 or later"):
        check_version("3.5.1")


def test_a_kernel_runs_on_the_device_of_its_tensors(monkeypatch):
    """Triton launches on the current device."""
    entered = []

    def enter(device):
        entered.append(device)
        return contextlib.nullcontext()

    monkeypatch.setattr(torch.cuda, "device", enter)
    # There is no GPU to launch on.
    kernel = mock.MagicMock()
    tensor = torch.empty(1).as_subclass(OnGPU)
    launch(kernel, (3,), [tensor, 4])
    assert entered == [torch.device("cuda")]
    kernel.__getitem__.assert_called_with((3,))


def test_every_launch_passes_through_launch():
    folder = Path(scan.__file__).parent
    launching = []
    for path in folder.glob("*.py"):
        if re.search(r"\w\[grid\]\(", path.read_text()):
            launching.append(path.name)
    assert launching == ["launch.py"]


def test_a_launch_compiles_the_step_of_its_recurrence(monkeypatch):
    """Steps and flags are constants of one kernel; Triton binds them when it is launched."""
    driver = mock.Mock()
    driver.get_current_device.return_value = 0
    target = GPUTarget("cuda", 90, 32)
    driver.get_current_target.return_value = target
    monkeypatch.setattr(triton.runtime.driver, "_active", driver)
    programs = set()
    for recurrence in (rnn.Scan(), rnn.Scan("relu")):
        # A warm-up compiles and launches nothing.
        tensors = [torch.zeros(2, 4, 4, 32)] * 6
        constants = recurrence.constants(0, 32)
        options = constants | {"grid": (1, 2)}
        compiled = scan._forward.warmup(*tensors, 4, 4, 32, **options)
        programs.add(compiled.asm["ptx"])
    assert len(programs) == 2


class OnGPU(torch.Tensor):
    """A tensor that says that it is on a GPU."""

    device = torch.device("cuda")


@parametrize("name", RECURRENCES)
def test_a_kernel_runs_only_where_it_fits(name, monkeypatch):
    """Kernels are padded to a power of two, so width 33 needs the memory of width 64."""
    # The larger of both directions decides.
    needed = 0
    for direction in ("forward", "backward"):
        kernel, constants = USED[f"{name} {direction}"]
        found = compile_kernel(kernel, constants, 90)
        needed = max(needed, found.shared)
    recurrence = RECURRENCES[name]

    def fits(width, limit):
        monkeypatch.setattr(scan, "memory_of_program", lambda _: limit)
        x = torch.empty(1, 1, width * recurrence.vectors)
        return recurrence.fits(x.as_subclass(OnGPU))

    # The limits of four architectures, in KiB.
    for kibibytes in (64, 99, 163, 227):
        limit = kibibytes * 1024
        for width in (33, 50, 64):
            assert fits(width, limit) == (needed <= limit)
        assert not fits(65, limit)
