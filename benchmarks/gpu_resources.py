"""Registers, spills and shared memory of every GPU kernel, as a Markdown table. It needs no GPU.

python benchmarks/gpu_resources.py
"""

import typer

from lmzoo.kernels.gpu.resources import (
    RECURRENCES,
    SHARED_LIMIT,
    WIDTHS,
    Resources,
    compile_kernel,
    elementwise,
    kernels,
)
from lmzoo.kernels.gpu.scan import shared_memory
from lmzoo.kernels.precision import WIDEST

NAMES = {80: "A100", 90: "H100", 100: "B200", 120: "RTX 5090"}
"""Compute capability -> a GPU that has it."""


def main() -> None:
    """Compile every kernel for every architecture and print what it needs."""
    typer.echo(f"| kernel | products | width | {' | '.join(NAMES[c] for c in SHARED_LIMIT)} |")
    typer.echo("|---|---|---:|" + "---|" * len(SHARED_LIMIT))
    for name, kernel, constants in elementwise():
        cells = [text(compile_kernel(kernel, constants, c)) for c in SHARED_LIMIT]
        typer.echo(f"| {name} | | any | {' | '.join(cells)} |")
    for precision, widest in WIDEST.items():
        for width in WIDTHS:
            for name, kernel, constants in kernels(width, precision) if width <= widest else ():
                needed = shared_memory(width, RECURRENCES[name.split()[0]].num_weights, precision)
                cells = [
                    text(compile_kernel(kernel, constants, c))
                    if needed <= limit
                    else "does not fit"
                    for c, limit in SHARED_LIMIT.items()
                ]
                typer.echo(f"| {name} | {precision} | {width} | {' | '.join(cells)} |")


def text(found: Resources) -> str:
    """Return registers / spilled bytes / kB of shared memory on one architecture."""
    return f"{found.registers} / {found.spilled} / {found.shared / 1024:.0f}"


if __name__ == "__main__":
    main()
