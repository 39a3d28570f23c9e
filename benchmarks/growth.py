"""How a training step grows with the length and with the vocabulary.

    python benchmarks/growth.py --out runs/bench/growth.json

A step of DLM46 (E = K = 32, forward and backward, one thread) at T = 20..400 with V = 200,
and at V = 200..40,000 with T = 20. The exponent is the slope of log seconds over log
size between the ends: 1 is linear. Beside the JSON goes a picture of the same name.
"""

import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import altair as alt
import torch
import typer
from measure import in_turn

from lmzoo import zoo
from lmzoo.contract import Task
from lmzoo.edge import run

LENGTHS, VOCABS, BATCH = (20, 50, 100, 200, 400), (200, 1000, 5000, 20_000, 40_000), 64
GROWING = {"T": [(200, t) for t in LENGTHS], "V": [(v, 20) for v in VOCABS]}


def main(
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    out: Annotated[Path, typer.Option(help="Where the JSON goes.")] = Path(
        "runs/bench/growth.json"
    ),
) -> None:
    """Measure, write the numbers and draw them."""
    torch.set_num_threads(1)
    points = [point for what in GROWING for point in grow(what, rounds)]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"points": points, "exponents": exponents(points)}, indent=1) + "\n")
    draw(points).save(out.with_suffix(".png"), ppi=120)
    typer.echo(json.dumps(exponents(points)))


def grow(what: str, rounds: int) -> list[dict[str, Any]]:
    """Median CPU milliseconds of a step at each size, the sizes in turn."""
    sizes = GROWING[what]
    work = {str(i): step(vocab, length) for i, (vocab, length) in enumerate(sizes)}
    seconds = in_turn(work, rounds)
    return [
        {"what": what, "V": v, "T": t, "size": t if what == "T" else v,
         "ms": statistics.median(seconds[str(i)]) * 1e3}
        for i, (v, t) in enumerate(sizes)
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


def exponents(points: list[dict[str, Any]]) -> dict[str, float]:
    """For each growing size, log(last / first) of the time over that of the size."""
    found = {}
    for what in GROWING:
        own = [point for point in points if point["what"] == what]
        first, last = own[0], own[-1]
        slope = math.log(last["ms"] / first["ms"]) / math.log(last["size"] / first["size"])
        found[what] = round(slope, 2)
    return found


def draw(points: list[dict[str, Any]]) -> alt.Chart:
    """Time over size, both logarithmic, one line each."""
    size = alt.X("size:Q", scale=alt.Scale(type="log"), title="T or V")
    return (
        alt.Chart(alt.Data(values=points))
        .mark_line(point=True)
        .encode(size, alt.Y("ms:Q", scale=alt.Scale(type="log"), title="ms a step"), color="what:N")
    )


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    run(app)
