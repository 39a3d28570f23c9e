r"""Named ways to draw a weight matrix; torch's own, with the scales that S2 compared.

    draw = initialiser("normal_0.02");  draw(weight)          in place

    default            whatever the layer does by itself
    xavier_*           variance 2 / (fan_in + fan_out)         Glorot & Bengio 2010
    kaiming_*          variance 2 / fan_in                     He et al. 2015
    normal_σ           N(0, σ²)
    uniform_a          U(−a, a)

Biases become 0. A module that was told how a weight starts (a spectral radius, a forget bias), or
whose names and shapes do not say what its parameters are, has a `redraw` of its own.

S2; zoo.md 4.2.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.errors import UserError

Draw = Callable[[Tensor], Any]


@runtime_checkable
class Redrawing(Protocol):
    """A module that says what a scheme does to its own parameters, without gradients."""

    def redraw(self, name: str, draw: Draw) -> None: ...


def _as_it_is(weight: Tensor) -> Tensor:
    return weight


INITIALISERS: Mapping[str, Draw] = {
    "default": _as_it_is,
    "xavier_uniform": nn.init.xavier_uniform_,
    "xavier_normal": nn.init.xavier_normal_,
    "kaiming_uniform": nn.init.kaiming_uniform_,
    "kaiming_normal": nn.init.kaiming_normal_,
    **{f"normal_{std}": partial(nn.init.normal_, std=std) for std in (0.1, 0.02, 0.002)},
    **{f"uniform_{a}": partial(nn.init.uniform_, a=-a, b=a) for a in (0.05, 0.01, 0.001)},
}


def initialiser(name: str) -> Draw:
    """The function of this name; it fills a tensor of two or more dimensions in place.

    Raises:
        UserError: there is none.
    """
    if name not in INITIALISERS:
        raise UserError(f"no initialiser {name!r}; there are {', '.join(INITIALISERS)}")
    return INITIALISERS[name]


def redraw_matrices(module: nn.Module, name: str) -> None:
    """Draw every matrix of `module` again and clear every bias; `default` leaves all as it is."""
    for path, _ in module.named_parameters():
        redraw(module, path, name)


def redraw(module: nn.Module, path: str, name: str) -> None:
    """The same for one parameter; one that is neither a matrix nor a bias stays."""
    draw, (place, _, leaf) = initialiser(name), path.rpartition(".")
    if draw is _as_it_is:
        return
    owner, parameter = module.get_submodule(place), module.get_parameter(path)
    with torch.no_grad():
        if isinstance(owner, Redrawing):
            owner.redraw(leaf, draw)
        elif leaf.startswith("bias"):
            parameter.zero_()
        elif parameter.dim() >= 2:
            fill(parameter, draw)


def fill(weight: Float[Tensor, "*N H E"], draw: Draw) -> None:
    """Draw a matrix, or each of many: torch takes what lies behind two axes for a kernel's size."""
    for matrix in weight.view(-1, *weight.shape[-2:]).unbind():
        draw(matrix)
