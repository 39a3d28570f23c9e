"""Training recipes: the training settings as plain data, and named recipes.

`default` is standard practice: Adam, gradients cleared at every step, gradient norm clipped at 1.
`published` reproduces the code of S0: RMSprop (alpha 0.99, eps 0.01), batch 280, no clipping, the
mean of per-sentence means as loss, and gradients cleared **once per epoch**, so that step i
follows g_1 + ... + g_i. `muon_wsd` is Muon for matrices and AdamW for the rest (`optimisers.py`),
at a rate that is constant and falls to 0 over the last fifth of the steps.

The learning rate of step i, counted from 1, with w warm-up steps, S = `schedule_epochs` · steps per
epoch and f = `final_lr`:

    i ≤ w       lr · i / w
    constant    lr
    linear      lr · (f + (1 − f) (1 − x))                 x = min(1, (i − w) / (S − w))
    cosine      lr · (f + (1 − f) (1 + cos πx) / 2)
    wsd         lr · (f + (1 − f) min(1, (1 − x) / c))     constant, then linear: c = `cooldown`

Loshchilov & Hutter 2017 (arXiv:1608.03983); Hu et al. 2024 (arXiv:2404.06395) and Hägele et al.
2024 (arXiv:2405.18392), for wsd.
"""

import dataclasses
import math
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from lmzoo.base.config import config, from_dict, to_dict
from lmzoo.base.docstrings import documented
from lmzoo.base.errors import UserError
from lmzoo.base.plain import Fields
from lmzoo.base.search_space import Choice, FloatRange
from lmzoo.functional.parameters import INITIALISERS, initialiser
from lmzoo.kernels.device import Precision

Optimiser = StrEnum("Optimiser", "ADAM ADAMW RMSPROP SGD MUON")
"""The update rule; muon is for matrices, with AdamW for the rest."""
Accumulate = StrEnum("Accumulate", "STEP EPOCH")
"""How long gradients accumulate before they are cleared; epoch: a defect of the published code."""
DecayOn = StrEnum("DecayOn", "MATRICES ALL")
"""Where weight decay acts: matrices have no biases, norms, rates (`functional/parameters.py`)."""
Parametrisation = StrEnum("Parametrisation", "STANDARD MUP")
"""How draws and rates follow the width (`optimisers.py`)."""
Weighting = StrEnum("Weighting", "TOKEN SENTENCE")
"""What has the same weight in the loss: every scored token, or every sequence."""
Schedule = StrEnum("Schedule", "CONSTANT LINEAR COSINE WSD")
"""How the learning rate falls after the warm-up."""
TO_AN_END = (Schedule.LINEAR, Schedule.COSINE, Schedule.WSD)
"""Schedules that are defined by their last epoch."""


def _shown(default: Any, **limits: Any) -> Any:
    """Return a field that is written into configs only where it has not its default."""
    # So runs from before a field existed keep their identity.
    return Field(default, exclude_if=lambda value: value == default, **limits)


@documented
@config
class Recipe:
    """All training settings except the model, the corpus and the seed."""

    optimiser: Optimiser = Optimiser.ADAM
    """The update rule: adam, adamw, rmsprop, sgd or muon."""
    lr: Annotated[float, FloatRange(1e-3, 1e-1, log=True)] = Field(1e-2, gt=0)
    """Learning rate after the warm-up."""
    batch: int = Field(100, ge=1)
    """Sequences per step."""
    clip: float | None = Field(1.0, gt=0)
    """Maximum global gradient norm; None disables clipping."""
    clip_value: float | None = _shown(None, gt=0)
    """Maximum absolute value of each number of a gradient, before `clip`; None disables it."""
    rate_matrices: float = _shown(1.0, gt=0)
    """Share of `lr` of the weights of linear maps (`optimisers.py`)."""
    rate_tables: float = _shown(1.0, gt=0)
    """Share of `lr` of embeddings and output tables."""
    rate_others: float = _shown(1.0, gt=0)
    """Share of `lr` of vectors, biases, norms, taps and decay rates."""
    parametrisation: Parametrisation = _shown(Parametrisation.STANDARD)
    """How draws and rates follow the width: standard or mup."""
    base_width: int = _shown(32, ge=2)
    """The width at which `mup` changes nothing."""
    weight_decay: float = Field(0.0, ge=0)
    """Share of the learning rate by which a step shrinks the weights."""
    weight_decay_on: DecayOn | None = _shown(None)
    """`matrices` by default, with a decay only: `all` is that of runs before 0.4."""
    beta2: float = _shown(0.999, gt=0, lt=1)
    """Decay of Adam's mean of squared gradients, as in torch; RMSprop ignores it."""
    warmup: int = Field(0, ge=0)
    """Steps over which the learning rate rises linearly from lr/warmup to lr."""
    schedule: Schedule = _shown(Schedule.CONSTANT)
    """How the rate falls: constant, linear, cosine or wsd."""
    schedule_epochs: int = _shown(0, ge=0)
    """Epochs after which the rate stays as it is; 0: those of the run (`with_budget`)."""
    final_lr: float = _shown(0.0, ge=0, le=1)
    """Share of `lr` at which the schedule ends."""
    cooldown: Annotated[float, FloatRange(0.1, 0.5)] = _shown(0.2, gt=0, le=1)
    """Share of the steps at the end in which the rate of the schedule wsd falls."""
    accumulate: Accumulate = Accumulate.STEP
    """How long gradients accumulate: step, or epoch, as the published code does."""
    loss: Weighting = Weighting.TOKEN
    """What has the same weight: every scored token, or every sequence (sentence)."""
    init: Annotated[str, Choice(tuple(INITIALISERS))] = "default"
    """Initialisation scheme of all matrices of the model; it sets biases to 0. `default` keeps the
    scheme of each module. A config field that sets an initial value itself (a spectral radius, a
    forget bias) applies under every scheme."""

    precision: Precision = _shown(Precision.TF32X3)
    """How a GPU multiplies: tf32x3, tf32 or bf16 (`lmzoo/kernels/device.py`); a CPU accepts the
    default only, and computes in float32."""

    @field_validator("init")
    @classmethod
    def _check_init(cls, name: str) -> str:
        initialiser(name)
        return name

    @model_validator(mode="after")
    def _one_recipe_without_decay(self) -> "Recipe":
        on = self.weight_decay_on
        if not self.weight_decay:
            on = None
        elif on is None:
            on = DecayOn.MATRICES
        # The instance is frozen.
        object.__setattr__(self, "weight_decay_on", on)
        return self

    @model_validator(mode="after")
    def _check_groups(self) -> "Recipe":
        """A pack updates by group with Adam and Muon only, one step at a time."""
        mup = self.parametrisation is Parametrisation.MUP
        shares = (self.rate_matrices, self.rate_tables, self.rate_others)
        grouped = mup
        if shares != (1, 1, 1) or self.optimiser is Optimiser.MUON:
            grouped = True
        if grouped and self.optimiser in (Optimiser.RMSPROP, Optimiser.SGD):
            raise UserError(
                f"optimiser={self.optimiser} has one rate for all parameters; set it to adam, "
                "adamw or muon, or drop parametrisation and rate_*"
            )
        if grouped and self.accumulate is Accumulate.EPOCH:
            raise UserError(
                "accumulate=epoch has one rate and update for all parameters; set it to step"
            )
        if self.base_width != 32 and not mup:
            raise UserError(f"base_width={self.base_width} needs parametrisation=mup")
        if self.init != "default" and mup:
            raise UserError(f"init={self.init}: parametrisation=mup has draws of its own; drop one")
        return self

    @model_validator(mode="after")
    def _check_schedule(self) -> "Recipe":
        if self.schedule not in TO_AN_END and (self.schedule_epochs or self.final_lr):
            raise UserError(
                "schedule_epochs and final_lr need a schedule that falls to an end; set schedule "
                "to linear, cosine or wsd"
            )
        if self.schedule is not Schedule.WSD and self.cooldown != 0.2:
            raise UserError(f"cooldown={self.cooldown} needs schedule=wsd")
        return self

    def with_budget(self, epochs: int) -> "Recipe":
        """Return the recipe of a run of `epochs` epochs: the length of its schedule is known.

        So runs of other lengths have other configs: a schedule is never continued after its end. A
        `UserError` says that it ends before the budget.
        """
        if 0 < self.schedule_epochs < epochs:
            raise UserError(
                f"recipe.schedule_epochs={self.schedule_epochs}: the schedule ends before the "
                f"budget of {epochs} epochs; set at least {epochs}, or 0 for the budget"
            )
        if self.schedule not in TO_AN_END or self.schedule_epochs:
            return self
        return dataclasses.replace(self, schedule_epochs=epochs)

    def with_fields(self, fields: Fields) -> "Recipe":
        """Return the recipe with some fields changed; another schedule drops those of the old."""
        merged = to_dict(self) | dict(fields)
        if "schedule" in fields:
            schedule = fields["schedule"]
            # Settings of the old schedule that the new one refuses return to their defaults.
            if schedule not in TO_AN_END:
                merged |= {"schedule_epochs": 0, "final_lr": 0.0}
            if schedule != Schedule.WSD:
                merged["cooldown"] = 0.2
        return from_dict(Recipe, merged)

    def learning_rate(self, step: int, steps_per_epoch: int) -> float:
        """Return the learning rate of a step; steps are counted from 1.

        A `UserError` says that the length of the schedule is not known, or that the warm-up is as
        long.
        """
        if step <= self.warmup:
            return self.lr * (step / self.warmup)
        # After the warm-up: that is part of every schedule.
        if self.schedule is Schedule.CONSTANT:
            return self.lr
        if not self.schedule_epochs:
            raise UserError(
                f"schedule={self.schedule} has no length; set schedule_epochs, or call "
                "recipe.with_budget(epochs)"
            )
        steps = self.schedule_epochs * steps_per_epoch - self.warmup
        if steps <= 0:
            raise UserError(
                f"recipe.warmup={self.warmup} steps are no less than the schedule of "
                f"{self.schedule_epochs} epochs of {steps_per_epoch} steps; lower the warm-up"
            )
        # Past its end, the schedule stays at its last value.
        x = min(1.0, (step - self.warmup) / steps)
        if self.schedule is Schedule.COSINE:
            cosine = math.cos(math.pi * x)
            fall = (1 + cosine) / 2
        else:
            share = 1.0
            if self.schedule is Schedule.WSD:
                share = self.cooldown
            # WSD holds the rate until the last `cooldown` of its steps.
            fall = min(1.0, (1 - x) / share)
        share_of_lr = self.final_lr + (1 - self.final_lr) * fall
        return self.lr * share_of_lr


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
    "muon_wsd": Recipe(optimiser=Optimiser.MUON, schedule=Schedule.WSD),
}


def named_recipe(name: str) -> Recipe:
    """Return the recipe of this name; a `UserError` if there is none."""
    if name not in RECIPES:
        raise UserError(f"no recipe {name!r}; choose one of {', '.join(RECIPES)}")
    return RECIPES[name]


def stored_recipe(fields: Fields) -> Recipe:
    """Return the recipe in the config of a run; runs before 0.4 decayed all parameters."""
    return from_dict(Recipe, {"weight_decay_on": DecayOn.ALL} | dict(fields))
