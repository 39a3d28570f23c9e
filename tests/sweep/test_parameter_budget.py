"""Equal parameters: as wide as the budget allows, and not one wider."""

import pytest

from lmzoo import zoo
from lmzoo.contract import Task
from lmzoo.errors import UserError
from lmzoo.sweep.parameter_budget import count, fit_width

TASK = Task(vocab=50, length=6)
BUDGET = 5000


def wider(name: str, width: int) -> object:
    """The row one wider, wherever its width is."""
    fields = {"reader": {"width": width}} if name == "backward_lm" else {"width": width}
    return zoo.config(name, **fields)


@pytest.mark.parametrize("name", ["rnn_lm", "chain_slot_ngram", "transformer_decoder"])
def test_the_width_is_the_largest_within_the_budget(name: str) -> None:
    fitted = fit_width(zoo.config(name), TASK, BUDGET)
    width = fitted.width  # type: ignore[attr-defined]
    assert count(fitted, TASK) <= BUDGET < count(wider(name, width + 1), TASK)


def test_a_model_that_wraps_another_has_that_one_fitted() -> None:
    fitted = fit_width(zoo.config("backward_lm"), TASK, BUDGET)
    reader = fitted.reader  # type: ignore[attr-defined]
    assert reader.width != zoo.config("backward_lm").reader.width
    assert count(fitted, TASK) <= BUDGET < count(wider("backward_lm", reader.width + 1), TASK)


@pytest.mark.parametrize("name", ["ngram_count", "pcfg"])
def test_a_model_without_a_width_is_left_as_it_is(name: str) -> None:
    assert fit_width(zoo.config(name), TASK, 10) == zoo.config(name)


def test_a_budget_too_small_for_anything_is_refused() -> None:
    with pytest.raises(UserError, match="recurrent_lm has more than 50 parameters at width 2"):
        fit_width(zoo.config("rnn_lm"), TASK, 50)
