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
from lmzoo.base.plain import FieldsDict
from lmzoo.blocks.feature_model import FeatureModel
from lmzoo.cells.base import Weights
from lmzoo.contract import LanguageModel, Task
from lmzoo.emissions.vector import VectorEmission
from lmzoo.functional.parameters import decays
from lmzoo.kernels.guest import forked_generators
from lmzoo.models.recurrent_lm import RecurrentLM
from lmzoo.train.recipe import DecayOn, Optimiser, Parametrisation, Recipe

Matrices = Float[Tensor, "*N m n"]

MATRICES = "matrices"
TABLES = "tables"
OTHERS = "others"
TAPS = ("conv", "canon")
"""Begins of the names of the taps of depthwise convolutions."""


def roles(model: nn.Module) -> dict[str, str]:
    """Return the role of each parameter by name."""
    found = {}
    for name, parameter in model.named_parameters():
        path, _, leaf = name.rpartition(".")
        owner = model.get_submodule(path)
        found[name] = OTHERS
        if isinstance(owner, nn.Embedding):
            found[name] = TABLES
        # Taps of a convolution are 2-D, too, but each row is a filter of its own channel.
        is_taps = leaf.startswith(TAPS)
        if isinstance(owner, nn.Linear | Weights) and decays(parameter) and not is_taps:
            found[name] = MATRICES
    return found


def parameter_groups(recipe: Recipe, model: nn.Module) -> list[FieldsDict]:
    """Return the parameter groups of torch's optimiser; those that decay are first.

    Of a group, `scale` is the share of the rate, and `muon` says that Muon updates it; both are
    left out where they are 1 and False.
    """
    own = roles(model)
    factors = rate_factors(recipe, model)
    only_matrices = recipe.weight_decay_on is DecayOn.MATRICES
    groups: dict[tuple[bool, bool, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        muon = False
        if recipe.optimiser is Optimiser.MUON:
            muon = own[name] == MATRICES
        fixed = False
        if only_matrices:
            fixed = not decays(parameter)
        # Muon's groups come first: False is before True.
        key = (fixed, not muon, factors[name])
        groups.setdefault(key, []).append(parameter)
    found = []
    # By the first two only: groups of other shares stay in the order of the model.
    for key in sorted(groups, key=lambda key: key[:2]):
        fixed, adam, scale = key
        group: FieldsDict = {"params": groups[key]}
        if fixed:
            group["weight_decay"] = 0.0
        if scale != 1:
            group["scale"] = scale
        if not adam:
            group["muon"] = True
        found.append(group)
    return found


def set_rate(optimiser: torch.optim.Optimizer, rate: Any):
    """Give each group its share of a rate, a number or a tensor."""
    for group in optimiser.param_groups:
        group["lr"] = rate
        if "scale" in group:
            group["lr"] = rate * group["scale"]


def rate_factors(recipe: Recipe, model: nn.Module) -> dict[str, float]:
    """Return the share of the rate of each parameter by name."""
    own = roles(model)
    shares = {
        MATRICES: recipe.rate_matrices,
        TABLES: recipe.rate_tables,
        OTHERS: recipe.rate_others,
    }
    factors = {name: shares[role] for name, role in own.items()}
    if recipe.parametrisation is Parametrisation.STANDARD or not own:
        return factors
    # The base is the model's config at another width: a module without config has none.
    assert isinstance(model, LanguageModel)
    base = _base_shapes(recipe, model)
    for name, parameter in model.named_parameters():
        if own[name] != MATRICES:
            continue
        m, n = parameter.shape[-2:]
        m0, n0 = base[name][-2:]
        factor = n0 / n
        if recipe.optimiser is Optimiser.MUON:
            shape = m * n0 / (m0 * n)
            # The last factor cancels √max(m, n) of `muon_direction`.
            factor = math.sqrt(shape * max(m0, n0) / max(m, n))
        if _is_query(name):
            # Attention divides scores by √d, where μP divides by d: the other root is in the
            # queries.
            factor *= math.sqrt(m0 / m)
        factors[name] *= factor
    return factors


def build_model(config: Any, task: Task, seed: int, recipe: Recipe) -> LanguageModel:
    """Build a model and draw its weights as the recipe says.

    A `UserError` says that the parametrisation knows no width of the model.
    """
    model = zoo.build(config, task, seed, recipe.init)
    # A model without parameters, fitted by counts, has nothing to scale.
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
                share = base[name][-2] / parameter.shape[-2]
                parameter.mul_(math.sqrt(share))
        # A deviation that the config sets stays; the default is 1/√E, and becomes 1/√E₀.
        if getattr(model.config, "embedding_std", None) is None:
            share = model.config.width / recipe.base_width
            for table in model.modules():
                if isinstance(table, nn.Embedding):
                    table.weight.mul_(math.sqrt(share))
    return model


def _is_query(name: str) -> bool:
    return name.endswith("query.weight")


def _base_shapes(recipe: Recipe, model: LanguageModel) -> Mapping[str, torch.Size]:
    config = dataclasses.replace(model.config, width=recipe.base_width)
    with forked_generators():
        base = type(model)(config, model.task)
        # Only the shapes are read: the draws must not move the caller's generator.
        return {name: parameter.shape for name, parameter in base.named_parameters()}


MOMENTUM = 0.95
ALPHA = 0.99
EPS = 0.01
"""The decay of RMSprop's squares, and what is added to their root."""
ADAM_EPS = 1e-8
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""a, b and c."""


def make_optimiser(
    recipe: Recipe, parameters: nn.Module | Sequence[FieldsDict]
) -> torch.optim.Optimizer:
    """Return the recipe's optimiser over the parameters of a model, or over given groups."""
    groups: Any = parameters
    if isinstance(parameters, nn.Module):
        groups = parameter_groups(recipe, parameters)
    common = {"lr": recipe.lr, "weight_decay": recipe.weight_decay}
    match recipe.optimiser:
        case Optimiser.RMSPROP:
            return RMSprop(groups, alpha=ALPHA, eps=EPS, **common)
        case Optimiser.SGD:
            return SGD(groups, **common)
    kinds = {
        Optimiser.ADAM: Adam,
        Optimiser.ADAMW: AdamW,
        Optimiser.MUON: Muon,
    }
    kind = kinds[recipe.optimiser]
    return kind(groups, betas=(0.9, recipe.beta2), fused=True, **common)


def orthogonalise(x: Matrices) -> Matrices:
    """Return O(x) of each matrix; 0 of 0."""
    # X Xᵀ is the smaller square if X has more columns than rows.
    m, n = x.shape[-2:]
    tall = m > n
    y = x
    if tall:
        y = x.mT
    # Singular values above 1 would grow; the clamp keeps 0 of 0.
    norm = torch.linalg.matrix_norm(y, keepdim=True)
    y = y / norm.clamp(min=1e-7)
    a, b, c = NEWTON_SCHULZ
    # Five steps bring the singular values near 1, as in the original.
    for _ in range(5):
        gram = y @ y.mT
        polynomial = b * gram + c * gram @ gram
        y = a * y + polynomial @ y
    if tall:
        return y.mT
    return y


def muon_direction(g: Matrices, b: Matrices) -> Tensor:
    """Return 0.2 √max(m, n) U from the gradient and its mean after this step."""
    mean = g.lerp(b, MOMENTUM)
    size = 0.2 * max(g.shape[-2:]) ** 0.5
    return size * orthogonalise(mean)


def _without_wrappers(cls: type[torch.optim.Optimizer]) -> Any:
    """Return a subclass with the unwrapped methods; its steps are not differentiable."""
    names = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")
    methods: FieldsDict = {}
    for name in names:
        # torch wraps them in its profiler and its compiler, whose import takes seconds.
        methods[name] = inspect.unwrap(getattr(cls, name))
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
    def step(self):
        """Update all parameters that have a gradient."""
        matrices = []
        for group in self.param_groups:
            if "muon" not in group:
                continue
            for p in group["params"]:
                if p.grad is not None:
                    matrices.append((group, p, p.grad))
                    p.grad = None  # AdamW leaves it alone
        super().step()
        for group, p, gradient in matrices:
            p.grad = gradient
            state = self.state[p]
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32, device=p.device)
                state["exp_avg"] = torch.zeros_like(p)
                # Unused, but packs have a row of it for every parameter.
                state["exp_avg_sq"] = torch.zeros_like(p)
            state["step"] += 1
            state["exp_avg"].lerp_(gradient, 1 - MOMENTUM)
            p.mul_(1 - group["lr"] * group["weight_decay"])
            direction = muon_direction(gradient, state["exp_avg"])
            p.sub_(group["lr"] * direction)
