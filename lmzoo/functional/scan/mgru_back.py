r"""A step of the minimal gated recurrent unit's reverse sweep, but for its product.

    δg = δ ⊙ f ⊙ act'(g), where ω = 1      δf = δ ⊙ (ω g − λ h) ⊙ f ⊙ (1 − f)
    δ becomes δ ⊙ (κ − λ f)

Symbols are those of `mgru.py`. Seven passes as operations of torch; compiled
(`kernels/mgru.py`) it is one.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.functional.processor import arrays, each, has_loops
from lmzoo.functional.scan.products import before
from lmzoo.functional.scan.slopes import through_sigmoid, through_tanh
from lmzoo.functional.scan.sums import Steps
from lmzoo.functional.scan.sweep import Step


@dataclass(frozen=True)
class Buffers:
    """What steps read and write; δ is one step's, and written again and again."""

    f: Float[Tensor, "T *P B H"]
    g: Float[Tensor, "T *P B H"]
    start: Float[Tensor, "*P B H"]
    states: Float[Tensor, "T *P B H"]
    dg: Steps
    """Asked for by nobody where nothing is written, ω = 0."""
    df: Steps
    delta: Float[Tensor, "*P B H"]
    carry: bool
    write: bool
    away: int
    """λ."""
    sigmoid: bool


def step(buffers: Buffers) -> Step:
    """By whichever way there is."""
    return (loop if has_loops(buffers.f) else operations)(buffers)


def operations(buffers: Buffers) -> Step:
    """Operation by operation."""
    f, g, delta, away = buffers.f, buffers.g, buffers.delta, buffers.away
    h, u = before(buffers.start, buffers.states), torch.empty_like(delta)
    through = through_sigmoid if buffers.sigmoid else through_tanh

    def back(t: int) -> None:
        torch.mul(h[t], -away, out=u)
        if buffers.write:
            u.add_(g[t])
        through_sigmoid(u.mul_(delta), f[t], buffers.df.at[t])
        if buffers.write:
            through(torch.mul(delta, f[t], out=u), g[t], buffers.dg.at[t])
        if buffers.carry:
            delta.addcmul_(delta, f[t], value=-away)
        else:
            delta.mul_(f[t]).mul_(-away)

    return back


def loop(buffers: Buffers) -> Step:
    """The same, compiled."""
    from lmzoo.functional.kernels import mgru as kernels

    f, g, states = (each(one.flatten(1)) for one in (buffers.f, buffers.g, buffers.states))
    dg, df = (each(one.every.flatten(1)) * one.repeats for one in (buffers.dg, buffers.df))
    start, delta = arrays(buffers.start.flatten(), buffers.delta.flatten())
    h = [start, *states[:-1]]
    variant = buffers.carry, buffers.write, buffers.away, buffers.sigmoid

    def back(t: int) -> None:
        kernels.step(f[t], g[t], h[t], *variant, dg[t], df[t], delta)

    return back
