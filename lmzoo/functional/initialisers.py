r"""Named ways to draw a weight matrix; torch's own, with the scales that S2 compared.

    draw = initialiser("normal_0.02");  draw(weight)          in place

    default            whatever the layer does by itself
    xavier_*           variance 2 / (fan_in + fan_out)         Glorot & Bengio 2010
    kaiming_*          variance 2 / fan_in                     He et al. 2015
    normal_σ           N(0, σ²)
    uniform_a          U(−a, a)

S2; zoo.md 4.2.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn

from lmzoo.errors import UserError

Draw = Callable[[Tensor], Any]


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
    for path, parameter in module.named_parameters():
        redraw(path, parameter, name)


def redraw(path: str, parameter: Tensor, name: str) -> None:
    """The same for one parameter; one that is neither a matrix nor a bias stays."""
    draw = initialiser(name)
    if draw is _as_it_is:
        return
    if parameter.dim() >= 2:
        draw(parameter)
    elif path.rpartition(".")[2].startswith("bias"):
        nn.init.zeros_(parameter)
