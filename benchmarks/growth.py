"""How the time of a training step grows with the length, the vocabulary and the pack members.

    python benchmarks/growth.py --out runs/bench/growth.json

Forward and backward of DLM46 (E = K = 32, one thread): a batch of 64 at T = 20..400 with V = 200,
and at V = 200..40,000 with T = 20; and a step of 1..64 pack members at V = 200, T = 20, batch 100,
with its optimiser. The rival of each size is the time of the smallest size, in proportion. A chart
is written next to the JSON.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import altair as alt
import torch
import typer
from fuse import Shape, pack_members, random_corpus
from measure import Ratio, Work, interleave, save, time_ratio

from lmzoo import zoo
from lmzoo.command_line import run_command
from lmzoo.contract import Task
from lmzoo.train.packed.trainer import PackedTrainer

BATCH = 64
SIZES = {
    "T": (20, 50, 100, 200, 400),
    "V": (200, 1000, 5000, 20_000, 40_000),
    "pack members": (1, 2, 4, 8, 16, 32, 64),
}


def main(
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    out: Annotated[Path, typer.Option(help="The JSON file.")] = Path("runs/bench/growth.json"),
) -> None:
    """Measure all sizes, write the rows and draw the chart."""
    torch.set_num_threads(1)
    steps: dict[str, Callable[[int], Work]] = {
        "T": lambda length: training_step(200, length),
        "V": lambda vocab: training_step(vocab, 20),
        "pack members": packed_step,
    }
    rows, points = [], []
    for name, sizes in SIZES.items():
        seconds = interleave({str(size): steps[name](size) for size in sizes}, rounds)
        compared = compare(name, seconds)
        rows += compared
        points += [
            {"growing": name, "size": size / sizes[0], "time": row.median * size / sizes[0]}
            for size, row in zip(sizes, compared, strict=True)
        ]
    save(rows, out)
    draw(points).save(out.with_suffix(".svg"))


def compare(name: str, seconds: Mapping[str, list[float]]) -> list[Ratio]:
    """Return the ratio of each size to the smallest size in proportion, by round."""
    (least, first), *_ = seconds.items()
    return [
        time_ratio(
            "a training step", f"{name} = {int(size):,}", f"{name} = {least}, in proportion",
            own, [one * int(size) / int(least) for one in first], goal=1.0,
        )
        for size, own in seconds.items()
    ]  # fmt: skip


def training_step(vocab: int, length: int) -> Work:
    """Return a forward and backward pass of DLM46 on random tokens."""
    model = zoo.build(zoo.config("DLM46"), Task(vocab=vocab, length=length), seed=0)
    tokens = torch.randint(vocab, (BATCH, length), generator=torch.Generator().manual_seed(0))
    lengths = torch.full((BATCH,), length)

    def step() -> None:
        model.zero_grad()
        model.log_prob(tokens, lengths).sum().backward()

    return step


def packed_step(count: int) -> Callable[[], list[float]]:
    """Return a training step of so many pack members, without the work of a whole epoch."""
    shape = Shape(count, 200, 32, 32, 100, 20)
    corpus = random_corpus(shape, steps=1)
    trainings = pack_members(shape, corpus)
    trainer = PackedTrainer.for_trainings(trainings)

    def step() -> list[float]:
        assert trainings  # the trainer has no reference to its members, so this function needs one
        return trainer.train_epoch(corpus.train)

    return step


def draw(points: list[dict[str, object]]) -> alt.LayerChart | alt.FacetChart:
    """Draw time over size, both relative to the smallest size, with a line of proportion."""
    scale = alt.Scale(type="log", domain=(1, 250))
    x = alt.X("size:Q", scale=scale, title="size / smallest size")
    y = alt.Y("time:Q", scale=scale, title="time / time of the smallest size")
    proportion = [{"size": size, "time": size} for size in (1, 200)]
    line = alt.Chart(alt.Data(values=proportion)).mark_line(strokeDash=[4, 4], color="grey")
    return line.encode(x, y) + alt.Chart(alt.Data(values=points)).mark_line(point=True).encode(
        x, y, color=alt.Color("growing:N", title="")
    )


if __name__ == "__main__":
    run_command(main)
