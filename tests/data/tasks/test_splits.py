"""The splits of generated tasks are honest, and a mistake in a config gives one line."""

import pytest

from lmzoo.data.corpus import CORPORA, open_corpus
from lmzoo.laws.corpora import CORPUS_LAWS
from tests.data.tasks.test_ceilings import SMALL, TASKS, small
from tests.user_errors import raises_user_error


@pytest.mark.parametrize("law", CORPUS_LAWS)
@pytest.mark.parametrize("name", TASKS)
def test_a_task_obeys_the_laws_of_corpora(name, law):
    law(CORPORA.build(CORPORA.parse({"name": name, **SMALL}), None))


@pytest.mark.parametrize("name", TASKS)
def test_no_sequence_is_in_two_splits(name):
    corpus = small(name)
    parts = [corpus.train, corpus.valid, corpus.test]
    rows = [
        {tuple(row[:n]) for row, n in zip(p.tokens.tolist(), p.lengths, strict=True)} for p in parts
    ]
    assert not (rows[0] & rows[1] | rows[0] & rows[2] | rows[1] & rows[2])


def test_strings_of_training_do_not_return_although_there_are_few():
    corpus = open_corpus({"name": "parity", "length": 6, "train": 60, "valid": 20, "test": 5})
    assert {len(p) for p in (corpus.valid,)} == {20}
    assert corpus.valid.lengths.min() > 3


@pytest.mark.parametrize(
    ("name", "extra"), [("parity", 2), ("modular_arithmetic", 1), ("s5", 2), ("dyck", 0)]
)
def test_test_sequences_are_longer(name, extra):
    corpus = small(name, length=10, test_length=30)
    assert corpus.train.lengths.max() <= 1 + 10 + extra + 1
    assert (corpus.test.lengths == 1 + 30 + extra).all()
    assert corpus.valid.lengths.max() <= corpus.train.tokens.shape[1]
    assert corpus.task.length == 1 + 30 + extra


def test_the_seed_determines_a_task():
    first, same, other = (small("s5", seed=seed) for seed in (1, 1, 2))
    assert first.fingerprint == same.fingerprint != other.fingerprint


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "parity", "length": 3, "train": 500, "valid": 20}, "20 valid sequences"),
        ({"name": "mqar", "pairs": 17}, "no room for 17 pairs"),
        ({"name": "mqar", "keys": 4}, "keys=4"),
        ({"name": "modular_arithmetic", "operators": "+/"}, "'+/'"),
        ({"name": "selective_copying", "length": 20}, "set at least 33"),
        ({"name": "fuzzy_recall", "letters": 2}, "letters=2"),
        ({"name": "fuzzy_recall", "length": 20}, "set at least 54"),
        ({"name": "memorisation", "keys": 3}, "16 keys"),
    ],
)
def test_a_mistake_gives_one_line(fields, message):
    with raises_user_error(message):
        open_corpus(fields)
