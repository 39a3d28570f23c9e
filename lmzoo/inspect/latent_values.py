r"""Names of the values of a discrete latent.

    parent, source ...      the earlier tokens: `0 <start>`, `1 a`, ...
    parent and arc type     `0 <start> / 0`, `0 <start> / 1`, ... in the order a·R + r
    A or B                  `A`, `B`, or `A`, `B 1`, `B 2`, ...
    other                   the model's `latent_value_names()` if it has one, else `0`, `1`, ...

Source: S0 (figures of latents).
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from lmzoo.contract import LanguageModel


@runtime_checkable
class NamesLatentValues(Protocol):
    """The method that a model class needs to name the values of its latent."""

    def latent_value_names(self) -> tuple[str, ...]: ...


def value_names(model: LanguageModel, count: int, tokens: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the `count` values of the model's latent, for the tokens s_0, s_1, .."""
    if "parent" in model.latent or "source" in model.latent:
        names = number_tokens(tokens)
        types = count // len(names)
        if types == 1:
            return names
        return tuple(f"{name} / {r}" for name in names for r in range(types))
    if isinstance(model, NamesLatentValues):
        return model.latent_value_names()
    first, either, rest = model.latent.partition(" or ")
    if not either:
        return tuple(map(str, range(count)))
    others = [rest] if count == 2 else [f"{rest} {k}" for k in range(1, count)]
    return (first, *others)


def number_tokens(tokens: Sequence[str], start: int = 0) -> tuple[str, ...]:
    """Prefix tokens with their positions, so that equal tokens have different names."""
    return tuple(f"{i} {token}" for i, token in enumerate(tokens, start))
