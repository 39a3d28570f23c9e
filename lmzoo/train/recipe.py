"""Training recipes: the training settings as plain data, and two named recipes.

`default` is standard practice: Adam, gradients cleared at every step, gradient norm clipped at 1.
`published` reproduces the code of S0: RMSprop (alpha 0.99, eps 0.01), batch 280, no clipping, the
mean of per-sentence means as loss, and gradients cleared **once per epoch**, so that step i
follows g_1 + ... + g_i.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, field_validator

from lmzoo.config import config
from lmzoo.errors import UserError
from lmzoo.functional.initialisers import INITIALISERS, initialiser
from lmzoo.search_space import Choice, FloatRange


class Optimiser(StrEnum):
    """The update rule."""

    ADAM = "adam"
    ADAMW = "adamw"
    RMSPROP = "rmsprop"


class Accumulate(StrEnum):
    """How long gradients accumulate before they are cleared."""

    STEP = "step"
    EPOCH = "epoch"  # a defect of the published code


class Weighting(StrEnum):
    """The unit over which the loss is averaged."""

    TOKEN = "token"  # every scored token has the same weight
    SENTENCE = "sentence"  # every sequence has the same weight


@config
class Recipe:
    """All training settings except the model, the corpus and the seed."""

    optimiser: Optimiser = Optimiser.ADAM
    lr: Annotated[float, FloatRange(1e-3, 1e-1, log=True)] = Field(1e-2, gt=0)
    batch: int = Field(100, ge=1)
    """Sequences per step."""
    clip: float | None = Field(1.0, gt=0)
    """Maximum global gradient norm; None disables clipping."""
    weight_decay: float = Field(0.0, ge=0)
    warmup: int = Field(0, ge=0)
    """Steps over which the learning rate rises linearly from lr/warmup to lr."""
    accumulate: Accumulate = Accumulate.STEP
    loss: Weighting = Weighting.TOKEN
    init: Annotated[str, Choice(tuple(INITIALISERS))] = "default"
    """Initialisation scheme of all matrices of the model; it sets biases to 0. `default` keeps the
    scheme of each module. A config field that sets an initial value itself (a spectral radius, a
    forget bias) applies under every scheme."""

    @field_validator("init")
    @classmethod
    def _check_init(cls, name: str) -> str:
        initialiser(name)
        return name


RECIPES = {
    "default": Recipe(),
    "published": Recipe(
        optimiser=Optimiser.RMSPROP,
        lr=1e-3,
        batch=280,
        clip=None,
        accumulate=Accumulate.EPOCH,
        loss=Weighting.SENTENCE,
    ),
}


def named_recipe(name: str) -> Recipe:
    """Return the recipe of this name.

    Raises:
        UserError: No recipe has this name.
    """
    if name not in RECIPES:
        raise UserError(f"no recipe {name!r}; choose one of {', '.join(RECIPES)}")
    return RECIPES[name]
