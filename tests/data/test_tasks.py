"""Every task is solved by a predictor that is written apart from its generator; splits are honest.

A predictor takes the names of the symbols before a scored symbol, and returns its name.
"""

from collections.abc import Callable, Sequence
from math import log

import pytest

from lmzoo.contract import START
from lmzoo.data.corpus import CORPORA, Corpus, Sequences, open_corpus
from lmzoo.data.tasks import GeneratedTask
from tests.cases import cases
from tests.data.corpus_parts import decoded, parts_of
from tests.user_errors import raises_user_error

SMALL = {"train": 40, "valid": 30, "test": 20}
TASKS = [name for name in CORPORA if issubclass(CORPORA[name], GeneratedTask)]
Prefix = Sequence[str]


def compose(prefix: Prefix) -> str:
    """Return the product by moving things one after another."""
    *permutations, _ = prefix
    places = "12345"[: len(prefix[0])]
    for permutation in permutations:
        moved = [permutation[int(place) - 1] for place in places]
        places = "".join(moved)
    return places


def recall(prefix: Prefix) -> str:
    """Return what followed the last symbol where it first was at an even place."""
    # Keys are at even places, and their values follow them.
    keys = prefix[::2]
    first = 2 * keys.index(prefix[-1])
    return prefix[first + 1]


def parity(prefix: Prefix) -> str:
    ones = "".join(prefix).count("1")
    return str(ones % 2)


def remainder(prefix: Prefix) -> str:
    # The last symbol is the sign of equality.
    expression = "".join(prefix[:-1])
    value = eval(expression)
    return str(value % 5)


ORACLES: dict[str, Callable[[Prefix], str]] = {
    "mqar": recall,
    "parity": parity,
    "modular_arithmetic": remainder,
    "s5": compose,
    "s3": compose,
}


def small(name: str, **fields: object) -> Corpus:
    return open_corpus({"name": name, **SMALL, **fields})


def accuracy(corpus: Corpus, part: Sequences) -> float:
    """Return how often the predictor knows a scored symbol from those before it."""
    predict = ORACLES[corpus.name]
    names = corpus.vocabulary.tokens
    right = 0
    places = part.scored.nonzero().tolist()
    for row, t in places:
        ids = part.tokens[row].tolist()
        text = [names[i] for i in ids]
        right += predict(text[1:t]) == text[t]
    return right / len(places)


@pytest.mark.parametrize("name", TASKS)
def test_no_sequence_is_in_two_splits(name):
    corpus = small(name)
    # Equal texts may have paddings of different widths.
    train, valid, test = (set(decoded(corpus, part)) for part in parts_of(corpus))
    assert train.isdisjoint(valid)
    assert test.isdisjoint(train | valid)


@pytest.mark.parametrize("name", TASKS)
def test_the_prefix_determines_every_answer(name):
    corpus = small(name)
    assert corpus.ceiling == 1
    assert corpus.floor.token == corpus.floor.sentence == 0
    assert accuracy(corpus, corpus.valid) == 1
    assert accuracy(corpus, corpus.test) == 1


@pytest.mark.parametrize("name", TASKS)
def test_a_wrong_answer_is_seen(name):
    corpus = small(name)
    first = corpus.test.scored.nonzero()[0]
    row, place = first.tolist()
    corpus.test.ids[row, place] = START
    assert accuracy(corpus, corpus.test) < 1


def test_queries_of_mqar_come_sooner_with_a_smaller_power():
    def mean_place(power: float) -> float:
        part = small("mqar", power=power, test=300, pairs=2).test
        _, places = part.scored.nonzero(as_tuple=True)
        return float(places.double().mean())

    # With a = 1 gaps are uniform: 30 slots after 4 symbols, on average at 4 + 30 + 1.5 − 0.5.
    assert mean_place(1.0) == pytest.approx(35, abs=2.5)
    assert mean_place(0.01) < 25


def test_strings_of_training_do_not_return_although_there_are_few():
    # There are 126 strings of up to 6 bits.
    corpus = small("parity", length=6, train=60, valid=20, test=5)
    assert len(corpus.valid) == 20
    assert corpus.valid.lengths.min() > 3


@pytest.mark.parametrize(("name", "extra"), [("parity", 2), ("modular_arithmetic", 1)])
def test_test_sequences_are_longer(name, extra):
    corpus = small(name, length=10, test_length=30)
    _, train_width = corpus.train.tokens.shape
    longest = 1 + 30 + extra
    assert corpus.train.lengths.max() <= 1 + 10 + extra + 1
    assert corpus.valid.lengths.max() <= train_width
    assert corpus.test.lengths.eq(longest).all()
    assert corpus.task.length == longest


@cases("data/cases.toml", "tasks", "fields, message")
def test_a_mistake_gives_one_line(fields, message):
    with raises_user_error(message):
        open_corpus(fields)


def assert_random_symbols(corpus: Corpus):
    """Assert nine symbols in sequences of full length."""
    # Four special tokens come before the symbols.
    assert corpus.task.vocab == 4 + 9
    length = corpus.task.length
    for split, count in SMALL.items():
        part = getattr(corpus, split)
        symbols = part.tokens[:, 1:]
        assert part.tokens.shape == (count, length)
        assert part.tokens[:, 0].eq(START).all()
        assert symbols.unique().tolist() == list(range(4, 13))
        assert part.lengths.eq(length).all()


def test_independent_symbols_have_the_entropy_of_their_number():
    corpus = small("iid", symbols=9, length=7)
    assert_random_symbols(corpus)
    assert corpus.task.length == 7
    assert corpus.floor.token == corpus.floor.sentence == log(9)


@pytest.mark.parametrize("name", ["copy", "reverse"])
def test_random_symbols_are_copied_or_reversed(name):
    corpus = small(name, symbols=9, length=7)
    assert_random_symbols(corpus)
    assert corpus.task.length == 8
    assert corpus.floor.token == corpus.floor.sentence == 0
    assert corpus.task.source_vocab == 13
    assert corpus.task.source_length == 7
    for part in parts_of(corpus):
        source, lengths = part.sources
        targets = part.tokens[:, 1:]
        if name == "reverse":
            source = source.flip(1)
        assert targets.equal(source)
        assert lengths.eq(7).all()


def test_copies_and_reversals_have_the_same_sources():
    copied, _ = small("copy", symbols=9, length=7).train.sources
    reversed_, _ = small("reverse", symbols=9, length=7).train.sources
    assert copied.equal(reversed_)
