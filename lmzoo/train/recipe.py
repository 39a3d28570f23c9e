"""How a model is trained: plain data, two of them named.

`default` is sound: Adam, gradients cleared at every step, gradient norm clipped at 1.
`published` reproduces S0's code: RMSprop (0.99, eps 0.01), batch 280, no clipping, the
mean of per-sentence means as loss, and gradients cleared **once per epoch**, so that
step i moves along g_1 + ... + g_i. zoo.md 1.8.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, field_validator

from lmzoo.config import config
from lmzoo.errors import UserError
from lmzoo.functional.initialisers import INITIALISERS, initialiser
from lmzoo.search_space import Choice, FloatRange


class Optimiser(StrEnum):
    """Which update rule."""

    ADAM = "adam"
    ADAMW = "adamw"
    RMSPROP = "rmsprop"


class Accumulate(StrEnum):
    """When gradients are cleared."""

    STEP = "step"
    EPOCH = "epoch"  # the published defect


class Weighting(StrEnum):
    """What the loss averages over."""

    TOKEN = "token"  # every scored token alike
    SENTENCE = "sentence"  # every sequence alike


@config
class Recipe:
    """Everything about training that is not the model, the corpus or the seed."""

    optimiser: Optimiser = Optimiser.ADAM
    lr: Annotated[float, FloatRange(1e-3, 1e-1, log=True)] = Field(1e-2, gt=0)
    batch: int = Field(100, ge=1)
    """Sequences per step."""
    clip: float | None = Field(1.0, gt=0)
    """Largest global gradient norm; None does not clip."""
    weight_decay: float = Field(0.0, ge=0)
    warmup: int = Field(0, ge=0)
    """Steps over which the learning rate rises linearly from lr/warmup to lr."""
    accumulate: Accumulate = Accumulate.STEP
    loss: Weighting = Weighting.TOKEN
    init: Annotated[str, Choice(tuple(INITIALISERS))] = "default"
    """How all matrices of the model are drawn, biases then 0; `default` is each part's own. What a
    field asks for by itself (a spectral radius, a forget bias) holds under every scheme."""

    @field_validator("init")
    @classmethod
    def _known(cls, name: str) -> str:
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
    """The recipe of this name.

    Raises:
        UserError: there is none.
    """
    if name not in RECIPES:
        raise UserError(f"no recipe {name!r}; there are {', '.join(RECIPES)}")
    return RECIPES[name]
