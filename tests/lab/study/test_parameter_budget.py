"""`fit_width` returns the largest width within a parameter budget."""

import pytest

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.contract import Task
from lmzoo.trainables.parameter_budget import count_parameters, fit_width

TASK = Task(vocab=50, length=6)
BUDGET = 5000


def wider(name: str, width: int) -> object:
    """Return the row's config with this width, which may be in a wrapped model."""
    fields = {"reader": {"width": width}} if name == "backward_lm" else {"width": width}
    return zoo.config(name, **fields)


@pytest.mark.parametrize("name", ["rnn_lm", "chain_slot_ngram", "transformer_decoder"])
def test_the_width_is_the_largest_within_the_budget(name: str) -> None:
    fitted = fit_width(zoo.config(name), TASK, BUDGET)
    width = fitted.width  # type: ignore[attr-defined]
    assert count_parameters(fitted, TASK) <= BUDGET < count_parameters(wider(name, width + 1), TASK)


def test_the_width_of_a_wrapped_model_is_fitted() -> None:
    fitted = fit_width(zoo.config("backward_lm"), TASK, BUDGET)
    reader = fitted.reader  # type: ignore[attr-defined]
    assert reader.width != zoo.config("backward_lm").reader.width
    assert (
        count_parameters(fitted, TASK)
        <= BUDGET
        < count_parameters(wider("backward_lm", reader.width + 1), TASK)
    )


@pytest.mark.parametrize("name", ["ngram_count", "pcfg"])
def test_a_model_without_a_width_is_unchanged(name: str) -> None:
    assert fit_width(zoo.config(name), TASK, 10) == zoo.config(name)


def test_a_budget_below_the_smallest_width_is_refused() -> None:
    with pytest.raises(UserError, match="recurrent_lm has more than 50 parameters at width 2"):
        fit_width(zoo.config("rnn_lm"), TASK, 50)


def test_a_budget_above_the_largest_width_is_refused() -> None:
    with pytest.raises(UserError, match="recurrent_lm has less than 1,000,000,000,000 parameters"):
        fit_width(zoo.config("rnn_lm"), TASK, 10**12)
