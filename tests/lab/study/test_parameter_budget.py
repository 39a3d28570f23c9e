"""`fit_width` returns the largest width within a parameter budget."""

import pytest

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.contract import Task
from lmzoo.trainables.parameter_budget import count_parameters, fit_width

TASK = Task(vocab=50, length=6)
BUDGET = 5000


@pytest.mark.parametrize("name", ["rnn_lm", "chain_slot_ngram", "transformer_decoder"])
def test_the_width_is_the_largest_within_the_budget(name: str) -> None:
    fitted = fit_width(zoo.config(name), TASK, BUDGET)
    wider = zoo.config(name, width=fitted.width + 1)  # type: ignore[attr-defined]
    assert count_parameters(fitted, TASK) <= BUDGET < count_parameters(wider, TASK)


def test_the_width_of_a_wrapped_model_is_fitted_and_one_without_a_width_is_unchanged() -> None:
    fitted = fit_width(zoo.config("backward_lm"), TASK, BUDGET)
    wider = zoo.config("backward_lm", reader={"width": fitted.reader.width + 1})  # type: ignore[attr-defined]
    assert count_parameters(fitted, TASK) <= BUDGET < count_parameters(wider, TASK)
    for name in ("ngram_count", "pcfg"):
        assert fit_width(zoo.config(name), TASK, 10) == zoo.config(name)


def test_a_budget_that_no_width_has_is_refused() -> None:
    with pytest.raises(UserError, match="recurrent_lm has more than 50 parameters at width 2"):
        fit_width(zoo.config("rnn_lm"), TASK, 50)
    with pytest.raises(UserError, match="recurrent_lm has less than 1,000,000,000,000 parameters"):
        fit_width(zoo.config("rnn_lm"), TASK, 10**12)
