r"""Adam and AdamW for all pack members in one kernel.

    g ← min(1, c_p / (‖g‖ + 1e-6)) g                  clipping, per member
    m ← m + (1 − β₁)(g − m)          v ← β₂ v + (1 − β₂) g²
    x ← x − η_p / (1 − β₁^n) · m / (√(v / (1 − β₂^n)) + ε)

n is the number of steps of the member. Weight decay λ adds λx to g; decoupled weight decay (AdamW)
first multiplies x by 1 − ηλ. torch's fused optimiser takes one learning rate per call, so it
would need one call per member. Here torch's optimiser only owns the state.

Kingma and Ba 2015 (arXiv:1412.6980); Loshchilov and Hutter 2019 (arXiv:1711.05101).
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.dispatch import as_arrays, has_kernels, run_kernel


class StackedAdam:
    """Performs the steps of a torch Adam that has one parameter group per pack member."""

    def __init__(self, optimiser: torch.optim.Optimizer, values: Float[Tensor, "P N"]) -> None:
        """Set the optimiser's state to zero; its group p has one parameter, `values[p]`."""
        self._groups, self._values = optimiser.param_groups, values
        self._steps = torch.zeros(len(values), dtype=torch.float32)
        self._m, self._v = torch.zeros_like(values), torch.zeros_like(values)
        for p, group in enumerate(self._groups):
            state = {"step": self._steps[p], "exp_avg": self._m[p], "exp_avg_sq": self._v[p]}
            optimiser.state[group["params"][0]].update(state)

    @staticmethod
    def supports(optimiser: torch.optim.Optimizer, values: Float[Tensor, "P N"]) -> bool:
        """Whether the optimiser is Adam or AdamW and kernels accept the values."""
        return isinstance(optimiser, torch.optim.Adam) and has_kernels(values)

    def step(
        self,
        rates: Sequence[float] | Float[Tensor, "P"],
        clips: Float[Tensor, "P"],
        gradients: Float[Tensor, "P N"],
    ) -> None:
        """Clip the gradients and update every member; a clip of infinity disables clipping."""
        from lmzoo.kernels.cpu.adam import adam_step

        first, dtype = self._groups[0], torch.float64
        decays = torch.tensor([group["weight_decay"] for group in self._groups], dtype=dtype)
        settings = as_arrays(torch.as_tensor(rates, dtype=dtype), clips.to(dtype), decays)
        rows = as_arrays(self._values, gradients, self._m, self._v, self._steps)
        decoupled = first["decoupled_weight_decay"]
        run_kernel(adam_step, *rows, *settings, decoupled, *first["betas"], first["eps"])
