r"""Adam for the rows of all members in one pass.

    g ← min(1, c_p / (‖g‖ + 1e-6)) g                  clipping, each row's own
    m ← m + (1 − β₁)(g − m)          v ← β₂ v + (1 − β₂) g²
    x ← x − η_p / (1 − β₁^n) · m / (√(v / (1 − β₂^n)) + ε)

n counts the row's steps. Weight decay λ adds λx to g; decoupled (AdamW), x is first multiplied by
1 − ηλ. torch's own optimiser takes a learning rate a call, that is, a call for each member; here
it keeps the state, and lends it.

Kingma and Ba 2015 (arXiv:1412.6980); Loshchilov and Hutter 2019 (arXiv:1711.05101).
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.kernels.dispatch import as_arrays, has_kernels, run_kernel


class StackedAdam:
    """Moves what an optimiser with one group and one row for each member would."""

    def __init__(self, optimiser: torch.optim.Optimizer, values: Float[Tensor, "P N"]) -> None:
        """The optimiser is fresh; the state that it gets is rows of what is made here."""
        self._groups, self._values = optimiser.param_groups, values
        self._steps = torch.zeros(len(values), dtype=torch.float32)
        self._m, self._v = torch.zeros_like(values), torch.zeros_like(values)
        for p, group in enumerate(self._groups):
            state = {"step": self._steps[p], "exp_avg": self._m[p], "exp_avg_sq": self._v[p]}
            optimiser.state[group["params"][0]].update(state)

    @staticmethod
    def moves(optimiser: torch.optim.Optimizer, values: Float[Tensor, "P N"]) -> bool:
        """Whether this optimiser is Adam or AdamW, over rows that compiled loops take."""
        return isinstance(optimiser, torch.optim.Adam) and has_kernels(values)

    def step(
        self,
        rates: Sequence[float] | Float[Tensor, "P"],
        clips: Float[Tensor, "P"],
        gradients: Float[Tensor, "P N"],
    ) -> None:
        """Clip and move every row; a clip of infinity does not."""
        from lmzoo.kernels.cpu.adam import move

        one, numbers = self._groups[0], torch.float64
        decays = torch.tensor([group["weight_decay"] for group in self._groups], dtype=numbers)
        each = as_arrays(torch.as_tensor(rates, dtype=numbers), clips.to(numbers), decays)
        rows = as_arrays(self._values, gradients, self._m, self._v, self._steps)
        run_kernel(move, *rows, *each, one["decoupled_weight_decay"], *one["betas"], one["eps"])
