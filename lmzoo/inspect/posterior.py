r"""What a model's discrete latent was, sentence by sentence, and what it is beforehand.

    posterior[k, t-1] = P(z_t = k | s_t, s_<t)        t = 1..n-1
    prior             = P(z = k)   or   P(z_t = k)   or   P(z_t = k) of each slot

Numbers here are probabilities: an impossible value is 0, not minus infinity.

S0 (its figures of latents); zoo.md 2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.contract import LanguageModel
from lmzoo.errors import UserError
from lmzoo.inspect.latent_values import numbered, value_names


@dataclass(frozen=True)
class Posterior:
    """Axes of `probability`: the latent's values, the predicted tokens s_1 .. s_{n-1}."""

    latent: str
    values: tuple[str, ...]
    tokens: tuple[str, ...]
    probability: Float[Tensor, "K n"]


@dataclass(frozen=True)
class Prior:
    """Axes of `probability`: slots, the latent's values, the targets' positions.

    A prior that differs neither by slot nor by position has one of each.
    """

    latent: str
    values: tuple[str, ...]
    probability: Float[Tensor, "N K n"]

    @property
    def by_position(self) -> bool:
        """Whether it differs from target to target."""
        return self.probability.shape[2] > 1


@torch.no_grad()
def posterior(model: LanguageModel, ids: Sequence[int], tokens: Sequence[str]) -> Posterior:
    """The posterior of one sentence, given as ids and as text, `<start>` first.

    Raises:
        UserError: the model has no discrete latent, or no place for so many tokens.
    """
    require_latent(model)
    if not 2 <= len(ids) <= model.task.length:
        raise UserError(
            f"the model scores 1 to {model.task.length - 1} tokens at a time, got {len(ids) - 1}"
        )
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    row = torch.tensor([list(ids)], device=device)
    was_training = model.training
    found = model.eval().posterior(row, torch.tensor([len(ids)], device=device))[0].cpu()
    model.train(was_training)
    names = value_names(model, len(found), tokens[:-1])
    return Posterior(model.latent, names, numbered(tokens[1:], start=1), found)


@torch.no_grad()
def prior(model: LanguageModel) -> Prior | None:
    """The latent's prior, None where the model has none that no word informs.

    Raises:
        UserError: the model has no discrete latent.
    """
    require_latent(model)
    found = model.prior()
    if found is None:
        return None
    found = found.exp().cpu()
    while found.ndim < 3:
        found = found[None] if found.ndim == 2 else found[:, None]
    places = ["<start>", *[""] * (model.task.length - 2)]
    names = value_names(model, found.shape[1], places)
    return Prior(model.latent, tuple(name.strip() for name in names), found)


def require_latent(model: LanguageModel) -> None:
    """Refuse a model in which nothing is summed out.

    Raises:
        UserError: the model has no discrete latent.
    """
    if not model.latent:
        raise UserError(
            f"{model.name} has no discrete latent to show; rows that have one are mixtures, "
            "as DLM5, DLM10, DLM30 or a recurrent row with model.emission=mixture"
        )


def largest(found: Posterior, count: int) -> Posterior:
    """The `count` values of most mass in their own order, and all others as one."""
    if len(found.values) <= count:
        return found
    kept = found.probability.sum(1).topk(count).indices.sort().values
    rest = found.probability.sum(0) - found.probability[kept].sum(0)
    names = [found.values[k] for k in kept.tolist()]
    return Posterior(
        found.latent,
        (*names, f"{len(found.values) - count} others"),
        found.tokens,
        torch.cat([found.probability[kept], rest.clamp_min(0)[None]]),
    )


def as_json(found: Posterior | Prior) -> dict[str, Any]:
    """Plain JSON types, the axes named in order."""
    if isinstance(found, Posterior):
        return {
            "axes": ["value", "token"],
            "values": list(found.values),
            "tokens": list(found.tokens),
            "probability": found.probability.tolist(),
        }
    positions = list(range(1, found.probability.shape[2] + 1)) if found.by_position else None
    return {
        "axes": ["slot", "value", "position"],
        "values": list(found.values),
        "positions": positions,
        "probability": found.probability.tolist(),
    }
