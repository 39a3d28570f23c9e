"""Registers, spills and shared memory of every GPU kernel, as a Markdown table. It needs no GPU.

    python benchmarks/gpu_resources.py [--width 32] [--only gru]

Registers and spilled bytes are those of one thread, as `ptxas` reports them; shared memory is that
of one program. A kernel runs on a GPU if its shared memory is at most `SHARED_LIMIT`. Spills do not
change results; they cost time. `tests/kernels/gpu/test_resources.py` compiles with these functions.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import triton
import typer
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from lmzoo.base.command_line import run_command
from lmzoo.kernels.device import WIDEST
from lmzoo.kernels.gpu import (
    gru,
    linear_recurrence,
    lstm,
    matrix_state,
    mgu,
    rnn,
    rows,
    scan,
    selective_scan,
    sphere,
    tied_softmax,
    token_mixture,
)
from lmzoo.kernels.gpu.scan import shared_memory, warps

SHARED_LIMIT = {80: 163 * 1024, 90: 227 * 1024, 100: 227 * 1024, 120: 99 * 1024}
"""Compute capability (A100, H100, B200, RTX 5090) -> shared memory of one program, in bytes."""
NAMES = {80: "A100", 90: "H100", 100: "B200", 120: "RTX 5090"}
"""Compute capability -> a GPU that has it."""
RECURRENCES = {
    "mgu": mgu.Scan(),
    "mgru": mgu.Scan(pair=False, keep=True, read="logit"),
    "rnn": rnn.Scan(),
    "gru": gru.Scan(),
    "lstm": lstm.Scan(),
}
WIDTHS = (32, 64, 128)
"""Widths at which the weights of some recurrence stay on the chip."""
PTXAS = Path(triton.__file__).parent / "backends/nvidia/bin"


SIZES = (*"BTHNDERSVKGWC", "SP", "SB", "ST")
TOKENS = ("tokens", "words", "order")
TYPES = {**dict.fromkeys(SIZES, "i32"), **dict.fromkeys(TOKENS, "*i64")}
"""Types of the arguments of kernels by name; others are pointers to float32."""


@dataclass(frozen=True)
class Resources:
    """The resources of a compiled kernel."""

    registers: int
    spilled: int
    """Bytes of a thread that are stored to memory for lack of registers."""
    shared: int


def kernels(width: int, precision: str) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield (name, kernel, constants) of the forward and backward kernels at this width."""
    for name, recurrence in RECURRENCES.items():
        own = replace(recurrence, precision=precision)
        yield f"{name} forward", scan._forward, own.constants(0, width)
        yield f"{name} backward", scan._backward, own.constants(1, width)


def elementwise() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield (name, kernel, constants) of the elementwise recurrences."""
    for is_complex in (False, True):
        constants = {"COMPLEX": is_complex, "BLOCK": linear_recurrence.BLOCK}
        for direction in ("forward", "backward"):
            name = f"{'complex' if is_complex else 'real'} linear {direction}"
            yield name, getattr(linear_recurrence, f"_{direction}"), constants


def rest_of_step() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield (name, kernel, constants) of what a training step runs besides its recurrence."""
    radius = {"RADIUS": 8.0, "SHORTEST": 1e-12, "COLUMNS": 64, "ROWS": sphere.NUMBERS // 64}
    yield "sphere forward", sphere._forward, {**radius, "FLOOR": 1e-5}
    yield "sphere backward", sphere._backward, radius
    for columns in (32, 512):
        sizes = {"COLUMNS": columns, "ROWS": rows.NUMBERS // columns}
        yield f"mixture of {columns} forward", token_mixture._forward, sizes
        yield f"mixture of {columns} backward", token_mixture._backward, sizes
        yield f"rows of {columns}", rows._take, sizes
    for is_sorted, (positions, columns) in rows.BLOCKS.items():
        name = f"sums of {'sorted ' if is_sorted else ''}rows"
        blocks = {"TOKENS": rows.TOKENS, "POSITIONS": positions, "COLUMNS": columns}
        yield name, rows._add, {**blocks, "PRECISION": rows.SUMS, "SORTED": is_sorted}
    for keys, values in ((8, 8), (32, 32), (64, 64), (256, 256)):
        chosen = matrix_state.constants(keys, values) | {"ERASES": True, "EACH": True}
        yield f"matrix {keys} forward", matrix_state._forward, chosen
        yield f"matrix {keys} backward", matrix_state._backward, chosen
    for columns in tied_softmax.TILES:
        chosen = tied_softmax.constants(columns, has_tokens=True)
        yield f"softmax of {columns} forward", tied_softmax._forward, chosen
        yield f"softmax of {columns} backward", tied_softmax._backward, chosen
    for states, signed in product((16, 64, 256), (False, True)):
        chosen = selective_scan.constants(states, signed=signed)
        name = f"{'signed ' if signed else ''}selective scan of {states}"
        yield f"{name} forward", selective_scan._forward, chosen
        yield f"{name} backward", selective_scan._backward, chosen


def compile_kernel(kernel: Any, constants: dict[str, Any], capability: int) -> Resources:
    """Compile a kernel for a compute capability; pointers are to float32, sizes are int32.

    Constants that are no arguments are options of the launch.
    """
    names = kernel.arg_names
    options = {name: value for name, value in constants.items() if name not in names}
    if "PRECISION" in constants and not options:
        options = {"num_warps": warps(constants["COLUMNS"])}
    signature = {
        name: "constexpr" if name in constants else TYPES.get(name, "*fp32") for name in names
    }
    positions = {(names.index(n),): value for n, value in constants.items() if n in names}
    source = ASTSource(fn=kernel, signature=signature, constexprs=positions)
    compiled = triton.compile(source, GPUTarget("cuda", capability, 32), options)
    registers, spilled = _ptxas(compiled.asm["ptx"], capability)
    return Resources(registers, spilled, compiled.metadata.shared)


def _ptxas(ptx: str, capability: int) -> tuple[int, int]:
    """Return the registers and the spilled bytes of a thread."""
    target = re.search(r"\.target (sm_\w+)", ptx)
    assert target is not None
    tool = PTXAS / ("ptxas-blackwell" if capability >= 100 else "ptxas")
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(ptx)
        file.flush()
        command = [str(tool), "-v", f"-arch={target[1]}", file.name, "-o", "/dev/null"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    registers = re.search(r"Used (\d+) registers", text)
    spilled = re.search(r"(\d+) bytes spill stores", text)
    assert registers is not None, text
    return int(registers[1]), int(spilled[1]) if spilled else 0


def main(
    width: Annotated[int, typer.Option(help="Only this width; 0: all.")] = 0,
    only: Annotated[str, typer.Option(help="A part of the names of kernels; all by default.")] = "",
) -> None:
    """Compile every kernel for every architecture and print what it needs.

    The rival is the hardware: the registers of a thread and the shared memory of an architecture.
    """
    typer.echo(f"| kernel | products | width | {' | '.join(NAMES[c] for c in SHARED_LIMIT)} |")
    typer.echo("|---|---|---:|" + "---|" * len(SHARED_LIMIT))
    for name, kernel, constants in elementwise():
        if only in name:
            cells = [text(compile_kernel(kernel, constants, c)) for c in SHARED_LIMIT]
            typer.echo(f"| {name} | | any | {' | '.join(cells)} |")
    for precision, widest in WIDEST.items():
        for chosen in WIDTHS:
            if chosen <= widest and width in (0, chosen):
                print_recurrences(precision, chosen, only)


def print_recurrences(precision: str, width: int, only: str) -> None:
    """Print a row for each kernel of a recurrence at this width."""
    for name, kernel, constants in kernels(width, precision):
        if only not in name:
            continue
        needed = shared_memory(width, RECURRENCES[name.split()[0]].blocks, precision)
        cells = []
        for capability, limit in SHARED_LIMIT.items():
            cell = "does not fit"
            if needed <= limit:
                cell = text(compile_kernel(kernel, constants, capability))
            cells.append(cell)
        typer.echo(f"| {name} | {precision} | {width} | {' | '.join(cells)} |")


def text(found: Resources) -> str:
    """Return registers / spilled bytes / kB of shared memory on one architecture."""
    return f"{found.registers} / {found.spilled} / {found.shared / 1024:.0f}"


if __name__ == "__main__":
    run_command(main)
