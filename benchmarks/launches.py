"""The operations of a training step of a pack that a GPU would launch one after another.

    python benchmarks/launches.py

The step runs on the CPU without the CPU's kernels, so it takes the path of a GPU. Each torch
operation that computes something counts as one launch, and so does each Triton kernel, which is
not executed; views and allocations do not count. The numbers are those of DLM46 at V=200,
K=32, B=100, and E=32, where the recurrent weights fit on the chip, or E=128, where they do not.

    python benchmarks/launches.py --rows all              every row that can be packed

counts the launches of rows at two vocabularies, two lengths and two numbers of members.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when it is imported

import math
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from fuse import Shape, pack_members, packed_rows, random_corpus
from measure import Ratio, save
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry
from triton.runtime.interpreter import GridExecutor

from lmzoo.base.command_line import run_command
from lmzoo.data.corpus import Corpus
from lmzoo.kernels.dispatch import without_kernels
from lmzoo.train import stepper
from lmzoo.train.checkpoint import stacked_state
from lmzoo.train.kept_trainers import KeptTrainers
from lmzoo.train.pack_recorder import leaves, returns_views
from lmzoo.train.pack_trainer import PackedTrainer
from lmzoo.train.stepper import Work

SHAPES = tuple(Shape(P, 200, 32, 32, 100, T) for P, T in ((1, 20), (64, 20), (8, 100), (8, 400)))
WIDE = tuple(Shape(8, 200, 128, 32, 100, T) for T in (20, 100))
"""Shapes whose recurrent weights do not fit on the chip."""
GOAL = 100
"""Launches of a step, at every length and number of members."""
MOST = 100
"""Launches of a step of any row, with 32 tokens."""
WORDS, LENGTHS, MEMBERS = (200, 8000), (16, 32), (2, 4)


def main(
    out: Annotated[Path, typer.Option(help="The JSON file.")] = Path("runs/bench/launches.json"),
    rows: Annotated[
        str, typer.Option(help="all, or rows with commas: a table of these instead.")
    ] = "",
) -> None:
    """Count the launches of every shape."""
    if rows:
        names = packed_rows() if rows == "all" else rows.split(",")
        cases = [(V, T, P) for V in WORDS for T in LENGTHS for P in MEMBERS]
        head = " | ".join(f"V={V:,}, T={T}, P={P}" for V, T, P in cases)
        typer.echo(f"| row | {head} |\n|---|{'---:|' * len(cases)}")
        for name in names:
            counts = [count_launches(Shape(P, V, 16, 8, 8, T), name) for V, T, P in cases]
            totals = " | ".join(str(counter.counts.total()) for counter in counts)
            typer.echo(f"| {name} | {totals} |")
        return
    save([*(row(shape, GOAL) for shape in SHAPES), *(row(shape, None) for shape in WIDE)], out)


def row(shape: Shape, goal: int | None) -> Ratio:
    """Return the launches of a shape over the goal; without a goal, those beyond `GOAL`."""
    counts = count_launches(shape).counts
    total = counts.total()
    most = ", ".join(f"{count} {name}" for name, count in counts.most_common(8))
    ratio = total / GOAL
    return Ratio(
        what="launches of a training step", at=str(shape), rival=f"{GOAL}",
        unit="launches, ours / rival", median=ratio, low=ratio, high=ratio,
        goal="<= 1" if goal else "", holds=total <= goal if goal else None,
        absolute=f"{total}: {most}",
    )  # fmt: skip


def count_launches(shape: Shape, row: str = "DLM46") -> "LaunchCounter":
    """Return the launches of a step as it is recorded on a GPU, and the bytes that they move."""
    corpus = random_corpus(shape, steps=1)
    trainer = PackedTrainer(pack_members(shape, corpus, row=row), shape.P)
    data = corpus.train
    columns = [torch.stack([column] * shape.P) for column in (data.tokens, data.lengths)]
    counter, rates = LaunchCounter(), torch.full((shape.P,), 0.01)
    execute, GridExecutor.__call__ = GridExecutor.__call__, counter.count_kernel
    try:
        with without_kernels("cpu"), counter:
            trainer.step(rates, None, None, *columns)
    finally:
        GridExecutor.__call__ = execute
    return counter


NO_LAUNCH = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"}
NO_LAUNCH.add("_unsafe_view")  # a view that torch does not declare as one


@dataclass
class EpochCounts:
    """What a GPU does in an epoch of a pack, and the time of the host."""

    steps: list["LaunchCounter"]
    evaluation: list["LaunchCounter"]
    """The graphs that are replayed."""
    outside: "LaunchCounter"
    """The operations between them."""
    copied: int
    """Bytes of the state that are copied to the host."""
    host: float
    """Seconds of this CPU without the steps: batches, copies, records, states of checkpoints."""
    writer: float
    """Seconds of the thread that writes the checkpoints; nothing is written here."""


def count_epoch(shape: Shape, corpus: Corpus, rounds: int = 5) -> EpochCounts:
    """Return the counts of an epoch as a sweep runs it on a GPU, after the first ones."""
    trainings, trainers = pack_members(shape, corpus), KeptTrainers()
    recorder, outside = CountingRecorder(), LaunchCounter()
    execute, GridExecutor.__call__ = GridExecutor.__call__, recorder.count_kernel
    find, stepper.device_recorder = stepper.device_recorder, lambda device: recorder
    host, writer = [], []
    try:
        with without_kernels("cpu"):
            for _ in range(rounds):
                recorder.replayed.clear()
                for training in trainings:
                    training.best_loss = math.inf  # every epoch is the best one
                begin = time.thread_time()
                trainers.train_epoch(trainings, corpus)
                members = [(str(i), training, []) for i, training in enumerate(trainings)]
                make = stacked_state(members)
                middle = time.thread_time()
                make(0)
                host.append(middle - begin)
                writer.append(time.thread_time() - middle)
            recorder.replayed.clear()
            with outside:
                trainers.train_epoch(trainings, corpus)
    finally:
        GridExecutor.__call__, stepper.device_recorder = execute, find
    assert trainings[0].row is not None
    copied = sum(matrix.nbytes for matrix in trainings[0].row.matrices.values())
    steps = math.ceil(len(corpus.train) / shape.B)
    graphs = recorder.replayed[:steps], recorder.replayed[steps:]
    return EpochCounts(*graphs, outside, copied, min(host), min(writer))


class CountingRecorder:
    """Stands in for CUDA graphs: a recording counts its launches, a replay computes nothing."""

    warmup_steps, few_shapes = 0, True
    rate_dtype, runs_while_recording = torch.float32, False

    def __init__(self) -> None:
        self.replayed: list[LaunchCounter] = []
        self._counter = LaunchCounter()

    def run(self, work: Work) -> str:
        """Run the work."""
        work()
        return ""

    def record(self, work: Work) -> Work:
        """Run the work once and count it."""
        self._counter = counter = LaunchCounter()
        with counter:
            work()
        return lambda: self.replayed.append(counter)

    def count_kernel(self, *args: Any, **kwargs: Any) -> None:
        """Count a kernel of the recording."""
        self._counter.count_kernel(*args, **kwargs)


class LaunchCounter(TorchDispatchMode):
    """Counts the torch operations that compute something, and Triton kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        """Launches, by the name of the operation."""
        self.bytes = 0
        """Size of all tensors that a launch reads or writes, each once."""
        self.flops = 0
        """Floating point operations of torch's matrix products."""

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = func.name().removeprefix("aten::").partition(".")[0]
        result = func(*args, **(kwargs or {}))
        if not returns_views(func) and name not in NO_LAUNCH:
            # The operations on lists are one launch for each tensor: parameters are strided.
            self.counts[name] += len(args[0]) if name.startswith("_foreach") else 1
            self._add_bytes((args, kwargs, result))
            if count := flop_registry.get(func._overloadpacket):
                self.flops += count(*args, **(kwargs or {}), out_val=result)
        return result

    def count_kernel(self, *args: Any, **kwargs: Any) -> None:
        """Count a launch of a Triton kernel instead of executing it."""
        self.counts["triton kernel"] += 1
        self._add_bytes(args)

    def _add_bytes(self, tree: Any) -> None:
        tensors = {t.data_ptr(): t.nbytes for t in leaves(tree, torch.Tensor)}
        self.bytes += sum(tensors.values())


if __name__ == "__main__":
    run_command(main)
