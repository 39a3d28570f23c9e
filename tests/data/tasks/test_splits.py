"""The splits of generated tasks are honest, and a mistake in a config gives one line."""

import pytest
import torch

from lmzoo.data.corpus import CORPORA, open_corpus
from lmzoo.laws.corpora import CORPUS_LAWS
from tests.data.tasks.test_ceilings import SMALL, TASKS, small
from tests.user_errors import raises_user_error


@pytest.mark.parametrize("name", TASKS)
def test_a_task_obeys_the_laws_of_corpora(name):
    for law in CORPUS_LAWS:
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


@pytest.mark.parametrize(
    ("name", "train", "symbols"),
    [  # configs/tasks of mad-lab: vocab_size less special symbols that are not needed here
        ("in_context_recall", 12_800, 16),
        ("noisy_recall", 12_800, 32),
        ("fuzzy_recall", 12_800, 15),
        ("memorisation", 256, 254),
        ("selective_copying", 12_800, 16),
        ("compression", 12_800, 17),  # `blank` does not occur
    ],
)
def test_tasks_have_the_sizes_of_mad_lab(name, train, symbols):
    config = CORPORA.parse(name)
    assert config.train == train
    assert len(CORPORA.build(config, None).symbols) == symbols


def test_blanks_of_selective_copying_are_those_of_mad_lab():
    """Each of 32 blanks is inserted before one of 4 symbols; none follows the last symbol."""
    sizes = {"length": 41, "copied": 4, "train": 2000, "valid": 1, "test": 1}
    corpus = open_corpus({"name": "selective_copying", **sizes})
    blank = corpus.vocabulary.ids["blank"]
    text = corpus.train.tokens[:, 1:37]
    assert (text[:, -1] != blank).all()
    places = (text != blank).nonzero()[:, 1].view(-1, 4)
    gaps = places.diff(dim=1, prepend=torch.full((2000, 1), -1)) - 1
    assert gaps.sum(1).eq(32).all()
    # Binomial(32, 1/4): mean 8, variance 6; uniform places would have a variance near 44.
    assert (gaps.double().mean(0) - 8).abs().max() < 0.25
    assert (gaps.double().var(0) - 6).abs().max() < 1


@pytest.mark.parametrize("name", ["fuzzy_recall"])
def test_training_may_count_all_tokens(name):
    answers, everything = small(name), small(name, train_on="all")
    inside = torch.arange(everything.train.tokens.shape[1]) < everything.train.lengths[:, None]
    assert everything.train.scored[:, 1:].equal(inside[:, 1:])
    assert not everything.train.scored[:, 0].any()
    assert everything.train.ids.equal(answers.train.ids)
    assert everything.test.scored.equal(answers.test.scored)
    assert everything.fingerprint != answers.fingerprint
