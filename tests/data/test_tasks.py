"""Every task is solved by a predictor that is written apart from its generator; splits are honest.

A predictor takes the names of the symbols before a scored symbol, and returns its name.
"""

from collections.abc import Callable, Sequence
from math import log

import pytest

from lmzoo.contract import START
from lmzoo.data.corpus import CORPORA, Corpus, Sequences, open_corpus
from lmzoo.data.tasks import GeneratedTask
from tests.user_errors import raises_user_error

SMALL = {"train": 40, "valid": 30, "test": 20}
TASKS = [name for name in CORPORA if issubclass(CORPORA[name], GeneratedTask)]
Prefix = Sequence[str]


def compose(prefix: Prefix) -> str:
    """Return the product by moving things one after another."""
    places = "12345"[: len(prefix[0])]
    for g in prefix[:-1]:
        places = "".join(g[int(place) - 1] for place in places)
    return places


ORACLES: dict[str, Callable[[Prefix], str]] = {
    # what followed the last symbol where it first was at an even place
    "mqar": lambda p: next(p[i + 1] for i in range(0, len(p), 2) if p[i] == p[-1]),
    "parity": lambda p: str("".join(p).count("1") % 2),
    "modular_arithmetic": lambda p: str(eval("".join(p[:-1])) % 5),
    **dict.fromkeys(("s5", "s3"), compose),
}


def small(name: str, **fields: object) -> Corpus:
    return open_corpus({"name": name, **SMALL, **fields})


def accuracy(corpus: Corpus, part: Sequences) -> float:
    """Return how often the predictor knows a scored symbol from those before it."""
    right = []
    for tokens, scored in zip(part.tokens, part.scored, strict=True):
        text = [corpus.vocabulary.tokens[i] for i in tokens.tolist()]
        places = scored.nonzero()[:, 0].tolist()
        right += [ORACLES[corpus.name](text[1:t]) == text[t] for t in places]
    return sum(right) / len(right)


@pytest.mark.parametrize("name", TASKS)
def test_the_prefix_determines_every_answer_and_splits_differ(name):
    corpus = small(name)
    rows = [
        {tuple(row[:n]) for row, n in zip(part.tokens.tolist(), part.lengths, strict=True)}
        for part in (corpus.train, corpus.valid, corpus.test)
    ]
    assert len(set.union(*rows)) == sum(map(len, rows)), "a sequence is in two splits"
    for part in (corpus.valid, corpus.test):
        assert accuracy(corpus, part) == corpus.ceiling == 1
    assert corpus.floor.token == corpus.floor.sentence == 0
    row, t = corpus.test.scored.nonzero()[0].tolist()
    corpus.test.ids[row, t] = START
    assert accuracy(corpus, corpus.test) < 1, "a wrong answer is not seen"


def test_queries_of_mqar_come_sooner_with_a_smaller_power():
    def mean_place(power: float) -> float:
        part = small("mqar", power=power, test=300, pairs=2).test
        return float(part.scored.nonzero()[:, 1].double().mean())

    # With a = 1 gaps are uniform: 30 slots after 4 symbols, on average at 4 + 30 + 1.5 − 0.5.
    assert mean_place(1.0) == pytest.approx(35, abs=2.5)
    assert mean_place(0.01) < 25


def test_strings_of_training_do_not_return_although_there_are_few():
    corpus = open_corpus({"name": "parity", "length": 6, "train": 60, "valid": 20, "test": 5})
    assert len(corpus.valid) == 20
    assert corpus.valid.lengths.min() > 3


@pytest.mark.parametrize(("name", "extra"), [("parity", 2), ("modular_arithmetic", 1)])
def test_test_sequences_are_longer(name, extra):
    corpus = small(name, length=10, test_length=30)
    assert corpus.train.lengths.max() <= 1 + 10 + extra + 1
    assert (corpus.test.lengths == 1 + 30 + extra).all()
    assert corpus.valid.lengths.max() <= corpus.train.tokens.shape[1]
    assert corpus.task.length == 1 + 30 + extra


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "parity", "length": 3, "train": 500, "valid": 20}, "20 valid sequences"),
        ({"name": "mqar", "pairs": 17}, "no room for 17 pairs"),
        ({"name": "mqar", "keys": 4}, "keys=4"),
        ({"name": "modular_arithmetic", "operators": "+/"}, "'+/'"),
    ],
)
def test_a_mistake_gives_one_line(fields, message):
    with raises_user_error(message):
        open_corpus(fields)


@pytest.mark.parametrize("name", ["iid", "copy", "reverse"])
def test_random_symbols_are_the_target_or_its_source(name):
    corpus = small(name, symbols=9, length=7)
    task, paired = corpus.task, name != "iid"
    assert (task.vocab, task.length) == (13, 7 + paired)
    assert corpus.floor.token == corpus.floor.sentence == (0 if paired else log(9))
    for split, count in SMALL.items():
        part = getattr(corpus, split)
        assert part.tokens.shape == (count, task.length)
        assert part.tokens[:, 0].eq(START).all()
        target = part.tokens[:, 1:]
        assert set(target.unique().tolist()) == {*range(4, 13)}
        assert part.lengths.eq(task.length).all()
        if paired:
            source, n = part.sources
            assert target.equal(source if name == "copy" else source.flip(1))
            assert n.eq(7).all()
    if paired:
        assert (task.source_vocab, task.source_length) == (13, 7)
        copy = small("copy", symbols=9, length=7)
        assert copy.train.sources[0].equal(corpus.train.sources[0]), "the same sources"
