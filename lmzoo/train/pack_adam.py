r"""Adam and AdamW for all pack members at once.

    g ← min(1, c_p / (‖g‖ + 1e-6)) g                  clipping, per member
    m ← m + (1 − β₁)(g − m)          v ← β₂ v + (1 − β₂) g²
    x ← x − η_p / (1 − β₁^n) · m / (√(v / (1 − β₂^n)) + ε)

n is the number of steps of the member. Weight decay λ adds λx to g; decoupled weight decay (AdamW)
first multiplies x by 1 − ηλ. λ acts on some columns only (`functional/decay.py`). Columns may have
shares of η, and be matrices that Muon updates (`optimisers.py`). Without these, on a CPU the
step is one kernel, on a GPU two launches, elsewhere about 20 operations on (P, N) matrices,
whatever P is. torch's fused optimiser takes one learning rate per call, so it would need one call
per member. Here torch's optimiser only owns the state.

Kingma and Ba 2015 (arXiv:1412.6980); Loshchilov and Hutter 2019 (arXiv:1711.05101).
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lmzoo.kernels.dispatch import as_arrays, has_gpu_kernels, has_kernels, run_kernel
from lmzoo.train.optimisers import MOMENTUM, muon_direction


class Decays:
    """The weight decay of each row, and the columns on which it acts, the same for all rows."""

    def __init__(self, values: Float[Tensor, "P N"], columns: Bool[Tensor, "N"]) -> None:
        self.rows, self.columns = values.new_zeros(len(values)), columns.to(values)
        self.any = False

    def set(self, decays: Sequence[float]) -> None:
        """Set the weight decay of every row."""
        self.any = any(decays)
        self.rows.copy_(self.rows.new_tensor(decays))

    def each(self, rates: Float[Tensor, "P"] | float = 1.0) -> Float[Tensor, "P N"]:
        """Return the decay of every number, multiplied by rates."""
        return (rates * self.rows)[:, None] * self.columns


class StackedAdam:
    """Performs the steps of a torch Adam that has one parameter group per pack member."""

    def __init__(
        self,
        optimiser: torch.optim.Optimizer,
        values: Float[Tensor, "P N"],
        decays: Decays,
        scales: Float[Tensor, "N"] | None = None,
        matrices: Callable[[Float[Tensor, "P N"]], list[Float[Tensor, "P m n"]]] | None = None,
    ) -> None:
        """Set the optimiser's state to zero; its group p has one parameter, `values[p]`.

        `scales` are shares of the rate, `matrices` returns views of what Muon updates.
        """
        self._scales, self._matrices, self._new = scales, matrices, None
        if matrices is not None:
            self._new = torch.full_like(values, 1 - optimiser.param_groups[0]["betas"][0])
            for own in matrices(self._new):
                own.fill_(1 - MOMENTUM)
        groups, self._values, self._decays = optimiser.param_groups, values, decays
        self._first = groups[0]
        self._steps = torch.zeros(len(values), dtype=torch.float32, device=values.device)
        self._m, self._v = torch.zeros_like(values), torch.zeros_like(values)
        self.state = {"step": self._steps, "exp_avg": self._m, "exp_avg_sq": self._v}
        """The state of all rows, by torch's keys."""
        for p, group in enumerate(groups):
            state = {key: numbers[p] for key, numbers in self.state.items()}
            optimiser.state[group["params"][0]].update(state)

    @torch.no_grad()
    def step(
        self,
        rates: Sequence[float] | Float[Tensor, "P"],
        clips: Float[Tensor, "P"],
        gradients: Float[Tensor, "P N"],
    ) -> None:
        """Clip the gradients and update every member; a clip of infinity disables clipping."""
        values = self._values
        grouped = self._scales is not None or self._matrices is not None
        if has_kernels(values) and not grouped:
            self._step_by_kernel(rates, clips, gradients)
            return
        rates = torch.as_tensor(rates, dtype=values.dtype, device=values.device)
        if has_gpu_kernels(values) and not grouped:
            self._step_by_gpu_kernel(rates, clips.to(values), gradients)
        else:
            self._step_by_operations(rates, clips.to(values), gradients)

    def _step_by_kernel(
        self,
        rates: Sequence[float] | Float[Tensor, "P"],
        clips: Float[Tensor, "P"],
        gradients: Float[Tensor, "P N"],
    ) -> None:
        from lmzoo.kernels.cpu.adam import adam_step

        first, dtype = self._first, torch.float64
        settings = as_arrays(
            torch.as_tensor(rates, dtype=dtype), clips.to(dtype), self._decays.rows.to(dtype),
            self._decays.columns,
        )  # fmt: skip
        rows = as_arrays(self._values, gradients, self._m, self._v, self._steps)
        decoupled = first["decoupled_weight_decay"]
        run_kernel(adam_step, *rows, *settings, decoupled, *first["betas"], first["eps"])

    def _step_by_gpu_kernel(
        self, rates: Float[Tensor, "P"], clips: Float[Tensor, "P"], gradients: Float[Tensor, "P N"]
    ) -> None:
        from lmzoo.kernels.gpu.adam import adam_step

        first, rows = self._first, (self._values, gradients, self._m, self._v, self._steps)
        adam_step(
            *rows, rates, clips, self._decays.rows, self._decays.columns, betas=first["betas"],
            eps=first["eps"], decoupled=first["decoupled_weight_decay"],
        )  # fmt: skip

    def _step_by_operations(
        self, rates: Float[Tensor, "P"], clips: Float[Tensor, "P"], gradients: Float[Tensor, "P N"]
    ) -> None:
        first, x, m, v = self._first, self._values, self._m, self._v
        beta1, beta2 = first["betas"]
        norms = torch.linalg.vector_norm(gradients, dim=1)
        g = gradients * (clips / (norms + 1e-6)).clamp(max=1.0)[:, None]
        self._steps += 1
        steps = self._steps.double()
        scales = 1 if self._scales is None else self._scales
        if first["decoupled_weight_decay"]:
            x *= 1 - self._decays.each(rates) * scales
        else:
            g = torch.addcmul(g, x, self._decays.each())
        m.lerp_(g, 1 - beta1 if self._new is None else self._new)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        scale = (1 - beta2**steps).rsqrt().to(v.dtype)
        rate = (rates / (1 - beta1**steps)).to(m.dtype)
        change = rate[:, None] * m / (v.sqrt() * scale[:, None] + first["eps"])
        if self._matrices is not None:
            for own in self._matrices(v):
                own.zero_()
            for own, *sources in zip(*map(self._matrices, (change, g, m)), strict=True):
                own.copy_(rates.view(-1, *[1] * (own.dim() - 1)) * muon_direction(*sources))
        x -= change * scales
