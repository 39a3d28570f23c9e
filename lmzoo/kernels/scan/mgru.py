r"""The sweeps of the minimal gated recurrent unit (MGRU) that carries its last state.

    q = read(h)    f = σ(q W_hf), ½ without W_hf    g = act(x W_xh)
    h' = κ h + f ⊙ (ω g − λ h)          κ = carry, ω = write (0 or 1), λ = carry − keep

With δ = ∂L/∂h', and δf, δg the gradients before σ and act:

    δg = ω δ ⊙ f ⊙ act'(g)    δf = δ ⊙ (ω g − λ h) ⊙ f ⊙ (1 − f)
    ∂L/∂h = δ ⊙ (κ − λ f) + read'(h) ⊙ δf W_hfᵀ

    read:  h  |  h − ½  |  atanh(u), u = clip(2h − 1, ±limit), read' = 2 / (1 − u²) within it

Derived here; the reference is `naive_scan` of `cells/mgru.py`.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lmzoo.kernels.cpu.recurrence import CompiledRecurrence, Saved, Weights
from lmzoo.kernels.scan.gradients import Gradients, StepInputs
from lmzoo.kernels.scan.operations import (
    StepBuffer,
    add_product,
    product,
    sigmoid_backward,
    tanh_backward,
    transpose,
)
from lmzoo.kernels.scan.recurrence import Recurrence

LIMIT = 0.9999
"""2h − 1 is clipped to ±LIMIT before its atanh."""

Read = Literal["raw", "centred", "logit"]


@dataclass(frozen=True)
class MGRUScan(Recurrence):
    """Weights hf, xh; None where cut. Without `write` there is no xh."""

    carry: bool = True
    write: bool = True
    keep: bool = False
    sigmoid: bool = False
    """Whether act is σ; tanh otherwise."""
    read: Read = "raw"

    def compiled(self) -> CompiledRecurrence:
        from lmzoo.kernels.cpu.mgru import CompiledMGRU, Variant

        away, read = self.carry - self.keep, (self.read == "centred", self.read == "logit")
        return CompiledMGRU(Variant(self.carry, self.write, away, self.sigmoid, *read, LIMIT))

    def saved_widths(self, width: int, weights: Weights) -> list[int]:
        reads = weights[0] is not None and self.read != "raw"
        return [width] * (4 if reads else 3)

    def forward(self, x: StepInputs, start: Tensor, weights: Weights, saved: Saved) -> None:
        hf, xh = weights
        states, f, g, *reads = saved
        if hf is None:
            f.fill_(0.5)
        h, f_at, q_at = start, f.unbind(0), (reads[0] if reads else f).unbind(0)
        for g_t, f_t, q, next_h in zip(
            x.project(xh, None, g), f_at, q_at, states.unbind(0), strict=True
        ):
            _ = g_t.sigmoid_() if self.sigmoid else g_t.tanh_()
            if hf is not None:
                product(self._read(h, q), hf, f_t).sigmoid_()
            h = self._blend(h, f_t, g_t, next_h)

    def backward(
        self, upstream: Tensor, start: Tensor, weights: Weights, saved: Saved, gradients: Gradients
    ) -> Tensor:
        hf, xh = weights
        _, f, g, *reads = saved
        df, dg = (gradients.buffer(start.shape[-1]) for _ in range(2))
        if reads:
            gradients.request_weight(hf, StepBuffer(reads[0]), df)
        else:
            gradients.request_state_weight(hf, df)
        gradients.request_input_weight(xh, dg)
        delta, u = (start.new_zeros(start.shape) for _ in range(2))
        hf_t = None if hf is None else transpose(hf)
        act_backward = sigmoid_backward if self.sigmoid else tanh_backward
        away = self.carry - self.keep
        # unbind once: indexing at every step would cost as much as a small product.
        upstream_at, df_at, dg_at, f_at = upstream.unbind(0), df.steps, dg.steps, f.unbind(0)
        g_at, h_at = g.unbind(0), gradients.previous_states
        for t in reversed(range(len(f))):
            delta.add_(upstream_at[t])
            torch.mul(h_at[t], -away, out=u)
            if self.write:
                u.add_(g_at[t])
            sigmoid_backward(u.mul_(delta), f_at[t], df_at[t])
            if self.write:
                act_backward(torch.mul(delta, f_at[t], out=u), g_at[t], dg_at[t])
            if self.carry:
                delta.addcmul_(delta, f_at[t], value=-away)
            else:
                delta.mul_(f_at[t]).mul_(-away)
            if hf_t is not None and self.read == "logit":
                delta.addcmul_(df_at[t] @ hf_t, _logit_slope(h_at[t]))
            elif hf_t is not None:
                add_product(delta, df_at[t], hf_t)
        return delta

    def _read(self, h: Tensor, out: Tensor) -> Tensor:
        if self.read == "centred":
            return torch.sub(h, 0.5, out=out)
        if self.read == "logit":
            return torch.mul(h, 2, out=out).sub_(1).clamp_(-LIMIT, LIMIT).atanh_()
        return h

    def _blend(self, h: Tensor, f: Tensor, g: Tensor, out: Tensor) -> Tensor:
        """Write κ h + f ⊙ (ω g − λ h)."""
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
    """Return the derivative of atanh(clip(2h − 1)): zero outside the clip."""
    u = 2 * h - 1
    inside = u.clamp(-LIMIT, LIMIT)  # u² = 1 would give 0 · ∞
    return 2 / (1 - inside * inside) * (u == inside)
