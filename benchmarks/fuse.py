"""P members as one program, beside the same P one after another.

    python benchmarks/fuse.py --out runs/bench/fuse.json

Both sides train the same members on the same random sequences by the library's own code:
an epoch of `fit` for each, an epoch of `train_together` for all, one thread. The members
are of DLM46; the rival is as fast as the library is, its sweeps by hand included, and so
is a second one that runs the cells' loops over `step`.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import typer
from measure import Ratio, faster, in_turn, save, table

from lmzoo import zoo
from lmzoo.cells.base import Cell
from lmzoo.command_line import run_command
from lmzoo.data.corpus import Corpus, Sequences
from lmzoo.data.vocabulary import SPECIALS, Vocabulary
from lmzoo.train.packed.trainer import train_packed_epoch
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training, fit

STEPS = 20
"""Steps of an epoch, in which members are stacked and taken apart once; corpora have 40 or more."""


@dataclass(frozen=True)
class Shape:
    """Members, vocabulary, width, components, batch and length; steps of an epoch."""

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


def main(
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    out: Annotated[Path, typer.Option(help="Where the JSON goes.")] = Path("runs/bench/fuse.json"),
) -> None:
    """Measure every shape."""
    torch.set_num_threads(1)
    rows = [row for shape, goal in GOALS.items() for row in compare(shape, goal, rounds)]
    save(rows, out)
    typer.echo(table([vars(row) for row in rows]))


def compare(shape: Shape, goal: float | None, rounds: int) -> list[Ratio]:
    """Both rivals' rows at one shape."""
    corpus = random_corpus(shape, shape.steps)
    seconds = in_turn(
        {
            "fused": together(shape, corpus),
            "one after another": one_by_one(shape, corpus),
            "one after another, loops over steps": with_loops(one_by_one(shape, corpus)),
        },
        rounds,
    )
    ours = seconds.pop("fused")
    return [
        faster("fused members", str(shape), rival, ours, theirs, goal if i == 0 else None)
        for i, (rival, theirs) in enumerate(seconds.items())
    ]


def together(shape: Shape, corpus: Corpus) -> Callable[[], object]:
    """An epoch of all members as one program."""
    trainings = members(shape, corpus)
    return lambda: train_packed_epoch(trainings, corpus)


def one_by_one(shape: Shape, corpus: Corpus) -> Callable[[], object]:
    """An epoch of each member."""
    trainings = members(shape, corpus)
    return lambda: [next(fit(one, corpus, one.epoch + 1)) for one in trainings]


def with_loops(work: Callable[[], object]) -> Callable[[], object]:
    """The same with every cell's reference loop in place of its sweep by hand."""

    @contextlib.contextmanager
    def naive() -> Iterator[None]:
        fast, Cell.scan = Cell.scan, Cell.naive_scan
        try:
            yield
        finally:
            Cell.scan = fast

    def once() -> None:
        with naive():
            work()

    return once


def members(shape: Shape, corpus: Corpus) -> list[Training]:
    """Members that differ in their seed."""
    config = zoo.config("DLM46", width=shape.E, emission={"components": shape.K})
    recipe = Recipe(batch=shape.B, lr=1e-3)
    return [Training(zoo.build(config, corpus.task, i), recipe, i) for i in range(shape.P)]


def random_corpus(shape: Shape, steps: int = STEPS) -> Corpus:
    """Random sequences of full length for so many steps, and next to nothing to evaluate."""
    generator = torch.Generator().manual_seed(0)
    words = tuple(str(i) for i in range(len(SPECIALS), shape.V))

    def part(count: int) -> Sequences:
        tokens = torch.randint(4, shape.V, (count, shape.T), generator=generator)
        tokens[:, 0] = 1
        return Sequences(tokens, torch.full((count,), shape.T))

    parts = (part(shape.B * steps), part(1), part(1))
    return Corpus("random", Vocabulary((*SPECIALS, *words)), *parts, unit="word", source="here")


if __name__ == "__main__":
    run_command(main)
