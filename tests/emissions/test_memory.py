"""Training with a mixture emission makes no tensor as large as a score for every word."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lmzoo import zoo
from lmzoo.contract import Task
from tests.laws.ask import loss
from tests.tiny import batch

VOCAB, LENGTH, COUNT, WIDTH, COMPONENTS = 200, 6, 8, 4, 3


class Largest(TorchDispatchMode):
    """Remembers the most numbers any operation, forward or backward, put into one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.numbers = max([self.numbers, *(tensor.numel() for tensor in tensors)])
        return result


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
