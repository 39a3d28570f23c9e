"""Recurrences and packs on a GPU.

    python benchmarks/gpu.py [--parts equal,scan,fused,growth,rivals,host,modern]
    python benchmarks/gpu.py --device cpu --tiny          a test of the script at tiny sizes

    equal    every recurrence against float64, for each precision of its products
    scan     the minimal gated unit, forward and backward, replayed from a CUDA graph; the rivals
             are cuDNN's torch.nn.GRU and the published loop, in the same precision
    fused    64 pack members as one program; the rivals train them one after another, in one
             process and in 8 processes that share the device
    growth   1 to 256 pack members as one program, and the lower bounds of roofline.py
             (both: an epoch with its evaluation, and checkpoints of all members once a second)
    rivals   an epoch of a pack, without and with checkpoints, next to JAX (`rivals.py`)
    host     the time of an epoch of 64 members in which the GPU waits for the host
    modern   64 members of modern cells next to 64 LSTMs

Needs this package, torch and a GPU. Each part writes its own JSON when it is done. A part that
fails or takes longer than `--limit` is named at the end, and the others run.
"""

import contextlib
import dataclasses
import itertools
import multiprocessing
import signal
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Annotated, Any

import rivals
import torch
import typer
from fuse import (
    Shape,
    pack_members,
    packed_epoch,
    random_corpus,
    sequential_epochs,
    with_checkpoints,
)
from measure import Ratio, device_seconds, interleave, save, speedup, time_ratio
from roofline import compute_bound, measure_rates, memory_bound
from torch import Tensor, nn

from lmzoo.base.command_line import run_command
from lmzoo.base.errors import UserError, describe_error
from lmzoo.cells.base import CELLS, Cell
from lmzoo.kernels.device import WIDEST, Precision, current_precision, use_precision
from lmzoo.kernels.dispatch import without_kernels
from lmzoo.train import stepper
from lmzoo.train.stepper import Work

TOLERANCES = {Precision.TF32X3: 2e-5, Precision.TF32: 2**-8, Precision.BF16: 2**-6}
"""Largest difference, relative to the largest number plus one. More than in the tests of the
interpreter, which are smaller."""
CELL_NAMES = ("mgu", "mgru", "gru", "lstm", "rnn")
ROWS, STEPS = 33, 20
TIMEOUT = 600
"""Seconds after which a process is given up."""
FUSED = Shape(64, 200, 32, 32, 100, 20)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """All sizes; the goals apply to the default ones."""

    batch: int = 280
    recurrences: tuple[tuple[int, Precision], ...] = (
        *((width, Precision.TF32X3) for width in (64, 256)),
        *((128, precision) for precision in (Precision.TF32, Precision.BF16)),
    )
    lengths: tuple[int, ...] = (20, 100)
    fused: Shape = FUSED
    processes: int = 8
    growth: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256)
    steps: int = 16
    """Steps of an epoch."""
    repeats: int = 20
    """Consecutive passes in one measurement of a recurrence."""
    side: int = 8192
    """Side of the matrices that measure the rates of the device."""
    cases: tuple[tuple[Shape, float | None], ...] = rivals.GPU_CASES
    study: Shape = rivals.MAIN
    has_goals: bool = True

    def goal(self, value: float) -> float | None:
        """Return the goal, or None if there are no goals at these sizes."""
        return value if self.has_goals else None


TINY = Sizes(
    has_goals=False,
    batch=4, recurrences=((8, Precision.TF32X3),), lengths=(5,), fused=Shape(4, 20, 8, 4, 4, 6),
    processes=2, growth=(1, 2), steps=4, repeats=1, side=64, cases=rivals.TINY_CASES,
    study=rivals.TINY_CASES[0][0],
)  # fmt: skip


def main(
    parts: Annotated[
        str, typer.Option(help="Parts to run, in this order.")
    ] = "equal,scan,fused,growth,rivals,host,modern",
    device: Annotated[str, typer.Option()] = "cuda",
    rounds: Annotated[int, typer.Option(min=1)] = 7,
    tiny: Annotated[bool, typer.Option("--tiny", help="Test the script at tiny sizes.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of the JSON files.")] = Path("runs/bench"),
    limit: Annotated[int, typer.Option(min=1, help="Seconds of a part, at most.")] = 600,
) -> None:
    """Measure on one device."""
    target, sizes = _find_device(device), TINY if tiny else Sizes()
    known = {
        "equal": lambda: equality(target),
        "scan": lambda: scans(sizes, target, rounds),
        "fused": lambda: packs(sizes, target, rounds),
        "growth": lambda: growth(sizes, target, rounds),
        "rivals": lambda: rivals.rivals(sizes.cases, target, rounds, out=out / "gpu-rivals.json"),
        "host": lambda: rivals.host(sizes.study, target, rounds, has_goals=sizes.has_goals),
        "modern": lambda: rivals.modern(
            dataclasses.replace(sizes.study, steps=sizes.steps),
            *(target, rounds),
            has_goals=sizes.has_goals,
        ),
    }
    chosen = parts.split(",")
    if unknown := [part for part in chosen if part not in known]:
        raise UserError(f"no part {unknown[0]!r}; known: {', '.join(known)}")
    name = torch.cuda.get_device_name(target) if target.type == "cuda" else "CPU"
    typer.echo(f"{name}, torch {torch.__version__}")
    failed = []
    for part in chosen:
        try:
            with at_most(limit):
                save(known[part](), out / f"gpu-{part}.json")
        except Exception as error:
            failed.append(f"{part} ({describe_error(error)})")
    if failed:
        raise UserError(f"these parts failed: {', '.join(failed)}")


@contextlib.contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Raise `TimeoutError` in the block after so many seconds."""

    def end(*_: object) -> None:
        raise TimeoutError(f"longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _find_device(name: str) -> torch.device:
    if name == "cpu":
        torch.set_num_threads(1)
        return torch.device(name)
    if name != "cuda":
        raise UserError(f"--device {name!r} is neither cuda nor cpu")
    if not torch.cuda.is_available():
        raise UserError(
            "--device cuda: torch finds no GPU; test the script with --device cpu --tiny"
        )
    return torch.device("cuda", 0)


def equality(device: torch.device) -> list[Ratio]:
    """Return the error of outputs and gradients over its tolerance, for every cell."""
    return [
        _error_row(name, width, precision, device)
        for precision, widest in WIDEST.items()
        for width in (30, widest)
        for name in CELL_NAMES
    ]


def _error_row(name: str, width: int, precision: Precision, device: torch.device) -> Ratio:
    torch.manual_seed(0)
    cell = CELLS.build(CELLS.parse(name), width, STEPS)
    x, upstream = torch.randn(2, ROWS, STEPS, width).unbind()
    start = torch.randn(ROWS, width * cell.num_state_vectors)
    with use_precision(precision):
        ours = _results(cell.to(device), x.to(device), start.to(device), upstream.to(device))
    with without_kernels():
        cell = cell.double().cpu()
        references = _results(cell, x.double(), start.double(), upstream.double())
    error = max(
        ((result.cpu() - reference).abs().max() / (1 + reference.abs().max())).item()
        for result, reference in zip(ours, references, strict=True)
    )
    ratio = error / TOLERANCES[precision]
    return Ratio(
        what=f"{name}, largest error", at=f"B={ROWS}, H={width}, T={STEPS}, {precision}",
        rival="the loop over steps in float64", unit="error / tolerance",
        median=ratio, low=ratio, high=ratio, goal="≤ 1", holds=ratio <= 1,
        absolute=f"{error:.1e} / {TOLERANCES[precision]:.1e}",
    )  # fmt: skip


def _results(cell, x, start, upstream) -> list[torch.Tensor]:
    """Return the outputs and the gradients of inputs, initial states and weights."""
    x.requires_grad_()
    start.requires_grad_()
    out = cell.scan(x, start)
    inputs = [x, start, *cell.parameters()]
    gradients = torch.autograd.grad(
        out, inputs, upstream, allow_unused=True, materialize_grads=True
    )
    return [out.detach(), *gradients]


def scans(sizes: Sizes, device: torch.device, rounds: int) -> list[Ratio]:
    """Return the rows of each size; on a CPU nothing is replayed, so two sides are equal."""
    rows = []
    for length, (width, precision) in itertools.product(sizes.lengths, sizes.recurrences):
        with use_precision(precision):
            rows += _scan(sizes, width, length, device, rounds)
    return rows


def _scan(sizes: Sizes, width: int, length: int, device: torch.device, rounds: int) -> list[Ratio]:
    torch.manual_seed(0)
    batch = sizes.batch
    cell = CELLS.build(CELLS.parse("mgu"), width, length).to(device)
    library = nn.GRU(width, width).to(device)
    x, upstream = torch.randn(2, batch, length, width, device=device).unbind()
    start = torch.ones(batch, width, device=device)
    x_time, upstream_time = (t.transpose(0, 1).contiguous() for t in (x, upstream))
    parameters = [*cell.parameters(), *library.parameters()]

    def step(forward: Callable[[Tensor], Tensor], inputs: Tensor, upstream: Tensor) -> Work:
        def run() -> None:
            for parameter in parameters:
                parameter.grad = None
            forward(inputs.detach().requires_grad_()).backward(upstream)

        return run

    ours = step(lambda x: cell.scan(x, start), x, upstream)
    seconds = interleave(
        {
            "replayed": _replayed(ours, device),
            "not replayed": ours,
            "torch.nn.GRU": step(lambda x: library(x, start[None])[0], x_time, upstream_time),
            "published loop": step(lambda x: published(cell, x, start), x, upstream),
        },
        rounds,
        warmup=2,
        timer=partial(device_seconds, device=device, repeats=sizes.repeats),
    )
    replayed, plain, theirs, loop = seconds.values()
    what, at = "MGU forward + backward", f"B={batch}, H={width}, T={length}, {current_precision()}"
    gru_goal, loop_goal = (sizes.goal(1.5), sizes.goal(30.0)) if length == 100 else (None, None)
    return [
        time_ratio(f"{what}, replayed", at, "torch.nn.GRU", replayed, theirs, gru_goal),
        speedup(f"{what}, replayed", at, "published loop", replayed, loop, loop_goal),
        time_ratio(f"{what}, not replayed", at, "torch.nn.GRU", plain, theirs),
        speedup(f"{what}, not replayed", at, "published loop", plain, loop),
    ]


def published(cell: Cell, x: Tensor, h: Tensor) -> Tensor:
    """Return the states of the recurrence as published, with a multiplier for every cut."""
    w, u, states = cell.w, torch.ones(8), []
    for x_t in [x[:, t] for t in range(x.shape[1])]:
        f = torch.sigmoid(u[0] * (x_t @ w.xf) + u[1] * (h @ w.hf) + u[2] * w.bf)
        c = torch.tanh(u[3] * (x_t @ w.xh) + u[4] * ((h * f) @ w.hh) + u[5] * w.bh)
        h = u[6] * (1 - f) * h + u[7] * f * c
        states.append(h)
    return torch.stack(states, dim=1)


def _replayed(work: Work, device: torch.device) -> Work:
    """Return the work as a recording that is replayed, if the device has a recorder."""
    recorder = stepper.device_recorder(device)
    if recorder is None:
        return work
    for _ in range(recorder.warmup_steps):
        if reason := recorder.run(work):
            raise RuntimeError(reason)
    return recorder.record(work)


def packs(sizes: Sizes, device: torch.device, rounds: int) -> list[Ratio]:
    """Return the rows of a pack; the rivals train its members one after another."""
    shape, steps, processes = sizes.fused, sizes.steps, sizes.processes
    corpus = random_corpus(shape, steps)
    members, others = (pack_members(shape, corpus, device) for _ in range(2))
    seconds = interleave(
        {
            "packed": with_checkpoints(packed_epoch(members, corpus), members),
            "sequential": with_checkpoints(sequential_epochs(others, corpus), others),
        },
        rounds,
        warmup=2,
        timer=partial(device_seconds, device=device),
    )
    in_processes = shared_device_seconds(shape, steps, device, processes, rounds)
    what, at, ours = "pack members", str(shape), seconds["packed"]
    rival = f"{processes} processes sharing the device"
    return [
        speedup(what, at, "one after another", ours, seconds["sequential"], sizes.goal(25.0)),
        speedup(what, at, rival, ours, in_processes),
    ]


def shared_device_seconds(
    shape: Shape, steps: int, device: torch.device, processes: int, rounds: int
) -> list[float]:
    """Return the seconds of an epoch of all members, split over so many processes, per round.

    The processes wait for each other before and after every round, so a round lasts as long as the
    slowest process.
    """
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(processes), context.Queue()
    share = dataclasses.replace(shape, P=shape.P // processes)
    assert share.P * processes == shape.P
    workers = [
        context.Process(target=_work, args=(share, steps, device, rounds, barrier, results, i))
        for i in range(processes)
    ]
    for worker in workers:
        worker.start()
    seconds = results.get(timeout=TIMEOUT)
    for worker in workers:
        worker.join(TIMEOUT)
    return seconds


def _work(
    shape: Shape, steps: int, device: torch.device, rounds: int,
    barrier: Barrier, results: Any, rank: int,
) -> None:  # fmt: skip
    torch.set_num_threads(1)
    corpus = random_corpus(shape, steps)
    members = pack_members(shape, corpus, device)
    epoch = with_checkpoints(sequential_epochs(members, corpus), members)
    seconds = []
    epoch()

    def round_of_all() -> None:
        epoch()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        barrier.wait(TIMEOUT)

    for _ in range(rounds):
        barrier.wait(TIMEOUT)
        seconds.append(device_seconds(round_of_all, device))
    if rank == 0:
        results.put(seconds)


def growth(sizes: Sizes, device: torch.device, rounds: int) -> list[Ratio]:
    """Return the time of a step for more and more pack members, and its lower bounds."""
    rates, rows, single = measure_rates(device, side=sizes.side), [], []
    timer = partial(device_seconds, device=device)
    for count in sizes.growth:
        shape = dataclasses.replace(sizes.fused, P=count)
        corpus = random_corpus(shape, sizes.steps)
        members = pack_members(shape, corpus, device)
        epoch = with_checkpoints(packed_epoch(members, corpus), members)
        seconds = interleave({"epoch": epoch}, rounds, warmup=2, timer=timer)["epoch"]
        step = [second / sizes.steps for second in seconds]
        single = single or step
        at, per_member = str(shape), [second / count for second in step]
        bounds = {
            "compute bound": compute_bound(shape, rates),
            "memory bound": memory_bound(shape, rates),
        }
        what = "a pack member's share of a step"
        rows.append(speedup(what, at, "a pack of one", per_member, single))
        rows += [
            time_ratio("packed step", at, name, step, [bound] * len(step))
            for name, bound in bounds.items()
        ]
    return rows


if __name__ == "__main__":
    run_command(main)
