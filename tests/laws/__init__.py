"""What every model must obey; each law takes a model and raises AssertionError.

`laws_for(model)` selects: only an EXACT score claims to be a normalised density, and only
a causal one that a token's score reads nothing but what stands to its left.
"""

from collections.abc import Callable

from lmzoo.contract import LanguageModel, Score
from tests.laws import batching, density, learning, making

Law = Callable[[LanguageModel], None]


def laws_of(module: object) -> tuple[Law, ...]:
    """The laws a module states."""
    return tuple(law for name, law in vars(module).items() if name.startswith("law_"))


LEFT_TO_RIGHT = (density.law_causal, density.law_scores_agree)
COMMON = (*laws_of(batching), *laws_of(learning), *laws_of(making))


def laws_for(model: type[LanguageModel]) -> tuple[Law, ...]:
    """The laws that models of this class must obey."""
    if model.score is not Score.EXACT:
        return COMMON
    laws = (*laws_of(density), *COMMON)
    return laws if model.causal else tuple(law for law in laws if law not in LEFT_TO_RIGHT)
