r"""What a model says of one sentence: its latents, attention weights and segment boundaries.

    posterior[k, t-1]  = P(z_t = k | s_t, s_<t)                 t = 1..n-1
    prior              = P(z = k)   or   P(z_t = k)   or   P(z_t = k) of each slot
    weight[l, h, i, j] = α_ij of head h in layer l,   Σ_j α_ij = 1
    ended[ℓ, t]        = z^ℓ_t ∈ {0, 1}                         after s_t is read, t = 0..n-2

All numbers are probabilities, not logarithms. The memory of an attention map is the prefix or the
source: token i has been read and attends to the tokens j <= i, or token i is predicted and attends
to the source tokens j. Boundaries are those of a cell with detectors, such as `hm_lstm`, whose top
layer has none. Names of the values of a discrete latent:

    parent, source ...      the earlier tokens: `0 <start>`, `1 a`, ...
    parent and arc type     `0 <start> / 0`, `0 <start> / 1`, ... in the order a·R + r
    A or B                  `A`, `B`, or `A`, `B 1`, `B 2`, ...
    other                   the model's `latent_value_names()` if it has one, else `0`, `1`, ...

Chung et al. 2017 (arXiv:1609.01704). Source: S0 (figures of latents; DLM40), S2, S3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from lmzoo.base.errors import UserError
from lmzoo.base.plain import Texts
from lmzoo.contract import LanguageModel
from lmzoo.kernels.guest import evaluating


def value_names(model: LanguageModel, count: int, tokens: Sequence[str]) -> Texts:
    """Return the names of the `count` values of the model's latent, for the tokens s_0, s_1, .."""
    # Latents that point at a token have its position as their value.
    if "parent" in model.latent or "source" in model.latent:
        names = number_tokens(tokens)
        types = count // len(names)
        if types == 1:
            return names
        typed = [f"{name} / {r}" for name in names for r in range(types)]
        return tuple(typed)
    own_names = getattr(model, "latent_value_names", None)
    if own_names is not None:
        return own_names()
    first, either, rest = model.latent.partition(" or ")
    if not either:
        return tuple(map(str, range(count)))
    if count == 2:
        # Names of "unigram or bigram" need no number.
        others = [rest]
    else:
        others = [f"{rest} {k}" for k in range(1, count)]
    return tuple([first] + others)


def number_tokens(tokens: Sequence[str], start: int = 0) -> Texts:
    """Prefix tokens with their positions, so that equal tokens have different names."""
    return tuple(f"{i} {token}" for i, token in enumerate(tokens, start))


@dataclass(frozen=True)
class Posterior:
    """Posterior of the latent for each predicted token s_1 .. s_{n-1}."""

    latent: str
    """What the latent is, such as `component`."""
    values: Texts
    tokens: Texts
    probability: Float[Tensor, "K n"]


@dataclass(frozen=True)
class Prior:
    """Prior of the latent by slot, value and position of the predicted token.

    A prior that does not depend on slots or positions has one of each.
    """

    latent: str
    values: Texts
    probability: Float[Tensor, "N K n"]


@torch.no_grad()
def posterior(
    model: LanguageModel,
    ids: Sequence[int],
    tokens: Sequence[str],
) -> Posterior:
    """Compute the posterior of one sentence, given as ids and as text, `<start>` first."""
    require_latent(model)
    # One token more than are scored: `<start>`.
    if not 2 <= len(ids) <= model.task.length:
        raise UserError(
            f"the model scores sentences of 1 to {model.task.length - 1} tokens, got {len(ids) - 1}"
        )
    # Tokens go where the weights are.
    device = torch.device("cpu")
    parameters = list(model.parameters())
    # A count-based model has no parameters.
    if parameters:
        device = parameters[0].device
    row = torch.tensor([list(ids)], device=device)
    lengths = torch.tensor([len(ids)], device=device)
    with evaluating(model):
        probability = model.posterior(row, lengths)[0].cpu()
    names = value_names(model, len(probability), tokens[:-1])
    predicted = number_tokens(tokens[1:], start=1)
    return Posterior(model.latent, names, predicted, probability)


@torch.no_grad()
def prior(model: LanguageModel) -> Prior | None:
    """Return the prior of the latent, or None if it depends on the tokens."""
    require_latent(model)
    log_prior = model.prior()
    if log_prior is None:
        return None
    probability = log_prior.exp().cpu()
    # A prior without axes of positions or of values has one of each.
    while probability.ndim < 3:
        if probability.ndim == 2:
            probability = probability[None]
        else:
            probability = probability[:, None]
    # The tokens are not known: a name has the position only.
    unknown = model.task.length - 2
    tokens = ["<start>"] + [""] * unknown
    names = value_names(model, probability.shape[1], tokens)
    stripped = tuple(name.strip() for name in names)
    return Prior(model.latent, stripped, probability)


def require_latent(model: LanguageModel):
    """Raise a `UserError` if the model has no discrete latent."""
    if not model.latent:
        raise UserError(
            f"{model.name} has no discrete latent; use a mixture, such as DLM5, DLM10, DLM30 or a "
            "recurrent row with model.emission=mixture"
        )


@runtime_checkable
class HasAttentionMaps(Protocol):
    """The two members that a model class needs for attention maps."""

    attention_memory: Literal["prefix", "source"]

    def attention_maps(
        self, tokens: Tensor, *source: Tensor
    ) -> Float[Tensor, "layers B heads i j"]: ...


@dataclass(frozen=True)
class AttentionMaps:
    """Attention weights of one sentence."""

    axes: tuple[str, str]
    """Names of the last two axes of `weight`."""
    looking: Texts
    """Tokens of axis i."""
    looked_at: Texts
    """Tokens of axis j."""
    weight: Float[Tensor, "layers heads i j"]


@torch.no_grad()
def attention_maps(
    model: LanguageModel,
    ids: Sequence[int],
    tokens: Sequence[str],
    sources: tuple[Tensor, ...] = (),
    source_tokens: Sequence[str] = (),
) -> AttentionMaps:
    """Compute the attention maps of one sentence, given as ids and as text, `<start>` first.

    A model that reads a source needs its ids (1, S), length (1) and text.
    """
    assert isinstance(model, HasAttentionMaps)
    with evaluating(model):
        row = torch.tensor([list(ids[:-1])])
        weight = model.attention_maps(row, *sources)[:, 0]
    if model.attention_memory == "source":
        axes = ("predicted token", "source token")
        looking = number_tokens(tokens[1:], start=1)
        looked_at = number_tokens(source_tokens, start=1)
    else:
        axes = ("token that looks", "token looked at")
        looking = number_tokens(tokens[:-1])
        looked_at = looking
    return AttentionMaps(axes, looking, looked_at, weight)


@dataclass(frozen=True)
class Boundaries:
    """Boundaries of one sentence."""

    layers: Texts
    """Names of the layers that have a detector, lowest first."""
    tokens: Texts
    """The tokens that are read."""
    ended: Float[Tensor, "layers n"]


@torch.no_grad()
def boundaries(
    model: Any,
    ids: Sequence[int],
    tokens: Sequence[str],
) -> Boundaries:
    """Compute the boundaries of one sentence, given as ids and as text, `<start>` first."""
    columns = []
    with evaluating(model):
        state = model.begin(1)
        for token in ids[:-1]:
            row = torch.tensor([token])
            _, state = model.advance(state, row)
            layers = [model.cell.boundaries(layer).flatten() for layer in state.layers]
            columns.append(torch.cat(layers))
    ended = torch.stack(columns, 1)
    layers = range(1, len(ended) + 1)
    names = tuple(f"layer {n}" for n in layers)
    return Boundaries(names, number_tokens(tokens[:-1]), ended)
