r"""The optimisers that recipes name: groups of parameters with their rates, and the updates.

    matrices   weights of linear maps, in layers and in cells
    tables     embeddings and output tables
    others     vectors, biases, norms, taps of convolutions, and what does not decay

Each has a share of `recipe.lr`: `rate_matrices`, `rate_tables`, `rate_others`. With
`parametrisation=mup` a model of width E is compared with the same model at E₀ = `base_width`: its
updates change activations by as much, so that tuned rates carry over.

    tables      drawn N(0, 1 / E₀), not N(0, 1 / E); logits are multiplied by E₀ / E
    matrices    n inputs, n₀ at E₀: the rate of Adam times n₀ / n; draws U(±1/√n) as they are
                m outputs: the rate of Muon times √(m n₀ / (m₀ n)) √(max(m₀, n₀) / max(m, n))
    W_q         draws and rate times √(d₀ / d), which makes the logits q · k / d

At E = E₀ nothing changes. Differences from the code of the paper (microsoft/mup):

    there                                    here
    readouts start at 0 on request           as drawn
    base shapes from two models in a file    the model's config at `base_width`

`muon` updates matrices G (m, n), and AdamW the rest:

    B ← B + (1 − μ) (G − B)                       μ = 0.95
    U = O( G + μ (B − G) )                        O(X) = U Vᵀ of X = U S Vᵀ, approximately
    W ← (1 − ηλ) W − 0.2 η √max(m, n) U

O is five Newton-Schulz steps X ← a X + (b X Xᵀ + c (X Xᵀ)²) X from X / ‖X‖. The factor gives U the
root mean square of an update of AdamW, so that both share one rate. Axes before the last two are
matrices of their own; gates that are stored as rows of one matrix are one matrix. Differences from
`torch.optim.Muon`:

    there                                     here
    O in bfloat16                             in the dtype of the weights: a pack equals runs alone
    `adjust_lr_fn`: √max(1, m / n) or ours    √max(m, n) · 0.2
    two axes only                             more

torch wraps most optimiser methods in a function that hides them from `torch.compile`. The first
call of such a wrapper imports the compiler, which costs every training process 0.9 s and 70 MB.
`inspect.unwrap` returns the method below all wrappers.

Yang et al. 2022 (arXiv:2203.03466), table 8; Bernstein 2025
(https://jeremybernste.in/writing/deriving-muon), for the spectral norm of Muon's update. Jordan
2024 (https://kellerjordan.github.io/posts/muon/); Liu et al. 2025 (arXiv:2502.16982), for the
factor.
"""

import dataclasses
import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.blocks.feature_model import FeatureModel
from lmzoo.cells.base import Weights
from lmzoo.contract import LanguageModel, Task
from lmzoo.emissions.vector import VectorEmission
from lmzoo.functional.parameters import decays
from lmzoo.kernels.guest import forked_generators
from lmzoo.models.recurrent_lm import RecurrentLM
from lmzoo.train.recipe import DecayOn, Optimiser, Parametrisation, Recipe

MATRICES, TABLES, OTHERS = "matrices", "tables", "others"
TAPS = ("conv", "canon")
"""Begins of the names of the taps of depthwise convolutions."""


def roles(model: nn.Module) -> dict[str, str]:
    """Return the role of each parameter by name."""
    found = {}
    for name, parameter in model.named_parameters():
        path, _, leaf = name.rpartition(".")
        owner = model.get_submodule(path)
        linear = isinstance(owner, nn.Linear | Weights) and not leaf.startswith(TAPS)
        found[name] = MATRICES if linear and decays(parameter) else OTHERS
        if isinstance(owner, nn.Embedding):
            found[name] = TABLES
    return found


def parameter_groups(recipe: Recipe, model: nn.Module) -> list[dict[str, Any]]:
    """Return the parameter groups of torch's optimiser; those that decay are first.

    Of a group, `scale` is the share of the rate, and `muon` says that Muon updates it; both are
    left out where they are 1 and False.
    """
    own, factors = roles(model), rate_factors(recipe, model)
    groups: dict[tuple[bool, bool, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        muon = recipe.optimiser is Optimiser.MUON and own[name] == MATRICES
        fixed = recipe.weight_decay_on is DecayOn.MATRICES and not decays(parameter)
        groups.setdefault((fixed, not muon, factors[name]), []).append(parameter)
    return [
        {
            "params": parameters,
            **({"weight_decay": 0.0} if fixed else {}),
            **({"scale": scale} if scale != 1 else {}),
            **({} if adam else {"muon": True}),
        }
        for (fixed, adam, scale), parameters in sorted(groups.items(), key=lambda item: item[0][:2])
    ]


def set_rate(optimiser: torch.optim.Optimizer, rate: Any) -> None:
    """Give each group its share of a rate, a number or a tensor."""
    for group in optimiser.param_groups:
        group["lr"] = rate * group["scale"] if "scale" in group else rate


def rate_factors(recipe: Recipe, model: nn.Module) -> dict[str, float]:
    """Return the share of the rate of each parameter by name."""
    own = roles(model)
    shares = {
        MATRICES: recipe.rate_matrices, TABLES: recipe.rate_tables, OTHERS: recipe.rate_others,
    }  # fmt: skip
    factors = {name: shares[role] for name, role in own.items()}
    if recipe.parametrisation is Parametrisation.STANDARD or not own:
        return factors
    assert isinstance(model, LanguageModel)
    base = _base_shapes(recipe, model)
    for name, parameter in model.named_parameters():
        if own[name] != MATRICES:
            continue
        (m, n), (m0, n0) = parameter.shape[-2:], base[name][-2:]
        factor = n0 / n
        if recipe.optimiser is Optimiser.MUON:
            factor = math.sqrt(m * n0 / (m0 * n) * max(m0, n0) / max(m, n))
        factors[name] *= factor * (math.sqrt(m0 / m) if _is_query(name) else 1)
    return factors


def build_model(config: Any, task: Task, seed: int, recipe: Recipe) -> LanguageModel:
    """Build a model and draw its weights as the recipe says.

    A `UserError` says that the parametrisation knows no width of the model.
    """
    model = zoo.build(config, task, seed, recipe.init)
    counted = next(model.parameters(), None) is None
    if recipe.parametrisation is Parametrisation.STANDARD or counted:
        return model
    known = isinstance(model, FeatureModel | RecurrentLM)
    if not known or not isinstance(model.emission, VectorEmission):
        raise UserError(
            f"recipe.parametrisation=mup: {model.name} is no recurrent, attention or convolutional "
            "model with emission=vector; drop it"
        )
    if getattr(model.config, "spread", None) is not None:
        raise UserError(
            f"recipe.parametrisation=mup: model.spread={model.config.spread} sets the draws; "
            "drop one of the two"
        )
    base = _base_shapes(recipe, model)
    model.output_scale = recipe.base_width / model.config.width
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if _is_query(name):
                parameter.mul_(math.sqrt(base[name][-2] / parameter.shape[-2]))
        std = getattr(model.config, "embedding_std", None)
        for table in (m for m in model.modules() if isinstance(m, nn.Embedding) and std is None):
            table.weight.mul_(math.sqrt(model.config.width / recipe.base_width))
    return model


def _is_query(name: str) -> bool:
    return name.endswith("query.weight")


def _base_shapes(recipe: Recipe, model: LanguageModel) -> Mapping[str, torch.Size]:
    config = dataclasses.replace(model.config, width=recipe.base_width)
    with forked_generators():
        base = type(model)(config, model.task)
    return {name: parameter.shape for name, parameter in base.named_parameters()}


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
