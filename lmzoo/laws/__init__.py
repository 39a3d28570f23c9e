"""Laws that every model must obey: functions that take a model and raise AssertionError.

In comes a model, a cell, an emission or a corpus. Read `every_model.py` and `density.py` first: a
law is its docstring. `tests/faults.py` has a fault for each, and names the laws that detect it.
`probes.py` measures the same for models that are not of the zoo (`lmzoo audit`).

`laws_for(model)` selects the laws of a model class. Only an EXACT score claims to be a normalised
density, a CONDITIONAL score claims it for any given source, and only a causal model claims that
the score of a token depends on nothing but the tokens to its left.
"""

from collections.abc import Callable

from lmzoo.contract import LanguageModel, Score
from lmzoo.laws import conditional, density, every_model, extremes, objectives
from lmzoo.laws.tiny import laws_of

Law = Callable[[LanguageModel], None]


LEFT_TO_RIGHT = (
    density.law_causal,
    extremes.law_large_weights_agree,
    density.law_log_prob_equals_next_log_prob,
    density.law_advance_equals_next_log_prob,
    density.law_most_probable_is_the_argmax,
)


def laws_for(model: type[LanguageModel]) -> list[Law]:
    """Return the laws that models of this class must obey."""
    found = laws_of(every_model)
    found.append(extremes.law_runs_in_half_precision)
    if model.objective is not LanguageModel.objective:
        found += laws_of(objectives)
    if model.score is Score.OBJECTIVE:
        found.remove(every_model.law_overfits_one_sequence)  # its loss has no known minimum
        return found
    found.append(extremes.law_no_log_probability_exceeds_zero)
    if model.score not in (Score.EXACT, Score.CONDITIONAL):
        return found
    strict = laws_of(density)
    strict.append(extremes.law_large_weights_agree)
    found = strict + found
    if model.score is Score.CONDITIONAL:
        found += laws_of(conditional)
    if not model.causal:
        found = [law for law in found if law not in LEFT_TO_RIGHT]
    return found
