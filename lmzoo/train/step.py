"""One training step of one model: forward, loss, backward, clipping, optimiser."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lmzoo.contract import LanguageModel
from lmzoo.kernels.device import device_of, device_scope
from lmzoo.train.optimisers import SGD, set_rate
from lmzoo.train.recipe import Accumulate, Recipe, Weighting
from lmzoo.train.stepper import Stepper


class Step:
    """A training step; calling it trains on one batch."""

    def __init__(self, model: LanguageModel, recipe: Recipe, optimiser: torch.optim.Optimizer):
        self.model = model
        self.recipe = recipe
        self.optimiser = optimiser
        device = device_of(model)
        self.total = torch.zeros((), dtype=torch.float64, device=device)
        """The objective, summed over all tokens of the epoch so far."""
        self._accumulates = recipe.accumulate is Accumulate.EPOCH
        # The step of torch's SGD reads its learning rate as a number, which a recording would keep.
        self.stepper = Stepper(
            optimiser,
            device,
            model.name,
            accumulates=self._accumulates,
            records=not isinstance(optimiser, SGD),
        )

    def begin_epoch(self):
        """Reset the sum of the objective and the gradients."""
        self.total.zero_()
        to_none = True
        # A recorded step adds to the gradients at the addresses that it was recorded with.
        if self._accumulates and self.stepper.replays:
            to_none = False
        self.optimiser.zero_grad(to_none)

    def __call__(
        self,
        rate: float | Tensor,
        scored: Tensor | None,
        tokens: Tensor,
        lengths: Tensor,
        *sources: Tensor,
    ):
        """Train on one batch at this learning rate; only tokens in `scored` count, if given."""
        if not self._accumulates:
            self.optimiser.zero_grad()
        with device_scope(self.model):
            objective = self.model.objective(tokens, lengths, *sources)
            objective, counts = restrict(objective, lengths, scored)
            loss = compute_loss(objective, counts, self.recipe.loss)
            loss.backward()
        values = objective.detach()
        self.total += values.double().sum()
        parameters = self.model.parameters
        if self.recipe.clip_value is not None:
            torch.nn.utils.clip_grad_value_(parameters(), self.recipe.clip_value)
        if self.recipe.clip is not None:
            torch.nn.utils.clip_grad_norm_(parameters(), self.recipe.clip)
        set_rate(self.optimiser, rate)
        self.optimiser.step()


def restrict(
    objective: Float[Tensor, "*P B T"],
    lengths: Int[Tensor, "*P B"],
    scored: Bool[Tensor, "*P B T"] | None,
) -> tuple[Float[Tensor, "*P B T"], Int[Tensor, "*P B"]]:
    """Return the objective of the scored tokens, 0 elsewhere, and their number."""
    if scored is None:
        return objective, lengths - 1
    return objective.where(scored, 0.0), scored.sum(-1)


def compute_loss(
    objective: Float[Tensor, "*P B T"], counts: Int[Tensor, "*P B"], weighting: Weighting
) -> Float[Tensor, "*P"]:
    """Return the loss of a batch, or of each pack member's batch.

    Sequences without a scored token do not count.
    """
    log_p = objective.sum(-1)
    if weighting is Weighting.TOKEN:
        return log_p.sum(-1) / -counts.sum(-1)  # the sign is on the side without a gradient
    means = log_p / counts.clamp(min=1)
    sequences = (counts > 0).sum(-1)
    return -means.sum(-1) / sequences
