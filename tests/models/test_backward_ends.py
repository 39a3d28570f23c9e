"""Backward models on corpora with `<end>`: all strings have total probability 1."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from lmzoo import zoo
from lmzoo.config import to_dict
from lmzoo.contract import END, START, Task
from lmzoo.data.open import open_corpus
from tests.laws.density import law_sums_to_one
from tests.laws.support import assert_close, log_prob
from tests.models.sentences import pad_sentences
from tests.tiny import CLOSE, shrink

TASK = Task(vocab=4, length=5, ends=True)
WORDS = [v for v in range(TASK.vocab) if v != END]


def model(name: str, task: Task = TASK, **fields: Any) -> Any:
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


READERS: list[Any] = ["recurrent_lm", {"starts": 2}, "aggregate_markov"]


@pytest.mark.parametrize("reader", READERS)
def test_probabilities_of_all_strings_sum_to_one(reader: Any) -> None:
    back = model("backward_lm", reader=reader)
    for density in (back, back.reader):
        assert_close(mass(log_prob(density, *every_string())), torch.ones(()), CLOSE, density.name)


def test_probabilities_of_all_strings_of_full_length_sum_to_one() -> None:
    """The reversal maps different strings to different strings, with and without `<end>`."""
    law_sums_to_one(model("backward_lm"))


def test_reading_end_first_would_not_sum_to_one_over_all_lengths() -> None:
    """Without `task.ends` the scores are conditional on the length."""
    task = Task(vocab=TASK.vocab, length=TASK.length)
    total = mass(log_prob(model("backward_lm", task), *every_string()))
    assert (total - 1).abs() > 0.05


def test_end_is_predicted_last_and_words_from_right_to_left() -> None:
    back = model("backward_lm")
    tokens, lengths = pad_sentences([(START, 3, 0, 1, END), (START, 3, END), (START, END)], 5)
    actual = log_prob(back, tokens, lengths)
    for row, read in enumerate([(START, 1, 0, 3, END), (START, 3, END), (START, END)]):
        scores = log_prob(back.reader, *pad_sentences([read], 5))[0, 1 : len(read)]
        expected = torch.cat([scores[:-1].flip(0), scores[-1:]])
        assert_close(actual[row, 1 : len(read)], expected, CLOSE, f"scores of row {row}")


def test_elmo_backward_probabilities_of_all_strings_sum_to_one() -> None:
    elmo = model("elmo")
    with torch.no_grad():
        total = mass(elmo.backward_log_prob(*every_string()))
    assert_close(total, torch.ones(()), CLOSE, "total")


def test_elmo_backward_vectors_do_not_depend_on_end() -> None:
    """h← of a word depends on the words after it; h← of `<end>` depends on nothing."""
    elmo = model("elmo")
    tokens, lengths = pad_sentences([(START, 3, 0, END), (START, 1, 0, END), (START, 3, 1, END)], 5)
    left = slice(elmo.config.width, 2 * elmo.config.width)
    with torch.no_grad():
        reference, first, second = elmo.represent(tokens, lengths)[..., left].unbind()
    assert reference[2:4].equal(first[2:4])
    assert reference[3].equal(second[3])
    assert (reference[1] - first[1]).abs().max() > 1e-4
    assert (reference[1:3] - second[1:3]).abs().amax(1).min() > 1e-4


def test_corpus_task_says_whether_sequences_have_an_end_token() -> None:
    small = {"train": 5, "valid": 2, "test": 2}
    assert open_corpus({"name": "captions", **small}).task.ends
    assert not open_corpus({"name": "iid", **small}).task.ends
