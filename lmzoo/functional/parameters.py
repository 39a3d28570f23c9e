r"""How parameters are made: their initial values, and whether weight decay acts on them.

    initialise = initialiser("normal_0.02");  initialise(weight)          in place

    default            what the layer itself does
    xavier_*           variance 2 / (fan_in + fan_out)         Glorot & Bengio 2010
    kaiming_*          variance 2 / fan_in                     He et al. 2015
    normal_σ           N(0, σ²)
    uniform_a          U(−a, a)

These are torch's, at the scales that S2 compares. Biases become 0. A module defines `redraw` if an
initialiser must respect its own settings (a spectral radius, a forget bias) or if names and shapes
do not identify its matrices and biases.

Decay pulls a weight to 0. That regularises a matrix, but moves a rate, a bias or a norm away from
where it was put: a decay rate exp(A) to 1, a Δ with softplus(b) = 0.001 to 0.69. So parameters
with fewer than two axes do not decay, nor do those that a module makes as `Undecayed`, because
they have an axis for heads, channels or states. The codes of Mamba, of the xLSTM's and
flash-linear-attention's cells mark single parameters, and nanoGPT has the rule by axes.

Source: S2.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lmzoo.base.errors import UserError
from lmzoo.base.seeds import derive_seed
from lmzoo.kernels.guest import forked_generators
from lmzoo.types import Shape

Draw = Callable[[Tensor], Any]
"""Fills a tensor of two or more dimensions with random values, in place."""


@runtime_checkable
class HasRedraw(Protocol):
    """A module that initialises its own parameters; `redraw` runs without gradients."""

    def redraw(self, name: str, draw: Draw): ...


def _keep(weight: Tensor) -> Tensor:
    return weight


INITIALISERS: dict[str, Draw] = {
    "default": _keep,
    "xavier_uniform": nn.init.xavier_uniform_,
    "xavier_normal": nn.init.xavier_normal_,
    "kaiming_uniform": nn.init.kaiming_uniform_,
    "kaiming_normal": nn.init.kaiming_normal_,
}
for std in (0.1, 0.02, 0.002):
    INITIALISERS[f"normal_{std}"] = partial(nn.init.normal_, std=std)
for bound in (0.1, 0.05, 0.01, 0.001):
    INITIALISERS[f"uniform_{bound}"] = partial(nn.init.uniform_, a=-bound, b=bound)


def initialiser(name: str) -> Draw:
    """Return the initialiser of this name; a `UserError` if it is unknown."""
    if name not in INITIALISERS:
        raise UserError(f"unknown initialiser {name!r}; choose one of {', '.join(INITIALISERS)}")
    return INITIALISERS[name]


def redraw_parameter(module: nn.Module, path: str, name: str):
    """Draw one parameter again, if it is a matrix or a bias."""
    draw = initialiser(name)
    if draw is _keep:
        return
    owner_path, _, leaf = path.rpartition(".")
    owner = module.get_submodule(owner_path)
    parameter = module.get_parameter(path)
    with torch.no_grad():
        if isinstance(owner, HasRedraw):
            owner.redraw(leaf, draw)
        # Biases start at zero, whatever the matrices are drawn from.
        elif leaf.startswith("bias"):
            parameter.zero_()
        elif parameter.dim() >= 2:
            draw_matrices(parameter, draw)


def draw_matrices(weight: Float[Tensor, "*N H E"], draw: Draw):
    """Draw each matrix of a stack by itself; torch reads a third axis as a convolution kernel."""
    # One by one: fans of a stack of matrices would be those of the whole stack.
    rows, columns = weight.shape[-2:]
    for matrix in weight.view(-1, rows, columns):
        draw(matrix)


def uniform(shape: Shape, fan_in: float) -> Tensor:
    """Return a tensor drawn uniformly from ±1/√fan_in, torch's default for a linear layer."""
    unit = torch.empty(shape).uniform_(-1, 1)
    return unit / fan_in**0.5


def draw_uniform(weight: Tensor, fan_in: float):
    """Draw a parameter uniformly from ±1/√fan_in, in place."""
    with torch.no_grad():
        drawn = uniform(tuple(weight.shape), fan_in)
        weight.copy_(drawn)


class DrawnModule(nn.Module):
    """A module that draws its parameters from U(n), ±1/√n, in the order in which they are set."""

    _fans: Mapping[str, float] = {}

    def set_drawn(
        self,
        n: float,
        kind: type[nn.Parameter] = nn.Parameter,
        **shapes: Shape | None,
    ):
        """Make parameters that are drawn from U(n); without a shape a parameter is None."""
        for name, shape in shapes.items():
            if shape is None:
                self.register_parameter(name, None)
            else:
                drawn = uniform(shape, n)
                self.register_parameter(name, kind(drawn))
                # A new mapping: the first one belongs to the class.
                self._fans = dict(self._fans) | {name: n}

    def reset_parameters(self):
        for name, n in self._fans.items():
            draw_uniform(self.get_parameter(name), n)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def unit_normal(shape: Shape) -> Tensor:
    """Return a tensor drawn from N(0, 1 / fan_in); the fan-in is the last axis but one."""
    rows = shape[-2]
    return torch.randn(shape) / rows**0.5


def initialise(model: nn.Module, seed: int, init: str = "default"):
    """Draw the initial parameters of a model.

    Each module draws from its own stream, derived from the seed and the module's name. Models that
    share a module therefore share its initial weights, which pairs them in comparisons. A named
    `init` draws every matrix again. The global random generator does
    not change.
    """
    with forked_generators() as set_seed:
        for name, module in model.named_modules():
            reset = getattr(module, "reset_parameters", None)
            if reset is not None:
                # A seed for each module: a part that is cut does not change the draws of others.
                set_seed(derive_seed(seed, name))
                reset()
        if init == "default":
            return
        for name, _ in model.named_parameters():
            # By name of the parameter, for the same reason.
            set_seed(derive_seed(seed, "init", name))
            redraw_parameter(model, name, init)


class Undecayed(nn.Parameter):
    """A parameter that does not decay, whatever its axes."""


def decays(parameter: Tensor) -> bool:
    """Whether weight decay acts on a parameter."""
    # Vectors are scales and biases.
    if isinstance(parameter, Undecayed):
        return False
    return parameter.dim() > 1
