"""The minimal gated unit's fast scan beside torch.nn.GRU and beside loops over steps.

    python benchmarks/scan.py --out runs/bench/scan.json

Forward and backward, inputs and weights asking for gradients, one thread. The rivals:

    torch.nn.GRU     time first, which it likes best; ours gets its sequences batch first
    published loop   projections inside the loop, a multiplier before each of eight terms,
                     the input of a step taken as x[:, t]
    published loop, unbound   the same with x.unbind(1): the backward of x[:, t] fills an
                     array of x's size at every step, which alone makes the loop quadratic
    naive scan       `Cell.naive_scan`: the projections hoisted, no multipliers
    products alone   the twelve that ours makes, four forward and eight back, into places that
                     are there: what float32 arithmetic alone takes, and no recurrence of
                     vectors can avoid

Inputs are vectors, or words as a language model has them: rows of an embedding table, whose
gradient is asked for too. Ours then projects the table's rows and looks them up; the rivals look
up a vector at each position, and project it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import torch
import typer
from measure import Ratio, faster, in_turn, save, slower, table
from torch import Tensor, nn

from lmzoo.cells.base import CELLS, Cell
from lmzoo.command_line import run_command
from lmzoo.kernels.tokens import TokenInputs

BATCH, WIDTH = 280, 128
GOALS = {20: None, 100: 5.0}
VOCAB = {20: 251, 100: 82}
"""Words of captions, characters of a language."""


def main(
    rounds: Annotated[int, typer.Option(min=1)] = 7,
    out: Annotated[Path, typer.Option(help="Where the JSON goes.")] = Path("runs/bench/scan.json"),
) -> None:
    """Measure at 20 and at 100 steps."""
    torch.set_num_threads(1)
    rows = [row for length in GOALS for of in (compare, of_words) for row in of(length, rounds)]
    save(rows, out)
    typer.echo(table([vars(row) for row in rows]))


def compare(length: int, rounds: int) -> list[Ratio]:
    """The rows at T = `length`."""
    cell, library, start = recurrences(length)
    x, upstream = torch.randn(2, BATCH, length, WIDTH).unbind(0)
    first, first_upstream = (one.transpose(0, 1).contiguous() for one in (x, upstream))
    parameters = [*cell.parameters(), *library.parameters()]

    def trained(forward: Callable[[Tensor], Tensor], given: Tensor, back: Tensor) -> object:
        return steps(lambda: forward(given.detach().requires_grad_()), back, parameters)

    seconds = in_turn(
        {
            "fast": trained(lambda x: cell.scan(x, start), x, upstream),
            "torch.nn.GRU": trained(lambda x: library(x, start[None])[0], first, first_upstream),
            "published loop": trained(lambda x: published(cell, x, start, sliced), x, upstream),
            "published loop, unbound": trained(
                lambda x: published(cell, x, start, lambda x: x.unbind(1)), x, upstream
            ),
            "naive scan": trained(lambda x: cell.naive_scan(x, start), x, upstream),
            "products alone": products(length),
        },
        rounds,
    )
    return told("MGU forward + backward", f"B=280, H=128, T={length}", seconds, GOALS[length])


def of_words(length: int, rounds: int) -> list[Ratio]:
    """The rows at T = `length` where inputs are words."""
    cell, library, start = recurrences(length)
    table = torch.randn(VOCAB[length], WIDTH, requires_grad=True)
    words = torch.randint(len(table), (BATCH, length))
    first, upstream = words.T.contiguous(), torch.randn(BATCH, length, WIDTH)
    parameters = [*cell.parameters(), *library.parameters(), table]

    def looked_up(words: Tensor) -> Tensor:
        return nn.functional.embedding(words, table)

    def trained(forward: Callable[[], Tensor], back: Tensor = upstream) -> object:
        return steps(forward, back, parameters)

    seconds = in_turn(
        {
            "fast": trained(lambda: cell.scan(TokenInputs(words, table), start)),
            "torch.nn.GRU": trained(
                lambda: library(looked_up(first), start[None])[0],
                upstream.transpose(0, 1).contiguous(),
            ),
            "published loop": trained(lambda: published(cell, looked_up(words), start, sliced)),
            "published loop, unbound": trained(
                lambda: published(cell, looked_up(words), start, lambda x: x.unbind(1))
            ),
        },
        rounds,
    )
    at = f"B=280, H=128, T={length}, V={len(table)}"
    return told("MGU of words, forward + backward", at, seconds, GOALS[length])


def recurrences(length: int) -> tuple[Cell, nn.GRU, Tensor]:
    """Ours, the library's, and the state that both start from."""
    torch.manual_seed(0)
    cell = CELLS.build(CELLS.parse("mgu"), WIDTH, length)
    return cell, nn.GRU(WIDTH, WIDTH), torch.ones(BATCH, WIDTH)


def steps(forward: Callable[[], Tensor], back: Tensor, parameters: list[Tensor]) -> object:
    """Forward and backward, as one piece of work."""

    def once() -> None:
        for parameter in parameters:
            parameter.grad = None
        forward().backward(back)

    return once


def told(what: str, at: str, seconds: dict[str, list[float]], goal: float | None) -> list[Ratio]:
    """A row for each rival; the goal is of the published loop."""
    mine = seconds.pop("fast")
    at_most = {"torch.nn.GRU": 0.70, "products alone": None}
    return [
        slower(what, at, rival, mine, theirs, at_most[rival])
        if rival in at_most
        else faster(what, at, rival, mine, theirs, goal if rival == "published loop" else None)
        for rival, theirs in seconds.items()
    ]


def products(length: int) -> Callable[[], object]:
    """Inputs and their gradients at once, states and theirs step by step, four weights' at once."""
    a, out = torch.randn(2, length * BATCH, WIDTH).unbind()
    weight, gradient = torch.randn(2, WIDTH, WIDTH).unbind()
    steps, places = (one.view(length, BATCH, WIDTH).unbind() for one in (a, out))

    def once() -> None:
        for _ in range(4):
            torch.mm(a, weight, out=out)
            for step, place in zip(steps, places, strict=True):
                torch.mm(step, weight, out=place)
            torch.mm(a.mT, out, out=gradient)

    return once


def sliced(x: Tensor) -> list[Tensor]:
    """The inputs of every step, each taken by its index."""
    return [x[:, t] for t in range(x.shape[1])]


def published(cell: Cell, x: Tensor, h: Tensor, steps: Callable[[Tensor], list[Tensor]]) -> Tensor:
    """The recurrence as zoo.md 2.2 writes it, every cut a multiplier."""
    w, u, states = cell.w, torch.ones(8), []
    for x_t in steps(x):
        f = torch.sigmoid(u[0] * (x_t @ w.xf) + u[1] * (h @ w.hf) + u[2] * w.bf)
        c = torch.tanh(u[3] * (x_t @ w.xh) + u[4] * ((h * f) @ w.hh) + u[5] * w.bh)
        h = u[6] * (1 - f) * h + u[7] * f * c
        states.append(h)
    return torch.stack(states, dim=1)


if __name__ == "__main__":
    run_command(main)
