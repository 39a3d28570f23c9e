r"""A step of the gated recurrent unit's reverse sweep, but for its products.

    blend    δz = δ ⊙ (h − n) ⊙ z ⊙ (1 − z)    δn = δ ⊙ (1 − z) ⊙ (1 − n²)    δ becomes δ ⊙ z
             where z writes: −δz, and z and 1 − z change places
    reset    before its product:  δr = s ⊙ h ⊙ r ⊙ (1 − r)     δ gains s ⊙ r
             after it:            δr = δn ⊙ m ⊙ r ⊙ (1 − r)    δm = δn ⊙ r

Between the two the sweep makes s, if it has to; symbols are those of `gru.py`. Some ten passes as
operations of torch, over columns that lie apart, or two loops, compiled (`kernels/gru.py`).
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
    """What steps read and write; δ and s are one step's, and written again and again."""

    gates: Float[Tensor, "T *P B G"]
    inner: Float[Tensor, "T *P B H"]
    """Each m."""
    start: Float[Tensor, "*P B H"]
    states: Float[Tensor, "T *P B H"]
    da: Steps
    dm: Steps
    delta: Float[Tensor, "*P B H"]
    s: Float[Tensor, "*P B H"]
    reset_before: bool
    z_keeps: bool


def steps(buffers: Buffers) -> tuple[Step, Step]:
    """Blend and reset, by whichever way there is."""
    return (loops if has_loops(buffers.gates) else operations)(buffers)


def operations(buffers: Buffers) -> tuple[Step, Step]:
    """Operation by operation."""
    gates, delta, s, keeps = buffers.gates, buffers.delta, buffers.s, buffers.z_keeps
    states, u = before(buffers.start, buffers.states), torch.empty_like(delta)

    def blend(t: int) -> None:
        _, z, n = gates[t].chunk(3, dim=-1)
        _, dz, dn = buffers.da.at[t].chunk(3, dim=-1)
        torch.sub(states[t], n, out=u).mul_(delta)
        through_sigmoid(u if keeps else u.neg_(), z, dz)
        torch.mul(delta, z, out=u)
        delta.sub_(u)
        through_tanh(delta if keeps else u, n, dn)
        if keeps:
            delta.copy_(u)

    def reset(t: int) -> None:
        r, _, _ = gates[t].chunk(3, dim=-1)
        dr, _, dn = buffers.da.at[t].chunk(3, dim=-1)
        if buffers.reset_before:
            delta.addcmul_(s, r)
            through_sigmoid(torch.mul(s, states[t], out=u), r, dr)
        else:
            through_sigmoid(torch.mul(dn, buffers.inner[t], out=u), r, dr)
            torch.mul(dn, r, out=buffers.dm.at[t])

    return blend, reset


def loops(buffers: Buffers) -> tuple[Step, Step]:
    """The same, compiled."""
    from lmzoo.functional.kernels import gru as kernels

    gates, inner, states = (
        each(one.flatten(1, -2)) for one in (buffers.gates, buffers.inner, buffers.states)
    )
    da, dm = (each(one.every.flatten(1, -2)) * one.repeats for one in (buffers.da, buffers.dm))
    of_step = buffers.start, buffers.delta, buffers.s
    start, delta, s = arrays(*(one.flatten(0, -2) for one in of_step))
    h, keeps = [start, *states[:-1]], buffers.z_keeps

    def blend(t: int) -> None:
        kernels.blend(gates[t], h[t], keeps, delta, da[t])

    def reset(t: int) -> None:
        if buffers.reset_before:
            kernels.reset_before(gates[t], h[t], s, delta, da[t])
        else:
            kernels.reset_after(gates[t], inner[t], da[t], dm[t])

    return blend, reset
