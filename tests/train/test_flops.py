"""Matrix products are counted from the equations of a model."""

from lmzoo import zoo
from lmzoo.contract import Task
from lmzoo.train.flops import matrix_flops


def test_the_products_of_an_lstm_are_those_of_its_equations() -> None:
    """Four gates read x and h, and a tied softmax has V logits."""
    vocab, width = 30, 8
    task = Task(vocab=vocab, length=12, ends=True)
    model = zoo.build(zoo.config("lstm_lm", width=width), task)
    assert matrix_flops(model, task) == 2 * (8 * width * width + width * vocab)


def test_each_token_of_a_finite_state_costs_the_same() -> None:
    counts = set()
    for length in (25, 60):
        task = Task(vocab=30, length=length, ends=True)
        counts.add(matrix_flops(zoo.build(zoo.config("gru", width=8), task), task))
    assert len(counts) == 1


def test_attention_costs_more_at_a_greater_length() -> None:
    counts = []
    for length in (10, 40):
        task = Task(vocab=30, length=length, ends=True)
        counts.append(matrix_flops(zoo.build(zoo.config("transformer_decoder"), task), task))
    assert counts[0] < counts[1]
