"""What every model must obey; each law takes a model and raises AssertionError.

`laws_for(model)` selects: only an EXACT score claims to be a normalised density, a
CONDITIONAL one claims it given any source, and only a causal one that a token's score reads
nothing but what stands to its left.
"""

from collections.abc import Callable

from lmzoo.contract import LanguageModel, Score
from tests.laws import (
    batching,
    conditional,
    density,
    fusing,
    learning,
    making,
    objectives,
    replaying,
    stepping,
)

Law = Callable[[LanguageModel], None]


def laws_of(module: object) -> tuple[Law, ...]:
    """The laws a module states."""
    return tuple(law for name, law in vars(module).items() if name.startswith("law_"))


LEFT_TO_RIGHT = (density.law_causal, density.law_scores_agree, *laws_of(stepping))
COMMON = (
    *laws_of(batching),
    *laws_of(learning),
    *laws_of(making),
    *laws_of(fusing),
    *laws_of(replaying),
)


def laws_for(model: type[LanguageModel]) -> tuple[Law, ...]:
    """The laws that models of this class must obey."""
    common = COMMON
    if model.objective is not LanguageModel.objective:
        common = (*common, *laws_of(objectives))
    if model.score is Score.OBJECTIVE:  # its loss has no floor that is known
        return tuple(law for law in common if law is not learning.law_overfits_one_sequence)
    if model.score not in (Score.EXACT, Score.CONDITIONAL):
        return common
    laws = (*laws_of(density), *laws_of(stepping), *common)
    if model.score is Score.CONDITIONAL:
        laws = (*laws, *laws_of(conditional))
    return laws if model.causal else tuple(law for law in laws if law not in LEFT_TO_RIGHT)
