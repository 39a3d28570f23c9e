"""Where sequences end in `<end>` a reader from the right pays for the stop, once (S4)."""

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
from tests.models.sentences import padded
from tests.tiny import CLOSE, shrink

TASK = Task(vocab=4, length=5, ends=True)
WORDS = [v for v in range(TASK.vocab) if v != END]


def model(name: str, task: Task = TASK, **fields: Any) -> Any:
    small = shrink(to_dict(zoo.config(name, **fields)))
    return zoo.build(zoo.config(name, **small), task).eval()


def every_string() -> tuple[Tensor, Tensor]:
    """All that can be read: `<end>` after 0 .. T-2 words, or T-1 words and no room for it."""
    whole = [
        (START, *words, END)
        for count in range(TASK.length - 1)
        for words in itertools.product(WORDS, repeat=count)
    ]
    cut = [(START, *words) for words in itertools.product(WORDS, repeat=TASK.length - 1)]
    return padded([*whole, *cut], TASK.length)


def mass(scores: Tensor) -> Tensor:
    return scores.double().sum(1).exp().sum().float()


READERS: list[Any] = ["recurrent_lm", {"starts": 2}, "aggregate_markov"]


@pytest.mark.parametrize("reader", READERS)
def test_all_sequences_of_all_lengths_sum_to_one_as_from_the_left(reader: Any) -> None:
    back = model("backward_lm", reader=reader)
    for density in (back, back.reader):
        assert_close(mass(log_prob(density, *every_string())), torch.ones(()), CLOSE, density.name)


def test_so_do_all_strings_of_one_length_whatever_stands_where() -> None:
    """Turned round alike whether they end or were cut: two of them never become one."""
    law_sums_to_one(model("backward_lm"))


def test_were_the_end_read_first_each_length_would_have_a_mass_of_its_own() -> None:
    """What a corpus without `<end>` means by a score, and why one with it must not."""
    task = Task(vocab=TASK.vocab, length=TASK.length)
    total = mass(log_prob(model("backward_lm", task), *every_string()))
    assert (total - 1).abs() > 0.05


def test_the_end_is_foretold_last_and_the_words_from_the_right() -> None:
    back = model("backward_lm")
    tokens, lengths = padded([(START, 3, 0, 1, END), (START, 3, END), (START, END)], 5)
    found = log_prob(back, tokens, lengths)
    for row, read in enumerate([(START, 1, 0, 3, END), (START, 3, END), (START, END)]):
        told = log_prob(back.reader, *padded([read], 5))[0, 1 : len(read)]
        expected = torch.cat([told[:-1].flip(0), told[-1:]])
        assert_close(found[row, 1 : len(read)], expected, CLOSE, f"scores of row {row}")


def test_elmo_s_backward_model_pays_for_the_stop_too() -> None:
    elmo = model("elmo")
    with torch.no_grad():
        total = mass(elmo.backward_log_prob(*every_string()))
    assert_close(total, torch.ones(()), CLOSE, "total")


def test_elmo_s_words_do_not_depend_on_where_the_end_is_read() -> None:
    """h← of a word has read the words behind it; that of `<end>` has read nothing."""
    elmo = model("elmo")
    tokens, lengths = padded([(START, 3, 0, END), (START, 1, 0, END), (START, 3, 1, END)], 5)
    left = slice(elmo.config.width, 2 * elmo.config.width)
    with torch.no_grad():
        one, first, second = elmo.represent(tokens, lengths)[..., left].unbind()
    assert one[2:4].equal(first[2:4])
    assert one[3].equal(second[3])
    assert (one[1] - first[1]).abs().max() > 1e-4
    assert (one[1:3] - second[1:3]).abs().amax(1).min() > 1e-4


def test_a_corpus_says_whether_its_sequences_end() -> None:
    small = {"train": 5, "valid": 2, "test": 2}
    assert open_corpus({"name": "captions", **small}).task.ends
    assert not open_corpus({"name": "iid", **small}).task.ends
