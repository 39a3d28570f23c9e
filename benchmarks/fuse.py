"""A pack of P runs trained as one program, and the same P runs trained one after another.

    python benchmarks/fuse.py --out runs/bench/fuse.json

Both sides train the same runs on the same random sequences with the library's own code and one
thread: `KeptTrainers` for the pack, an epoch of `fit` for each run. The runs are of DLM46.

    python benchmarks/fuse.py --rows all                  every row that can be packed

measures rows with their own widths in packs of four, and writes runs/bench/packed_rows.md.
"""

import dataclasses
import math
import shutil
import statistics
import tempfile
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from measure import Ratio, Work, interleave, save, speedup

from lmzoo import zoo
from lmzoo.base.command_line import run_command
from lmzoo.contract import MODELS
from lmzoo.data.corpus import Corpus, Sequences
from lmzoo.data.vocabulary import SPECIALS, Vocabulary
from lmzoo.lab.store.local import Store
from lmzoo.train.checkpoint import checkpoint_bytes, stacked_state
from lmzoo.train.kept_trainers import KeptTrainers
from lmzoo.train.pack_compatibility import packing_pays, reason_not_packable
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training, fit

STEPS = 20
"""Steps of an epoch. Parameters are stacked once an epoch; real corpora have 40 steps or more."""
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Shape:
    """Pack members, vocabulary, width, components, batch and length; steps of an epoch.

    Without components DLM46 has a softmax tied to the embeddings.
    """

    P: int
    V: int
    E: int
    K: int
    B: int
    T: int
    steps: int = STEPS

    def __str__(self) -> str:
        return f"{self.P} of V={self.V}, E={self.E}, K={self.K}, B={self.B}, T={self.T}"


GOALS = {
    Shape(16, 200, 16, 16, 32, 20): 6.0,
    Shape(16, 200, 32, 32, 100, 20): 3.0,
    Shape(8, 82, 128, 90, 64, 100, steps=4): 1.0,
}

ROWS_SHAPE = Shape(4, 200, 0, 0, 50, 12, steps=2)
"""The shape for `--rows`, but for the length; the rows have their own widths."""


def main(
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    out: Annotated[Path, typer.Option(help="The JSON file.")] = Path("runs/bench/fuse.json"),
    rows: Annotated[
        str, typer.Option(help="all, or rows with commas: a table of these instead.")
    ] = "",
    length: Annotated[int, typer.Option(min=2, help="Tokens of a sequence, for --rows.")] = 12,
) -> None:
    """Measure every shape, or rows of the zoo at one shape."""
    torch.set_num_threads(1)
    if rows:
        names = packed_rows() if rows == "all" else rows.split(",")
        text = "| row | time in a pack / alone | range | packed on a CPU |\n|---|---:|---|---|\n"
        for name in names:
            text += compare_row(name, length, rounds)
            out.parent.mkdir(parents=True, exist_ok=True)
            out.with_name("packed_rows.md").write_text(text)
        typer.echo(text)
        return
    save([compare(shape, goal, rounds) for shape, goal in GOALS.items()], out)


def compare(shape: Shape, goal: float, rounds: int) -> Ratio:
    """Return the row of one shape."""
    corpus = random_corpus(shape, shape.steps)
    seconds = interleave(
        {
            "packed": packed_epoch(pack_members(shape, corpus), corpus),
            "one after another": sequential_epochs(pack_members(shape, corpus), corpus),
        },
        rounds,
    )
    ours, theirs = seconds.values()
    return speedup("pack members", str(shape), "one after another", ours, theirs, goal)


def packed_rows() -> list[str]:
    """Return the rows that can be packed, without those of two languages."""
    task = random_corpus(Shape(1, 20, 8, 8, 2, 6), steps=1).task
    models = {name: zoo.row(name).model for name in zoo.names()}
    names = [name for name, kind in models.items() if kind and not MODELS[kind].conditional]
    return [n for n in names if not reason_not_packable(zoo.build(zoo.config(n), task))]


def compare_row(name: str, length: int, rounds: int) -> str:
    """Return the line of a row: the time of an epoch of a pack over that of its members alone."""
    shape = dataclasses.replace(ROWS_SHAPE, T=length)
    corpus = random_corpus(shape, shape.steps)
    members, rivals = (pack_members(shape, corpus, row=name) for _ in range(2))
    seconds = interleave(
        {"packed": packed_epoch(members, corpus), "alone": sequential_epochs(rivals, corpus)},
        rounds,
        warmup=2,
    )
    ratios = [ours / theirs for ours, theirs in zip(*seconds.values(), strict=True)]
    pays = packing_pays(members[0].model.config, members[0].recipe, corpus.task)
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    rule = "yes" if pays else "no"
    return f"| `{name}` | {statistics.median(ratios):.2f} | {spread} | {rule} |\n"


def packed_epoch(trainings: list[Training], corpus: Corpus) -> Work:
    """Return the training of all members for one epoch as one program."""
    trainers = KeptTrainers()
    return lambda: trainers.train_epoch(trainings, corpus)


def sequential_epochs(trainings: list[Training], corpus: Corpus) -> Work:
    """Return the training of each member for one epoch, one after another."""
    return lambda: [next(fit(training, corpus, training.epoch + 1)) for training in trainings]


def with_checkpoints(work: Work, trainings: list[Training]) -> Work:
    """Return the work with a checkpoint of each training after it, as in a sweep.

    A thread writes that of a pack during the next epoch, which waits for it, at most once a second.
    """
    pool, writes, saved = ThreadPoolExecutor(1), [], [-math.inf]
    folder = Path(tempfile.mkdtemp())

    def write(make: Callable[[], Any]) -> None:
        Store(folder).overwrite("rows", make())

    def run() -> None:
        work()
        for pending in writes:
            pending.result()
        writes.clear()
        snapshots = [training.snapshot() for training in trainings]
        if time.monotonic() - saved[0] < Store.save_seconds:
            return
        saved[0] = time.monotonic()
        if trainings[0].row is None:
            for make in snapshots:
                checkpoint_bytes(make())
        else:
            members = [(str(i), training, []) for i, training in enumerate(trainings)]
            writes.append(pool.submit(write, partial(stacked_state(members), 0)))

    weakref.finalize(run, shutil.rmtree, folder, ignore_errors=True)
    return run


def pack_members(
    shape: Shape, corpus: Corpus, device: torch.device = CPU, row: str = "DLM46"
) -> list[Training]:
    """Return P runs of a row that differ in their random seed; a width of 0 is the row's own."""
    emission = {"components": shape.K} if shape.K else "vector"
    fields: dict[str, Any] = {"emission": emission} if row == "DLM46" else {}
    if shape.E and hasattr(zoo.config(row), "width"):
        fields["width"] = shape.E
    config = zoo.config(row, **fields)
    recipe = Recipe(batch=shape.B, lr=1e-3)
    models = [zoo.build(config, corpus.task, seed).to(device) for seed in range(shape.P)]
    return [Training(model, recipe, seed) for seed, model in enumerate(models)]


def random_corpus(shape: Shape, steps: int = STEPS) -> Corpus:
    """Return random sequences of full length for so many steps, and one to evaluate."""
    generator = torch.Generator().manual_seed(0)
    words = tuple(str(i) for i in range(len(SPECIALS), shape.V))

    def part(count: int) -> Sequences:
        size = count, shape.T
        tokens = torch.randint(len(SPECIALS), shape.V, size, generator=generator)
        tokens[:, 0] = 1
        return Sequences(tokens, torch.full((count,), shape.T))

    parts = [part(count) for count in (shape.B * steps, 1, 1)]
    return Corpus("random", Vocabulary((*SPECIALS, *words)), *parts, unit="word", source="here")


if __name__ == "__main__":
    run_command(main)
