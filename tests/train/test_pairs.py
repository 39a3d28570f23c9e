"""Training on pairs: only a model that reads the source gets below the entropy of the target."""

from math import log

import pytest

from lmzoo import zoo
from lmzoo.data.corpus import Corpus, open_corpus
from lmzoo.train.evaluate import evaluate
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training, fit

FAST = Recipe(batch=30, lr=0.03)


def open_toy(name: str, length: int, symbols: int = 4, **sizes: int) -> Corpus:
    fields = {"name": name, "length": length, "symbols": symbols}
    return open_corpus({**fields, "train": 300, "valid": 100, "test": 100, **sizes})


def validation_loss(
    name: str, corpus: Corpus, epochs: int, recipe: Recipe = FAST, **fields
) -> float:
    """Train for `epochs` epochs; return the validation loss in nats per token."""
    training = Training(zoo.build(zoo.config(name, **fields), corpus.task), recipe, seed=0)
    *_, last = fit(training, corpus, epochs)
    assert last["valid_token"] == evaluate(training.model, corpus.valid).token
    return last["valid_token"]


@pytest.mark.parametrize(
    ("name", "echo"),
    [("seq2seq", "reverse"), ("seq2seq_dot_attention", "copy"), ("transformer_encdec", "copy")],
)
def test_a_model_that_reads_the_source_beats_the_entropy_of_the_target(
    name: str, echo: str
) -> None:
    corpus = open_toy(echo, length=3)
    recipe = Recipe(batch=30, lr=0.01) if name == "transformer_encdec" else FAST
    assert validation_loss(name, corpus, epochs=8, recipe=recipe, width=16) < 0.7 * log(4)


def test_a_model_that_ignores_the_source_does_not() -> None:
    loss = validation_loss("rnn_lm", open_toy("copy", length=3), epochs=4, width=8)
    assert log(4) - 0.03 < loss < log(4) + 0.1
