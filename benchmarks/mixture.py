"""The compiled token mixture and the same formula in torch operations.

    python benchmarks/mixture.py --out runs/bench/mixture.json

Forward and backward, from contexts to log-probabilities, with gradients of all inputs except the
tokens, one thread; for a single run, and for pack members with vmap, as packs do. Compilation takes
place in the warm-up.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import typer
from measure import Ratio, interleave, save, speedup
from torch import Tensor
from torch.func import vmap

from lmzoo.command_line import run_command
from lmzoo.functional.token_mixture import mixture_log_prob, naive_mixture_log_prob

Formula = Callable[..., Tensor]


@dataclass(frozen=True)
class Shape:
    """Pack members, positions of each, components and vocabulary; contexts have width 32."""

    P: int
    N: int
    K: int
    V: int

    def __str__(self) -> str:
        return f"P={self.P}, N={self.N:,}, K={self.K}, V={self.V}"


WIDTH = 32
SHAPES = [Shape(P, *sizes) for sizes in ((1660, 64, 251), (1900, 32, 200)) for P in (1, 16)]
"""A batch of the main sweep, and of the second shape of `fuse.py`."""
CALLS = 20
"""Calls of one round: a call takes about a millisecond."""


def main(
    rounds: Annotated[int, typer.Option(min=1)] = 7,
    out: Annotated[Path, typer.Option(help="The JSON file.")] = Path("runs/bench/mixture.json"),
) -> None:
    """Measure every shape."""
    torch.set_num_threads(1)
    save([compare(shape, rounds) for shape in SHAPES], out)


def compare(shape: Shape, rounds: int) -> Ratio:
    """Return the row of one shape, after a check that both formulas agree."""
    passes = {
        "compiled": make_pass(mixture_log_prob, shape),
        "operations": make_pass(naive_mixture_log_prob, shape),
    }
    compiled, expected = (run() for run in passes.values())
    assert torch.allclose(compiled, expected, atol=1e-4)
    calls = {name: lambda run=run: [run() for _ in range(CALLS)] for name, run in passes.items()}
    seconds = interleave(calls, rounds)
    what, rival = f"mixture of tokens, {CALLS} times", "operations of torch"
    return speedup(what, str(shape), rival, seconds["compiled"], seconds["operations"])


def make_pass(formula: Formula, shape: Shape) -> Callable[[], Tensor]:
    """Return a forward and backward pass on random inputs; it returns the log-probabilities."""
    members, generator = (shape.P,) * (shape.P > 1), torch.Generator().manual_seed(0)
    shapes = (shape.N, WIDTH), (shape.K, WIDTH), (shape.K,), (shape.V, shape.K)
    y, weight, bias, s = (torch.randn(*members, *size, generator=generator) for size in shapes)
    inputs = [tensor.requires_grad_() for tensor in (y, weight, bias, s.log_softmax(-2))]
    tokens = torch.randint(shape.V, (*members, shape.N), generator=generator)
    function = vmap(formula) if members else formula

    def run() -> Tensor:
        out = function(*inputs, tokens)
        torch.autograd.grad(out.sum(), inputs)
        return out.detach()

    return run


if __name__ == "__main__":
    run_command(main)
