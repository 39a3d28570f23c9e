"""The backward language model, without and with `<end>`."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from lmzoo import zoo
from lmzoo.base.config import to_dict
from lmzoo.base.errors import UserError
from lmzoo.contract import END, START, Task
from lmzoo.laws.support import assert_close, log_prob
from tests.models.equivalence import small
from tests.models.sentences import pad_sentences
from tests.tiny import CLOSE, batch, shrink

READERS = ["recurrent_lm", "aggregate_markov", "latent_parent_positional"]


@pytest.mark.parametrize("reader", READERS)
def test_scores_are_the_readers_scores_of_the_reversed_sequence(reader: str) -> None:
    model = small("backward_lm", reader=reader)
    tokens, lengths = batch(model.task, count=20)
    actual = log_prob(model, tokens, lengths)
    for b, n in enumerate(lengths.tolist()):
        reversed_tokens = torch.cat([tokens[b, :1], tokens[b, 1:n].flip(0)])[None]
        expected = log_prob(model.reader, reversed_tokens, torch.tensor([n]))[0]
        assert_close(actual[b, 1:n], expected[1:].flip(0), CLOSE, f"scores of row {b}")
        assert not actual[b, n:].any()


def test_backward_model_is_not_causal_and_needs_a_causal_reader() -> None:
    assert not small("backward_lm").causal
    with pytest.raises(UserError, match="'backward_lm' cannot read backwards"):
        small("backward_lm", reader="backward_lm")


TASK = Task(vocab=4, length=5, ends=True)
WORDS = [v for v in range(TASK.vocab) if v != END]


def tiny_model(name: str, task: Task = TASK, **fields: Any) -> Any:
    small = shrink(to_dict(zoo.config(name, **fields)))
    return zoo.build(zoo.config(name, **small), task).eval()


def every_string() -> tuple[Tensor, Tensor]:
    """Return all strings: `<end>` after 0..T-2 words, and T-1 words without `<end>`."""
    whole = [
        (START, *words, END)
        for count in range(TASK.length - 1)
        for words in itertools.product(WORDS, repeat=count)
    ]
    cut = [(START, *words) for words in itertools.product(WORDS, repeat=TASK.length - 1)]
    return pad_sentences([*whole, *cut], TASK.length)


def mass(scores: Tensor) -> Tensor:
    return scores.double().sum(1).exp().sum().float()


END_READERS: list[Any] = ["recurrent_lm", {"starts": 2}, "aggregate_markov"]


@pytest.mark.parametrize("reader", END_READERS)
def test_probabilities_of_all_strings_sum_to_one(reader: Any) -> None:
    back = tiny_model("backward_lm", reader=reader)
    for density in (back, back.reader):
        assert_close(mass(log_prob(density, *every_string())), torch.ones(()), CLOSE, density.name)


def test_end_is_predicted_last_and_words_from_right_to_left() -> None:
    back = tiny_model("backward_lm")
    tokens, lengths = pad_sentences([(START, 3, 0, 1, END), (START, 3, END), (START, END)], 5)
    actual = log_prob(back, tokens, lengths)
    for row, read in enumerate([(START, 1, 0, 3, END), (START, 3, END), (START, END)]):
        scores = log_prob(back.reader, *pad_sentences([read], 5))[0, 1 : len(read)]
        expected = torch.cat([scores[:-1].flip(0), scores[-1:]])
        assert_close(actual[row, 1 : len(read)], expected, CLOSE, f"scores of row {row}")
