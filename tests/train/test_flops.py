"""Matrix products are counted from the equations of a model."""

import pytest

from lmzoo import zoo
from lmzoo.contract import Task
from lmzoo.train.flops import matrix_flops


def test_the_products_of_an_lstm_are_those_of_its_equations() -> None:
    """Four gates read x and h, and a tied softmax has V logits."""
    vocab, width = 30, 8
    task = Task(vocab=vocab, length=12, ends=True)
    model = zoo.build(zoo.config("lstm_lm", width=width), task)
    assert matrix_flops(model, task) == 2 * (8 * width * width + width * vocab)


@pytest.mark.parametrize(("row", "grows"), [("gru", False), ("transformer_decoder", True)])
def test_attention_costs_more_at_a_greater_length_and_a_finite_state_does_not(row, grows) -> None:
    tasks = [Task(vocab=30, length=length, ends=True) for length in (25, 60)]
    short, long = (matrix_flops(zoo.build(zoo.config(row, width=8), own), own) for own in tasks)
    assert (short < long) is grows
    assert short <= long
