"""Training with the kernels of an emission computes no tensor of shape (B, T, V)."""

from typing import Any

import pytest

from lmzoo import zoo
from lmzoo.contract import Task
from lmzoo.kernels.dispatch import without_kernels
from lmzoo.laws.support import loss
from tests.largest_tensor import LargestTensorMode
from tests.tiny import batch

VOCAB, LENGTH, COUNT, WIDTH, COMPONENTS = 200, 6, 8, 4, 3


def largest_numel(emission: dict[str, Any]) -> int:
    """Return the number of elements of the largest tensor in a training step."""
    config = zoo.config("recurrent_lm", cell="rnn", width=WIDTH, emission=emission)
    model = zoo.build(config, Task(vocab=VOCAB, length=LENGTH))
    with LargestTensorMode() as seen:
        loss(model, *batch(model.task, count=COUNT)).backward()
    return seen.max_numel


@pytest.mark.parametrize(
    "emission", [{"name": "vector"}, {"name": "mixture", "components": COMPONENTS}]
)
def test_an_emission_computes_no_tensor_of_shape_b_t_v(emission: dict[str, Any]) -> None:
    dense = COUNT * (LENGTH - 1) * VOCAB
    with without_kernels():
        assert largest_numel({"name": "vector"}) >= dense
    assert largest_numel(emission) <= WIDTH * VOCAB < dense
