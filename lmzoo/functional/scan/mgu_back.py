r"""A step of the minimal gated unit's reverse sweep, but for its products.

    candidate   u = δ ⊙ (ω c − κ h)                  δc = ω δ ⊙ f ⊙ (1 − c²)
    gate        δf = (u + s ⊙ h) ⊙ f ⊙ (1 − f)       δ becomes κ (1 − f) ⊙ δ + f ⊙ s

Between the two the sweep makes s; symbols are those of `mgu.py`. As operations of torch that
is nine passes; compiled (`kernels/mgu.py`) it is two, in a third of the time, and in a tenth
where steps are small.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.functional.processor import arrays, each, has_loops
from lmzoo.functional.scan.slopes import through_sigmoid, through_tanh
from lmzoo.functional.scan.sums import Steps
from lmzoo.functional.scan.sweep import Step


@dataclass(frozen=True)
class Buffers:
    """What steps read and write; δ, s and u are one step's, and written again and again."""

    carry: bool
    f: Float[Tensor, "T *P B H"]
    c: Float[Tensor, "T *P B H"] | None
    """None where nothing is written, ω = 0."""
    start: Float[Tensor, "*P B H"]
    states: Float[Tensor, "T *P B H"]
    df: Steps
    dc: Steps
    delta: Float[Tensor, "*P B H"]
    s: Float[Tensor, "*P B H"]


def steps(buffers: Buffers) -> tuple[Step, Step]:
    """Candidate and gate, by whichever way there is."""
    return (loops if has_loops(buffers.f) and buffers.c is not None else operations)(buffers)


def operations(buffers: Buffers) -> tuple[Step, Step]:
    """Candidate and gate, operation by operation."""
    carry, delta, s = buffers.carry, buffers.delta, buffers.s
    # Taken apart once: an index costs as much as a product of a small step.
    f, before = buffers.f.unbind(0), [buffers.start, *buffers.states.unbind(0)[:-1]]
    c = None if buffers.c is None else buffers.c.unbind(0)
    df, dc, u = buffers.df.at, buffers.dc.at, torch.empty_like(delta)

    def candidate(t: int) -> None:
        if c is not None:
            through_tanh(torch.mul(delta, f[t], out=u), c[t], dc[t])
            torch.mul(delta, c[t], out=u)
        if carry and c is not None:
            u.addcmul_(delta, before[t], value=-1)
        elif carry:
            torch.mul(delta, -before[t], out=u)

    def gate(t: int) -> None:
        through_sigmoid(u.addcmul_(s, before[t]), f[t], df[t])
        _ = delta.lerp_(s, f[t]) if carry else torch.mul(s, f[t], out=delta)

    return candidate, gate


def loops(buffers: Buffers) -> tuple[Step, Step]:
    """The same, compiled; something is written."""
    from lmzoo.functional.kernels import mgu as kernels

    assert buffers.c is not None
    carry, of_step = buffers.carry, (buffers.start, buffers.delta, buffers.s)
    start, delta, s = arrays(*(one.flatten() for one in of_step))
    f, c, states = (each(one.flatten(1)) for one in (buffers.f, buffers.c, buffers.states))
    df, dc = (each(one.every.flatten(1)) * one.repeats for one in (buffers.df, buffers.dc))
    before, u = [start, *states[:-1]], np.empty_like(delta)

    def candidate(t: int) -> None:
        kernels.candidate(delta, f[t], c[t], before[t], carry, dc[t], u)

    def gate(t: int) -> None:
        kernels.gate(u, s, before[t], f[t], carry, df[t], delta)

    return candidate, gate
