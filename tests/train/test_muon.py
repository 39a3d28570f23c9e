"""Muon equals its equations; matrices, tables and the rest have rates and rules of their own."""

import pytest
import torch
from torch import Tensor, nn

from lmzoo import zoo
from lmzoo.base.config import from_dict
from lmzoo.base.errors import UserError
from lmzoo.contract import Task
from lmzoo.laws.support import assert_close
from lmzoo.train.groups import (
    MATRICES,
    OTHERS,
    TABLES,
    parameter_groups,
    rate_factors,
    roles,
    set_rate,
)
from lmzoo.train.optimisers import make_optimiser, orthogonalise
from lmzoo.train.recipe import Recipe
from tests.tiny import FINE, tiny

RECIPE = Recipe(optimiser="muon", lr=0.1, weight_decay=0.3, rate_tables=0.5, rate_matrices=2.0)


def polynomial(x: Tensor) -> Tensor:
    """Return O(x) of one matrix from its singular values."""
    u, s, v = torch.linalg.svd(x, full_matrices=False)
    s = s / s.square().sum().sqrt()
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return u @ s.diag() @ v


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (2, 3, 6, 4)])
def test_newton_schulz_acts_on_the_singular_values(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, dtype=torch.float64)
    expected = torch.stack([polynomial(m) for m in x.view(-1, *shape[-2:])]).view(shape)
    assert_close(orthogonalise(x), expected, FINE, "O(x)")
    assert orthogonalise(torch.zeros(3, 2)).equal(torch.zeros(3, 2))


def test_steps_are_those_of_the_equations() -> None:
    model = tiny("gru", vocab=5).double()
    own, factors = roles(model), rate_factors(RECIPE, model)
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    means = {name: torch.zeros_like(p) for name, p in weights.items()}
    squares = {name: torch.zeros_like(p) for name, p in weights.items()}
    optimiser = make_optimiser(RECIPE, model)
    for n in range(1, 4):
        for name, p in model.named_parameters():
            p.grad = g = torch.randn_like(p)
            lr, decay = 0.1 * factors[name], 0.3 * (p.dim() > 1)
            w = weights[name] * (1 - lr * decay)
            mean = 0.95 if own[name] == MATRICES else 0.9
            m = means[name] = mean * means[name] + (1 - mean) * g
            if own[name] == MATRICES:
                u = polynomial(0.05 * g + 0.95 * m)
                weights[name] = w - lr * 0.2 * max(p.shape) ** 0.5 * u
                continue
            v = squares[name] = 0.999 * squares[name] + 0.001 * g * g
            root = (v / (1 - 0.999**n)).sqrt() + 1e-8
            weights[name] = w - lr * m / (1 - 0.9**n) / root
        set_rate(optimiser, 0.1)
        optimiser.step()
        for name, p in model.named_parameters():
            assert_close(p, weights[name], FINE, f"{name} after step {n}")


def test_a_step_is_nearly_that_of_torch() -> None:
    """torch computes O in bfloat16."""
    theirs, own = (nn.Linear(6, 4, bias=False) for _ in range(2))
    own.load_state_dict(theirs.state_dict())
    before = own.weight.detach().clone()
    recipe = Recipe(optimiser="muon", lr=0.1)
    options = {"lr": 0.1, "weight_decay": 0.0, "adjust_lr_fn": "match_rms_adamw"}
    optimisers = make_optimiser(recipe, own), torch.optim.Muon(theirs.parameters(), **options)
    for _ in range(3):
        own.weight.grad = torch.randn(4, 6)
        theirs.weight.grad = own.weight.grad.clone()
        for optimiser in optimisers:
            optimiser.step()
    change = (own.weight - before).norm()
    assert (own.weight - theirs.weight).norm() < 0.03 * change


def test_the_roles_of_parameters() -> None:
    model = zoo.build(zoo.config("mamba", tied=False, width=8), Task(vocab=5, length=4))
    found = roles(model)
    assert {name for name, role in found.items() if role == TABLES} == {
        "embedding.weight", "head.weight",
    }  # fmt: skip
    others = {name.split(".")[-1] for name, role in found.items() if role == OTHERS}
    assert {"conv", "log_rate", "skip"} <= others
    matrices = {name.split(".")[-1] for name, role in found.items() if role == MATRICES}
    assert {"x", "b", "c", "out"} <= matrices
    groups = parameter_groups(RECIPE, model)
    assert [(g.get("muon"), g.get("scale"), g.get("weight_decay")) for g in groups] == [
        (True, 2.0, None), (None, 0.5, None), (None, None, None), (None, None, 0.0),
    ]  # fmt: skip
    assert parameter_groups(Recipe(), model) == [{"params": [*model.parameters()]}]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"optimiser": "sgd", "rate_tables": 2.0}, "sgd has one rate for all parameters"),
        ({"optimiser": "muon", "accumulate": "epoch"}, "set it to step"),
        ({"base_width": 64}, "needs parametrisation=mup"),
        ({"parametrisation": "mup", "init": "normal_0.1"}, "draws of its own"),
        ({"rate_others": 0.0}, "rate_others"),
    ],
)
def test_what_a_group_cannot_have_is_refused(fields: dict, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        from_dict(Recipe, fields)
    assert "\n" not in str(caught.value)
