"""The compiled mixture of words beside the same formula in operations of torch.

    python benchmarks/mixture.py --out runs/bench/mixture.json

Forward and backward, from contexts to log-probabilities, all but the words asking for
gradients, one thread: one member, and
members mapped together as `lmzoo/fuse` maps them. What compiling took is in no round.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import typer
from measure import Ratio, faster, in_turn, save, table
from torch import Tensor
from torch.func import vmap

from lmzoo.command_line import run_command
from lmzoo.functional.token_mixture import mixture_log_prob, naive_mixture_log_prob

Formula = Callable[..., Tensor]


@dataclass(frozen=True)
class Shape:
    """Members, positions of each, components and vocabulary; contexts are of E = 32 numbers."""

    P: int
    N: int
    K: int
    V: int

    def __str__(self) -> str:
        return f"P={self.P}, N={self.N:,}, K={self.K}, V={self.V}"


WIDTH = 32
SHAPES = [Shape(P, *one) for one in ((1660, 64, 251), (1900, 32, 200)) for P in (1, 16)]
"""A batch of the main sweep, and of the second shape of `fuse.py`."""
CALLS = 20
"""Of one round: a call takes a millisecond."""


def main(
    rounds: Annotated[int, typer.Option(min=1)] = 7,
    out: Annotated[Path, typer.Option(help="Where the JSON goes.")] = Path(
        "runs/bench/mixture.json"
    ),
) -> None:
    """Measure every shape."""
    torch.set_num_threads(1)
    rows = [compare(shape, rounds) for shape in SHAPES]
    save(rows, out)
    typer.echo(table([vars(row) for row in rows]))


def compare(shape: Shape, rounds: int) -> Ratio:
    """The row of one shape; both formulas must agree on it."""
    works = {
        "compiled": passes(mixture_log_prob, shape),
        "operations": passes(naive_mixture_log_prob, shape),
    }
    found, expected = (work() for work in works.values())
    assert torch.allclose(found, expected, atol=1e-4)
    calls = {name: lambda work=work: [work() for _ in range(CALLS)] for name, work in works.items()}
    seconds = in_turn(calls, rounds)
    what, rival = f"mixture of words, {CALLS} times", "operations of torch"
    return faster(what, str(shape), rival, seconds["compiled"], seconds["operations"])


def passes(formula: Formula, shape: Shape) -> Callable[[], Tensor]:
    """A forward and a backward pass; its log-probabilities."""
    members, generator = (shape.P,) * (shape.P > 1), torch.Generator().manual_seed(0)
    shapes = (shape.N, WIDTH), (shape.K, WIDTH), (shape.K,), (shape.V, shape.K)
    y, weight, bias, s = (torch.randn(*members, *one, generator=generator) for one in shapes)
    given = [one.requires_grad_() for one in (y, weight, bias, s.log_softmax(-2))]
    words = torch.randint(shape.V, (*members, shape.N), generator=generator)
    whole = vmap(formula) if members else formula

    def once() -> Tensor:
        out = whole(*given, words)
        torch.autograd.grad(out.sum(), given)
        return out.detach()

    return once


if __name__ == "__main__":
    run_command(main)
