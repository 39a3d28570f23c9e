"""How a training step grows with its members, the length and the vocabulary.

    python benchmarks/growth.py --out runs/bench/growth.json

Forward and backward of DLM46 (E = K = 32, one thread): a batch of 64 at T = 20..400 with
V = 200, and at V = 200..40,000 with T = 20; and a step of 1..64 fused members at V = 200,
T = 20, batch 100, its optimiser included. Every size is set beside what it would take if
the time of the smallest grew in proportion. Beside the JSON goes a picture.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import altair as alt
import torch
import typer
from fuse import Shape, members, random_corpus
from measure import Ratio, in_turn, save, slower, table

from lmzoo import zoo
from lmzoo.command_line import run_command
from lmzoo.contract import Task
from lmzoo.train.packed.trainer import PackedTrainer

BATCH = 64
SIZES = {
    "T": (20, 50, 100, 200, 400),
    "V": (200, 1000, 5000, 20_000, 40_000),
    "members": (1, 2, 4, 8, 16, 32, 64),
}


def main(
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    out: Annotated[Path, typer.Option(help="Where the JSON goes.")] = Path(
        "runs/bench/growth.json"
    ),
) -> None:
    """Measure, write the numbers and draw them."""
    torch.set_num_threads(1)
    works: dict[str, Callable[[int], Callable[[], object]]] = {
        "T": lambda length: step(200, length),
        "V": lambda vocab: step(vocab, 20),
        "members": together,
    }
    rows, points = [], []
    for what, sizes in SIZES.items():
        seconds = in_turn({str(size): works[what](size) for size in sizes}, rounds)
        found = compare(what, seconds)
        rows += found
        points += [
            {"growing": what, "size": size / sizes[0], "time": row.median * size / sizes[0]}
            for size, row in zip(sizes, found, strict=True)
        ]
    save(rows, out)
    draw(points).save(out.with_suffix(".svg"))
    typer.echo(table([vars(row) for row in rows]))


def compare(what: str, seconds: Mapping[str, list[float]]) -> list[Ratio]:
    """Each size beside the smallest in proportion, round by round."""
    (least, first), *_ = seconds.items()
    return [
        slower(
            "a training step", f"{what} = {int(size):,}", f"{what} = {least}, in proportion",
            own, [one * int(size) / int(least) for one in first], goal=1.0,
        )
        for size, own in seconds.items()
    ]  # fmt: skip


def step(vocab: int, length: int) -> Callable[[], object]:
    """A forward and backward pass of DLM46 on random tokens."""
    model = zoo.build(zoo.config("DLM46"), Task(vocab=vocab, length=length), seed=0)
    tokens = torch.randint(vocab, (BATCH, length), generator=torch.Generator().manual_seed(0))
    lengths = torch.full((BATCH,), length)

    def once() -> None:
        model.zero_grad()
        model.log_prob(tokens, lengths).sum().backward()

    return once


def together(count: int) -> Callable[[], object]:
    """A step of so many fused members; what is done once an epoch is not in them."""
    shape = Shape(count, 200, 32, 32, 100, 20)
    corpus = random_corpus(shape, steps=1)
    trainings = members(shape, corpus)
    company = PackedTrainer.for_trainings(trainings)

    def one() -> list[float]:
        assert trainings, "a company does not keep its members"
        return company.train_epoch(corpus.train)

    return one


def draw(points: list[dict[str, object]]) -> alt.LayerChart | alt.FacetChart:
    """Time over size, both of the smallest size, with what proportion would be."""
    x = alt.X(
        "size:Q", scale=alt.Scale(type="log", domain=(1, 250)), title="times the smallest size"
    )
    y = alt.Y("time:Q", scale=alt.Scale(type="log", domain=(1, 250)), title="times its time")
    even = [{"size": size, "time": size} for size in (1, 200)]
    line = alt.Chart(alt.Data(values=even)).mark_line(strokeDash=[4, 4], color="grey")
    return line.encode(x, y) + alt.Chart(alt.Data(values=points)).mark_line(point=True).encode(
        x, y, color=alt.Color("growing:N", title="")
    )


if __name__ == "__main__":
    run_command(main)
