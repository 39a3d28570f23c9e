r"""What the values of a discrete latent are called.

    parent, source ...     the earlier tokens, `0 <start>`, `1 a`, ..
    parent and arc type    `0 <start> / 0`, `0 <start> / 1`, .. in the order a·R + r
    A or B                 `A`, `B`, or `A`, `B 1`, `B 2`, ..
    permutation            the lag at each place of the window, as `2 1 3`
    state of a group       `0.0`, `0.1`, .. group and state
    anything else          `0`, `1`, ..

S0 (its figures of latents); zoo.md 2.
"""

from collections.abc import Sequence

from lmzoo.contract import LanguageModel
from lmzoo.models.markov.factorial_aggregate_markov import FactorialAggregateMarkov
from lmzoo.models.ngram.permutation_log_bilinear import PermutationLogBilinear


def value_names(model: LanguageModel, count: int, sources: Sequence[str]) -> tuple[str, ...]:
    """Names of the `count` values of the model's latent; `sources` are the tokens s_0, s_1, .."""
    if points_back(model):
        names = numbered(sources)
        types = count // len(names)
        if types == 1:
            return names
        return tuple(f"{name} / {r}" for name in names for r in range(types))
    if isinstance(model, PermutationLogBilinear):
        return tuple(" ".join(str(lag + 1) for lag in order) for order in model.orders.tolist())
    if isinstance(model, FactorialAggregateMarkov):
        states = model.config.states
        return tuple(f"{k // states}.{k % states}" for k in range(count))
    first, either, rest = model.latent.partition(" or ")
    if not either:
        return tuple(map(str, range(count)))
    others = [rest] if count == 2 else [f"{rest} {k}" for k in range(1, count)]
    return (first, *others)


def points_back(model: LanguageModel) -> bool:
    """Whether the latent's values are positions of earlier tokens."""
    return "parent" in model.latent or "source" in model.latent


def numbered(tokens: Sequence[str], start: int = 0) -> tuple[str, ...]:
    """Tokens with their positions, so that equal words stay apart."""
    return tuple(f"{i} {token}" for i, token in enumerate(tokens, start))
