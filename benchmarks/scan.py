"""The minimal gated unit's compiled recurrence, torch.nn.GRU and loops over steps.

    python benchmarks/scan.py --out runs/bench/scan.json

Forward and backward with gradients of inputs and weights, one thread. The rivals:

    torch.nn.GRU     sequences with time first, its fastest layout; ours are batch first
    published loop   projections inside the loop, a multiplier before each of eight terms,
                     the input of a step is x[:, t]
    published loop, unbound   the same with x.unbind(1): the backward of x[:, t] fills an
                     array of x's size at every step, which makes the loop quadratic in T
    naive scan       `Cell.naive_scan`: projections before the loop, no multipliers
    products alone   the twelve matrix products of ours, four forward and eight backward, into
                     allocated memory: the least time of a recurrence of vectors in float32

Inputs are vectors, or tokens as in a language model: rows of an embedding table, with a gradient
of the table. Ours projects the rows of the table and looks them up; the rivals look up a vector at
each position and project it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import torch
import typer
from measure import Ratio, Work, interleave, save, speedup, time_ratio
from torch import Tensor, nn

from lmzoo.cells.base import CELLS, Cell
from lmzoo.command_line import run_command
from lmzoo.kernels.tokens import TokenInputs

BATCH, WIDTH = 280, 128
GOALS = {20: None, 100: 5.0}
VOCAB = {20: 251, 100: 82}
"""Length -> vocabulary: words of captions, characters of a language."""


def main(
    rounds: Annotated[int, typer.Option(min=1)] = 7,
    out: Annotated[Path, typer.Option(help="The JSON file.")] = Path("runs/bench/scan.json"),
) -> None:
    """Measure at 20 and at 100 steps."""
    torch.set_num_threads(1)
    inputs = (compare_vectors, compare_tokens)
    save([row for length in GOALS for compare in inputs for row in compare(length, rounds)], out)


def compare_vectors(length: int, rounds: int) -> list[Ratio]:
    """Return the rows at T = `length` with vectors as inputs."""
    cell, library, start = recurrences(length)
    x, upstream = torch.randn(2, BATCH, length, WIDTH).unbind(0)
    x_time, upstream_time = (t.transpose(0, 1).contiguous() for t in (x, upstream))
    parameters = [*cell.parameters(), *library.parameters()]

    def step(forward: Callable[[Tensor], Tensor], inputs: Tensor, upstream: Tensor) -> Work:
        return training_step(
            lambda: forward(inputs.detach().requires_grad_()), upstream, parameters
        )

    seconds = interleave(
        {
            "fast": step(lambda x: cell.scan(x, start), x, upstream),
            "torch.nn.GRU": step(lambda x: library(x, start[None])[0], x_time, upstream_time),
            "published loop": step(lambda x: published(cell, x, start, sliced), x, upstream),
            "published loop, unbound": step(
                lambda x: published(cell, x, start, lambda x: x.unbind(1)), x, upstream
            ),
            "naive scan": step(lambda x: cell.naive_scan(x, start), x, upstream),
            "products alone": products(length),
        },
        rounds,
    )
    return rows_of("MGU forward + backward", f"B=280, H=128, T={length}", seconds, GOALS[length])


def compare_tokens(length: int, rounds: int) -> list[Ratio]:
    """Return the rows at T = `length` with tokens as inputs."""
    cell, library, start = recurrences(length)
    table = torch.randn(VOCAB[length], WIDTH, requires_grad=True)
    tokens = torch.randint(len(table), (BATCH, length))
    tokens_time, upstream = tokens.T.contiguous(), torch.randn(BATCH, length, WIDTH)
    parameters = [*cell.parameters(), *library.parameters(), table]

    def embed(tokens: Tensor) -> Tensor:
        return nn.functional.embedding(tokens, table)

    def step(forward: Callable[[], Tensor], upstream: Tensor = upstream) -> Work:
        return training_step(forward, upstream, parameters)

    seconds = interleave(
        {
            "fast": step(lambda: cell.scan(TokenInputs(tokens, table), start)),
            "torch.nn.GRU": step(
                lambda: library(embed(tokens_time), start[None])[0],
                upstream.transpose(0, 1).contiguous(),
            ),
            "published loop": step(lambda: published(cell, embed(tokens), start, sliced)),
            "published loop, unbound": step(
                lambda: published(cell, embed(tokens), start, lambda x: x.unbind(1))
            ),
        },
        rounds,
    )
    at = f"B=280, H=128, T={length}, V={len(table)}"
    return rows_of("MGU of tokens, forward + backward", at, seconds, GOALS[length])


def recurrences(length: int) -> tuple[Cell, nn.GRU, Tensor]:
    """Return our cell, torch's GRU, and the initial state of both."""
    torch.manual_seed(0)
    cell = CELLS.build(CELLS.parse("mgu"), WIDTH, length)
    return cell, nn.GRU(WIDTH, WIDTH), torch.ones(BATCH, WIDTH)


def training_step(
    forward: Callable[[], Tensor], upstream: Tensor, parameters: list[Tensor]
) -> Callable[[], None]:
    """Return a forward and backward pass."""

    def step() -> None:
        for parameter in parameters:
            parameter.grad = None
        forward().backward(upstream)

    return step


def rows_of(what: str, at: str, seconds: dict[str, list[float]], goal: float | None) -> list[Ratio]:
    """Return one row for each rival; `goal` is that of the published loop."""
    ours = seconds.pop("fast")
    largest = {"torch.nn.GRU": 0.70, "products alone": None}
    return [
        time_ratio(what, at, rival, ours, theirs, largest[rival])
        if rival in largest
        else speedup(what, at, rival, ours, theirs, goal if rival == "published loop" else None)
        for rival, theirs in seconds.items()
    ]


def products(length: int) -> Work:
    """Return the matrix products alone.

    Those of inputs and of the weights' gradients are one product for all steps, those of states one
    per step.
    """
    a, out = torch.randn(2, length * BATCH, WIDTH).unbind()
    weight, gradient = torch.randn(2, WIDTH, WIDTH).unbind()
    steps, outputs = (t.view(length, BATCH, WIDTH).unbind() for t in (a, out))

    def run() -> None:
        for _ in range(4):
            torch.mm(a, weight, out=out)
            for step, output in zip(steps, outputs, strict=True):
                torch.mm(step, weight, out=output)
            torch.mm(a.mT, out, out=gradient)

    return run


def sliced(x: Tensor) -> list[Tensor]:
    """Return the inputs of every step, each by its index."""
    return [x[:, t] for t in range(x.shape[1])]


def published(cell: Cell, x: Tensor, h: Tensor, steps: Callable[[Tensor], list[Tensor]]) -> Tensor:
    """Return the states of the recurrence as published, with a multiplier for every cut."""
    w, u, states = cell.w, torch.ones(8), []
    for x_t in steps(x):
        f = torch.sigmoid(u[0] * (x_t @ w.xf) + u[1] * (h @ w.hf) + u[2] * w.bf)
        c = torch.tanh(u[3] * (x_t @ w.xh) + u[4] * ((h * f) @ w.hh) + u[5] * w.bh)
        h = u[6] * (1 - f) * h + u[7] * f * c
        states.append(h)
    return torch.stack(states, dim=1)


if __name__ == "__main__":
    run_command(main)
