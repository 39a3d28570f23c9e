"""Training with a mixture emission makes no tensor as large as a score for every word."""

from typing import Any

from lmzoo import zoo
from lmzoo.contract import Task
from tests.largest import Largest
from tests.laws.ask import loss
from tests.tiny import batch

VOCAB, LENGTH, COUNT, WIDTH, COMPONENTS = 200, 6, 8, 4, 3


def largest(emission: dict[str, Any]) -> int:
    config = zoo.config("recurrent_lm", cell="rnn", width=WIDTH, emission=emission)
    model = zoo.build(config, Task(vocab=VOCAB, length=LENGTH))
    with Largest() as seen:
        loss(model, *batch(model.task, count=COUNT)).backward()
    return seen.numbers


def test_nothing_of_shape_b_t_v_exists() -> None:
    every_word = COUNT * (LENGTH - 1) * VOCAB
    assert largest({"name": "vector"}) >= every_word
    assert largest({"name": "mixture", "components": COMPONENTS}) <= WIDTH * VOCAB < every_word
