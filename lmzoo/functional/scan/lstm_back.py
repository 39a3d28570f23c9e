r"""A step of long short-term memory's reverse sweep, but for its product.

    q = tanh c'          γ gains δ ⊙ o ⊙ (1 − q²)
    δo = δ ⊙ q ⊙ o ⊙ (1 − o)       δg = γ ⊙ i ⊙ (1 − g²)
    δi = γ ⊙ g ⊙ i ⊙ (1 − i)       δf = γ ⊙ c ⊙ f ⊙ (1 − f)       γ becomes γ ⊙ f
    coupled:  δi = γ ⊙ (g − c) ⊙ i ⊙ (1 − i)                      γ becomes γ ⊙ (1 − i)

Symbols are those of `lstm.py`; δi, δf, δg, δo are what ∂i and its like become before the
activations. As operations of torch that is eleven passes over columns that lie apart, or one
loop, compiled (`kernels/lstm.py`).
"""

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor, empty_like, mul

from lmzoo.functional.processor import arrays, each, has_loops
from lmzoo.functional.scan.products import before
from lmzoo.functional.scan.slopes import through_sigmoid, through_tanh
from lmzoo.functional.scan.sums import Steps
from lmzoo.functional.scan.sweep import Step

Forget = Literal["gate", "none", "coupled"]


@dataclass(frozen=True)
class Buffers:
    """What steps read and write; δ and γ are one step's, and written again and again."""

    gates: Float[Tensor, "T *P B G"]
    first: Float[Tensor, "*P B H"]
    memory: Float[Tensor, "T *P B H"]
    """Each c', as `first` is the c of the first step."""
    squashed: Float[Tensor, "T *P B H"]
    da: Steps
    delta: Float[Tensor, "*P B H"]
    gamma: Float[Tensor, "*P B H"]
    forget: Forget


def gates_of(a: Tensor, forget: Forget) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """The columns of i, f, g, o; no f without its weights."""
    if forget == "gate":
        i, f, g, o = a.chunk(4, dim=-1)
        return i, f, g, o
    i, g, o = a.chunk(3, dim=-1)
    return i, None, g, o


def step(buffers: Buffers) -> Step:
    """What is done at step t, by whichever way there is."""
    return (loop if has_loops(buffers.gates) else operations)(buffers)


def operations(buffers: Buffers) -> Step:
    """Operation by operation."""
    delta, gamma, coupled = buffers.delta, buffers.gamma, buffers.forget == "coupled"
    cells, u = before(buffers.first, buffers.memory), empty_like(delta)

    def at(t: int) -> None:
        i, f, g, o = gates_of(buffers.gates[t], buffers.forget)
        di, df, dg, do = gates_of(buffers.da.at[t], buffers.forget)
        c, q = cells[t], buffers.squashed[t]
        through_sigmoid(mul(delta, q, out=u), o, do)
        gamma.add_(through_tanh(mul(delta, o, out=u), q, u))
        through_tanh(mul(gamma, i, out=u), g, dg)
        mul(gamma, g, out=u)
        if coupled:
            u.addcmul_(gamma, c, value=-1)
        through_sigmoid(u, i, di)
        if f is not None and df is not None:
            through_sigmoid(mul(gamma, c, out=u), f, df)
            gamma.mul_(f)
        elif coupled:
            gamma.addcmul_(gamma, i, value=-1)

    return at


def loop(buffers: Buffers) -> Step:
    """The same, compiled."""
    from lmzoo.functional.kernels import lstm as kernels

    gates, memory, squashed = (
        each(one.flatten(1, -2)) for one in (buffers.gates, buffers.memory, buffers.squashed)
    )
    da = each(buffers.da.every.flatten(1, -2)) * buffers.da.repeats
    of_step = buffers.first, buffers.delta, buffers.gamma
    first, delta, gamma = arrays(*(one.flatten(0, -2) for one in of_step))
    cells = [first, *memory[:-1]]
    kind = buffers.forget == "gate", buffers.forget == "coupled"

    def at(t: int) -> None:
        kernels.step(delta, gates[t], cells[t], squashed[t], *kind, gamma, da[t])

    return at
