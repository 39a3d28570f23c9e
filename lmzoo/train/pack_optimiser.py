r"""The steps of an optimiser for all pack members at once.

    g ← min(1, c_p / (‖g‖ + 1e-6)) g                  clipping, per member
    m ← m + (1 − β₁)(g − m)          v ← β₂ v + (1 − β₂) g²                    Adam
    x ← x − η_p / (1 − β₁^n) · m / (√(v / (1 − β₂^n)) + ε)
    v ← α v + (1 − α) g²             x ← x − η_p g / (√v + ε)                  RMSprop
    x ← x − η_p g                                                              SGD

n is the number of steps of the member. Weight decay λ adds λx to g; decoupled weight decay (AdamW)
first multiplies x by 1 − ηλ. λ acts on some columns only
(`functional/parameters.py`). Columns may have shares of η, and be matrices that Muon updates
(`optimisers.py`). Without these, on a CPU the step of Adam is one kernel, on a GPU two launches,
elsewhere about 20 operations on (P, N) matrices, whatever P is. torch's fused optimiser takes one
learning rate per call, so it would need one call per member.

Kingma and Ba 2015 (arXiv:1412.6980); Loshchilov and Hutter 2019 (arXiv:1711.05101).
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lmzoo.kernels.dispatch import as_arrays, has_gpu_kernels, has_kernels, run_kernel
from lmzoo.train.optimisers import ADAM_EPS, ALPHA, EPS, MOMENTUM, muon_direction
from lmzoo.train.recipe import Optimiser, Recipe

KEYS = {Optimiser.RMSPROP: ("square_avg",), Optimiser.SGD: ()}
"""Names of the state of optimisers other than Adam."""


Rates = Sequence[float] | Float[Tensor, "P"]


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


class StackedOptimiser:
    """The optimiser of all rows of a (P, N) matrix; its state is 0 at first."""

    def __init__(
        self,
        recipe: Recipe,
        values: Float[Tensor, "P N"],
        decays: Decays,
        scales: Float[Tensor, "N"] | None = None,
        matrices: Callable[[Float[Tensor, "P N"]], list[Float[Tensor, "P m n"]]] | None = None,
    ) -> None:
        """`scales` are shares of the rate, `matrices` returns views of what Muon updates."""
        self._kind, self._betas = recipe.optimiser, (0.9, recipe.beta2)
        self._decoupled = recipe.optimiser in (Optimiser.ADAMW, Optimiser.MUON)
        self._values, self._decays = values, decays
        self._scales, self._matrices, self._new = scales, matrices, None
        if matrices is not None:
            self._new = torch.full_like(values, 1 - self._betas[0])
            for own in matrices(self._new):
                own.fill_(1 - MOMENTUM)
        keys = KEYS.get(self._kind, ("exp_avg", "exp_avg_sq"))
        self.state = {key: torch.zeros_like(values) for key in keys}
        """The state of all rows, by torch's keys: (P, N), and (P,) steps."""
        if keys:
            steps = torch.zeros(len(values), dtype=torch.float32, device=values.device)
            self.state = {"step": steps, **self.state}

    @torch.no_grad()
    def step(
        self, rates: Rates, clips: Float[Tensor, "P"], gradients: Float[Tensor, "P N"]
    ) -> None:
        """Clip the gradients and update every member; a clip of infinity disables clipping."""
        values = self._values
        plain = self._kind not in KEYS and self._scales is None and self._matrices is None
        if has_kernels(values) and plain:
            self._step_by_kernel(rates, clips, gradients)
            return
        rates = torch.as_tensor(rates, dtype=values.dtype, device=values.device)
        if has_gpu_kernels(values) and plain:
            self._step_by_gpu_kernel(rates, clips.to(values), gradients)
            return
        norms = torch.linalg.vector_norm(gradients, dim=1)
        g = gradients * (clips.to(values) / (norms + 1e-6)).clamp(max=1.0)[:, None]
        if self._kind in KEYS:
            self._step_without_moments(rates, g)
        else:
            self._step_by_operations(rates, g)

    def _step_without_moments(self, rates: Float[Tensor, "P"], g: Float[Tensor, "P N"]) -> None:
        g = torch.addcmul(g, self._values, self._decays.each())
        change = rates[:, None] * g
        if self._kind is Optimiser.RMSPROP:
            self.state["step"] += 1
            v = self.state["square_avg"].mul_(ALPHA).addcmul_(g, g, value=1 - ALPHA)
            change /= v.sqrt().add_(EPS)
        self._values -= change

    def _step_by_kernel(
        self, rates: Rates, clips: Float[Tensor, "P"], gradients: Float[Tensor, "P N"]
    ) -> None:
        from lmzoo.kernels.cpu.adam import adam_step

        numbers = torch.as_tensor(rates, dtype=torch.float64), clips, self._decays.rows
        settings = as_arrays(*(n.to(torch.float64) for n in numbers), self._decays.columns)
        rows = as_arrays(*self._rows(gradients))
        run_kernel(adam_step, *rows, *settings, self._decoupled, *self._betas, ADAM_EPS)

    def _step_by_gpu_kernel(
        self, rates: Float[Tensor, "P"], clips: Float[Tensor, "P"], gradients: Float[Tensor, "P N"]
    ) -> None:
        from lmzoo.kernels.gpu.adam import adam_step

        adam_step(
            *self._rows(gradients), rates, clips, self._decays.rows, self._decays.columns,
            betas=self._betas, eps=ADAM_EPS, decoupled=self._decoupled,
        )  # fmt: skip

    def _rows(self, g: Float[Tensor, "P N"]) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return x, g, m, v and n."""
        steps, m, v = self.state.values()
        return self._values, g, m, v, steps

    def _step_by_operations(self, rates: Float[Tensor, "P"], g: Float[Tensor, "P N"]) -> None:
        x, _, m, v, counts = self._rows(g)
        beta1, beta2 = self._betas
        counts += 1
        steps = counts.double()
        scales = 1 if self._scales is None else self._scales
        if self._decoupled:
            x *= 1 - self._decays.each(rates) * scales
        else:
            g = torch.addcmul(g, x, self._decays.each())
        m.lerp_(g, 1 - beta1 if self._new is None else self._new)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        scale = (1 - beta2**steps).rsqrt().to(v.dtype)
        rate = (rates / (1 - beta1**steps)).to(m.dtype)
        change = rate[:, None] * m / (v.sqrt() * scale[:, None] + ADAM_EPS)
        if self._matrices is not None:
            for own in self._matrices(v):
                own.zero_()
            for own, *sources in zip(*map(self._matrices, (change, g, m)), strict=True):
                own.copy_(rates.view(-1, *[1] * (own.dim() - 1)) * muon_direction(*sources))
        x -= change * scales
