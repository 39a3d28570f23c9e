r"""The sweeps of the minimal gated recurrent unit that carries its last state.

    q = read(h)    f = σ(q W_hf), ½ without W_hf    g = act(x W_xh)
    h' = κ h + f ⊙ (ω g − λ h)          κ = carry, ω = write, λ = carry − keep (each 0 or 1)

With δ = ∂L/∂h':

    ∂L/∂g = ω δ ⊙ f           δf = δ ⊙ (ω g − λ h) ⊙ f ⊙ (1 − f)
    ∂L/∂h = δ ⊙ (κ − λ f) + read'(h) ⊙ δf W_hfᵀ

    read:  h  |  h − ½  |  atanh(u), u = clip(2h − 1, ±limit), read' = 2 / (1 − u²) within it

Derived here; the cell's naive loop is the reference (`cells/mgru.py`).
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lmzoo.functional.scan.products import (
    accumulate,
    before,
    input_gradient,
    product,
    project,
    state_gradient,
    transposed,
    weight_gradient,
)
from lmzoo.functional.scan.slopes import through_sigmoid, through_tanh
from lmzoo.functional.scan.sweep import Kept, Recurrence, Weights

LIMIT = 0.9999
"""Where 2h − 1 is clipped before its atanh."""

Read = Literal["raw", "centred", "logit"]


@dataclass(frozen=True)
class MGRUScan(Recurrence):
    """Weights hf, xh; None where cut."""

    carry: bool = True
    write: bool = True
    keep: bool = False
    sigmoid: bool = False
    """Whether act is σ; tanh otherwise."""
    read: Read = "raw"

    def columns(self, width: int, weights: Weights) -> list[int]:
        reads = weights[0] is not None and self.read != "raw"
        return [width] * (4 if reads else 3)

    def forward(self, x: Tensor, start: Tensor, weights: Weights, kept: Kept) -> None:
        hf, xh = weights
        states, f, g, *reads = kept
        project(x, xh, None, g)
        _ = g.sigmoid_() if self.sigmoid else g.tanh_()
        if hf is None:
            f.fill_(0.5)
        h = start
        for f_t, g_t, q, next_h in zip(f, g, reads[0] if reads else f, states, strict=True):
            if hf is not None:
                product(self._reads(h, q), hf, f_t).sigmoid_()
            h = self._blend(h, f_t, g_t, next_h)

    def reverse(
        self,
        upstream: Tensor,
        x: Tensor,
        start: Tensor,
        weights: Weights,
        kept: Kept,
        dx: Tensor,
    ) -> tuple[Tensor, Weights]:
        hf, xh = weights
        states, f, g, *reads = kept
        away = self.carry - self.keep  # λ
        df = None if hf is None else torch.empty_like(f)
        back_f = None if hf is None else transposed(hf)
        dg = torch.empty_like(g) if self.write else torch.zeros_like(g)
        delta, u = torch.zeros_like(start), torch.empty_like(start)
        starts = before(start, states)
        for t in reversed(range(len(f))):
            f_t, h = f[t], starts[t]
            delta.add_(upstream[t])
            if self.write:
                torch.mul(delta, f_t, out=dg[t])
            if df is not None:
                u = torch.mul(h, -away, out=u)
                through_sigmoid(
                    u.add_(g[t]).mul_(delta) if self.write else u.mul_(delta), f_t, df[t]
                )
            if self.carry:
                delta.addcmul_(delta, f_t, value=-away)
            elif self.keep:
                delta.mul_(f_t)
            else:
                delta.zero_()
            if df is not None and back_f is not None:
                if self.read == "logit":
                    delta.addcmul_(product(df[t], back_f, u), _logit_slope(h))
                else:
                    accumulate(delta, df[t], back_f)
        through = through_sigmoid if self.sigmoid else through_tanh
        through(dg, g, dg)
        dhf = None
        if df is not None:
            dhf = weight_gradient(reads[0], df) if reads else state_gradient(start, states, df)
        dxh = None if xh is None else weight_gradient(x, dg)
        input_gradient([(dg, xh)], dx)
        return delta, [dhf, dxh]

    def _reads(self, h: Tensor, out: Tensor) -> Tensor:
        if self.read == "centred":
            return torch.sub(h, 0.5, out=out)
        if self.read == "logit":
            return torch.mul(h, 2, out=out).sub_(1).clamp_(-LIMIT, LIMIT).atanh_()
        return h

    def _blend(self, h: Tensor, f: Tensor, g: Tensor, out: Tensor) -> Tensor:
        """κ h + f ⊙ (ω g − λ h)."""
        if self.carry and self.write and not self.keep:
            return torch.lerp(h, g, f, out=out)
        if self.carry and not self.keep:
            return torch.addcmul(h, f, h, value=-1, out=out)
        if self.carry:
            return torch.addcmul(h, f, g, out=out) if self.write else out.copy_(h)
        if self.keep:
            return (torch.add(h, g, out=out) if self.write else out.copy_(h)).mul_(f)
        return torch.mul(f, g, out=out)


def _logit_slope(h: Tensor) -> Tensor:
    """The derivative of atanh(clip(2h − 1)), zero outside the clip."""
    u = 2 * h - 1
    inside = u.clamp(-LIMIT, LIMIT)  # u² = 1 would make 0 · ∞ of the slope
    return 2 / (1 - inside * inside) * (u == inside)
