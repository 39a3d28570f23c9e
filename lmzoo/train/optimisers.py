r"""The optimisers that recipes name, without the import of torch's compiler.

torch wraps most optimiser methods in a function that hides them from `torch.compile`. The first
call of such a wrapper imports the compiler, which costs every training process 0.9 s and 70 MB.
`inspect.unwrap` returns the method below all wrappers.

`muon` updates matrices G (m, n), and AdamW the rest (`groups.py`):

    B ← B + (1 − μ) (G − B)                       μ = 0.95
    U = O( G + μ (B − G) )                        O(X) = U Vᵀ of X = U S Vᵀ, approximately
    W ← (1 − ηλ) W − 0.2 η √max(m, n) U

O is five Newton-Schulz steps X ← a X + (b X Xᵀ + c (X Xᵀ)²) X from X / ‖X‖. The factor gives U the
root mean square of an update of AdamW, so that both share one rate. Axes before the last two are
matrices of their own; gates that are stored as rows of one matrix are one matrix.

Differences from `torch.optim.Muon`:

    there                                     here
    O in bfloat16                             in the dtype of the weights: a pack equals runs alone
    `adjust_lr_fn`: √max(1, m / n) or ours    √max(m, n) · 0.2
    two axes only                             more

Jordan 2024 (https://kellerjordan.github.io/posts/muon/); Liu et al. 2025 (arXiv:2502.16982), for
the factor.
"""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.train.groups import parameter_groups
from lmzoo.train.recipe import Optimiser, Recipe

MOMENTUM = 0.95
ALPHA, EPS = 0.99, 0.01
"""The decay of RMSprop's squares, and what is added to their root."""
ADAM_EPS = 1e-8
NEWTON_SCHULZ = 3.4445, -4.7750, 2.0315
"""a, b and c."""


def make_optimiser(
    recipe: Recipe, parameters: nn.Module | Sequence[dict[str, Any]]
) -> torch.optim.Optimizer:
    """Return the recipe's optimiser over the parameters of a model, or over given groups."""
    groups: Any = parameters
    if isinstance(parameters, nn.Module):
        groups = parameter_groups(recipe, parameters)
    lr, decay, betas = recipe.lr, recipe.weight_decay, (0.9, recipe.beta2)
    if recipe.optimiser is Optimiser.RMSPROP:
        return RMSprop(groups, lr=lr, alpha=ALPHA, eps=EPS, weight_decay=decay)
    if recipe.optimiser is Optimiser.SGD:
        return SGD(groups, lr=lr, weight_decay=decay)
    kinds = {Optimiser.ADAM: Adam, Optimiser.ADAMW: AdamW, Optimiser.MUON: Muon}
    return kinds[recipe.optimiser](groups, lr=lr, betas=betas, weight_decay=decay, fused=True)


def orthogonalise(x: Float[Tensor, "*N m n"]) -> Float[Tensor, "*N m n"]:
    """Return O(x) of each matrix; 0 of 0."""
    tall = x.shape[-2] > x.shape[-1]
    y = x.mT if tall else x
    y = y / torch.linalg.matrix_norm(y, keepdim=True).clamp(min=1e-7)
    a, b, c = NEWTON_SCHULZ
    for _ in range(5):
        gram = y @ y.mT
        y = a * y + (b * gram + c * gram @ gram) @ y
    return y.mT if tall else y


def muon_direction(g: Float[Tensor, "*N m n"], b: Float[Tensor, "*N m n"]) -> Tensor:
    """Return 0.2 √max(m, n) U from the gradient and its mean after this step."""
    return 0.2 * max(g.shape[-2:]) ** 0.5 * orthogonalise(g.lerp(b, MOMENTUM))


def _without_wrappers(cls: type[torch.optim.Optimizer]) -> Any:
    """Return a subclass with the unwrapped methods; its steps are not differentiable."""
    names = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")
    methods: dict[str, Any] = {name: inspect.unwrap(getattr(cls, name)) for name in names}
    methods["step"] = torch.no_grad()(inspect.unwrap(cls.step))
    return type(cls.__name__, (cls,), methods)


Adam = _without_wrappers(torch.optim.Adam)
AdamW = _without_wrappers(torch.optim.AdamW)
RMSprop = _without_wrappers(torch.optim.RMSprop)
SGD = _without_wrappers(torch.optim.SGD)


class Muon(AdamW):
    """Muon for the groups with `muon`, AdamW for the others.

    B is `exp_avg`; `exp_avg_sq` of a matrix stays 0, so that all parameters have the same state.
    """

    @torch.no_grad()
    def step(self) -> None:
        """Update all parameters that have a gradient."""
        matrices = [
            (group, p, p.grad)
            for group in self.param_groups
            for p in (group["params"] if "muon" in group else ())
            if p.grad is not None
        ]
        for _, p, _ in matrices:
            p.grad = None  # AdamW leaves it alone
        super().step()
        for group, p, gradient in matrices:
            p.grad = gradient
            state = self.state[p]
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32, device=p.device)
                state |= {key: torch.zeros_like(p) for key in ("exp_avg", "exp_avg_sq")}
            state["step"] += 1
            state["exp_avg"].lerp_(gradient, 1 - MOMENTUM)
            p.mul_(1 - group["lr"] * group["weight_decay"])
            p.sub_(group["lr"] * muon_direction(gradient, state["exp_avg"]))
