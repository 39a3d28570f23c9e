r"""Lower bounds on the time of a training step of DLM46 on a device, and its launch overhead.

    python benchmarks/roofline.py                         a table for an H100; it needs no GPU

    compute     3 · 2 [ n (2 E² + 2 E² + 2 E K) + K V E ] floating point operations,
                n = B (T − 1): both input products, both state products, the gate and the
                tokens' scores at every position, and the K normalisers over V tokens; the
                backward pass costs twice as much as the forward pass
    memory      4 · [ 7 N + 2 n (5 E + 3 K) ] bytes: N weights with gradient and two moments
                read, three of them written; what the recurrence and the emission store of
                every position, written once and read once

`gpu.py` divides each by the rate that the device reaches on one large product and on one large
copy, measured just before. P pack members need P times as much.

The table has the step as it is: the bytes of all tensors that its launches read or write
(`launches.py`), and also the products of the sums over positions, 2 V n (K + 2 E), by tensor
cores. The rates are those of NVIDIA's data sheet of the H100 SXM. The time of a launch in a graph
is an assumption; the table says how long it may be. The caches, and the latency of the steps of a
recurrence, do not count.

A second table has the epoch of the main sweep as a sweep runs it (`count_epoch`): the steps, the
evaluation, the operations between them, the copies of the state to the host, and the time of the
host, which is measured on this CPU. The host works while the GPU does, so the longest of the three
is a lower bound, and the sum of the GPU and the host's thread an upper one.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import torch
import typer
from fuse import Shape
from measure import device_seconds

from lmzoo.base.command_line import run_command
from lmzoo.data.corpus import open_corpus

if TYPE_CHECKING:
    from launches import LaunchCounter

BYTES, FLOAT32, TF32 = 3.35e12, 67e12, 494.7e12
"""Bytes, and operations of float32 and of TF32 numbers, of an H100 SXM in a second."""
LAUNCH = 1e-6
"""Assumed seconds of one launch in a graph, in addition to its work."""
PCIE = 64e9
"""Bytes to the host in a second, by 16 lanes of PCIe 5."""
MOST_OVERHEAD = 0.3
"""Share of a step that launches may take in a pack of 64 of the main sweep."""
MAIN = Shape(64, 251, 32, 64, 100, 20)
"""The main sweep's size."""
SHAPES = (MAIN, Shape(1, 251, 32, 64, 100, 20), Shape(8, 251, 32, 64, 100, 100))
EPOCHS = (dataclasses.replace(MAIN, K=0), MAIN)
"""The main sweep's emission, and the mixture of the published table."""
HEAD = "pack members | launches | MB | GFLOP | least time | launches | share | goal | holds up to"
EPOCH_HEAD = (
    "an epoch of | steps | evaluation | operations between | copies to the host | GPU "
    "| thread of the host | thread of checkpoints | at least"
)


@dataclass(frozen=True)
class Rates:
    """Operations and bytes per second of a device."""

    flops: float
    bytes: float


def measure_rates(device: torch.device, *, side: int = 8192, rounds: int = 5) -> Rates:
    """Measure a product of two square float32 matrices with this side, and a copy of one."""
    a, b = torch.randn(2, side, side, device=device).unbind()
    out = torch.empty_like(a)
    product = min(device_seconds(lambda: torch.mm(a, b, out=out), device) for _ in range(rounds))
    copy = min(device_seconds(lambda: out.copy_(a), device) for _ in range(rounds))
    return Rates(flops=2 * side**3 / product, bytes=2 * 4 * side**2 / copy)


def count_weights(shape: Shape) -> int:
    """Return N of one member: embeddings, the unit, the components with their scales, the gate."""
    E, K = shape.E, shape.K
    return shape.V * E + 4 * E * E + 2 * E + K * (E + 1) + K * (E + 1)


def compute_bound(shape: Shape, rates: Rates) -> float:
    """Return the seconds that the matrix products of a step of all members need."""
    n, E, K = shape.B * (shape.T - 1), shape.E, shape.K
    scored = shape.V if n >= shape.V else shape.V + n  # tokens, and targets if those are fewer
    forward = 2 * (n * (4 * E * E + E * K) + K * scored * E)
    return shape.P * 3 * forward / rates.flops


def memory_bound(shape: Shape, rates: Rates) -> float:
    """Return the seconds that the memory accesses of a step of all members need."""
    n = shape.B * (shape.T - 1)
    numbers = 7 * count_weights(shape) + 2 * n * (5 * shape.E + 3 * shape.K)
    return shape.P * 4 * numbers / rates.bytes


def main(
    out: Annotated[Path, typer.Option(help="The table, in Markdown.")] = Path(
        "runs/bench/roofline.md"
    ),
    tiny: Annotated[bool, typer.Option("--tiny", help="Test the script with one shape.")] = False,
) -> None:
    """Print the roofline of each shape on an H100; its rival is the hardware's least time."""
    shapes = SHAPES
    epochs = EPOCHS
    if tiny:
        shapes = shapes[:1]
        epochs = epochs[:1]
    lines = [f"| {HEAD} |", "|---|" + "---:|" * 8, *map(line, shapes)]
    lines += ["", f"| {EPOCH_HEAD} |", "|---|" + "---:|" * 8, *map(epoch_line, epochs)]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(lines) + "\n")
    typer.echo(out.read_text())


def line(shape: Shape) -> str:
    """Return the line of a shape."""
    from launches import count_launches  # lets Triton interpret kernels, so not on a GPU

    counter = count_launches(shape)
    float32, tensor_cores = count_flops(shape)
    work = max(counter.bytes / BYTES, float32 / FLOAT32 + 3 * tensor_cores / TF32)
    launches = counter.counts.total() * LAUNCH
    share = launches / (launches + work)
    longest = work * MOST_OVERHEAD / (1 - MOST_OVERHEAD) / counter.counts.total()
    goal = f"< {MOST_OVERHEAD:.0%} | {longest * 1e6:.1f} µs a launch" if shape == MAIN else "|"
    return (
        f"| {shape} | {counter.counts.total()} | {counter.bytes / 1e6:.0f} "
        f"| {(float32 + tensor_cores) / 1e9:.1f} | {work * 1e6:.0f} µs | {launches * 1e6:.0f} µs "
        f"| {share:.0%} | {goal} |"
    )


def epoch_line(shape: Shape) -> str:
    """Return the times of an epoch of the main sweep; those of the host are measured."""
    from launches import count_epoch

    epoch = count_epoch(shape, open_corpus("captions"))
    tensor_cores = 3 * count_flops(shape)[1] / TF32
    steps = sum(seconds(step) + tensor_cores for step in epoch.steps)
    evaluation = sum(seconds(step) + tensor_cores / 2 for step in epoch.evaluation)
    between, copies = seconds(epoch.outside), epoch.copied / PCIE
    gpu = steps + evaluation + between + copies
    cells = (steps, evaluation, between, copies, gpu, epoch.host, epoch.writer)
    times = " | ".join(f"{value * 1e3:.1f} ms" for value in (*cells, max(cells)))
    emission = f"mixture of {shape.K}" if shape.K else "tied softmax"
    return f"| {shape.P} members, {emission} | {times} |"


def seconds(counter: "LaunchCounter") -> float:
    """Return the least time of launches: their memory or torch's products, and their starts."""
    work = max(counter.bytes / BYTES, counter.flops / FLOAT32)
    return work + counter.counts.total() * LAUNCH


def count_flops(shape: Shape) -> tuple[float, float]:
    """Return the operations of torch's products, and those of the kernels on tensor cores."""
    n, E, K, V = shape.B * (shape.T - 1), shape.E, shape.K, shape.V
    inputs = min(n, V)  # tokens are projected, or positions if those are fewer
    float32 = 3 * 2 * (inputs * 2 * E * E + n * E * K + K * V * E) + 2 * n * 2 * E * E
    tensor_cores = 2 * 2 * n * 2 * E * E + 2 * V * n * (K + 2 * E)
    return shape.P * float32, shape.P * tensor_cores


if __name__ == "__main__":
    run_command(main)
