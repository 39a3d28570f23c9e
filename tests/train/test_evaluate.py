"""In a task, loss and accuracy count the scored tokens only; in a text, those of windows."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from lmzoo import zoo
from lmzoo.contract import START, LanguageModel
from lmzoo.data.corpus import Corpus, open_corpus
from lmzoo.lab.store.records import RunFolder
from lmzoo.laws_of_training.packing import assert_trainings_equal
from lmzoo.train.evaluate import count_right, evaluate
from lmzoo.train.kept_trainers import KeptTrainers
from lmzoo.train.recipe import Recipe
from lmzoo.train.run import Run, run_config
from lmzoo.train.trainer import Training, fit
from tests.user_errors import raises_user_error

SIZES = {"train": 22, "valid": 9, "test": 7}
RECIPE = Recipe(batch=8, lr=3e-2)
RECALL = {"name": "mqar", "length": 12, "pairs": 2, "keys": 2} | SIZES


def task(name: str = "modular_arithmetic") -> Corpus:
    return open_corpus({"name": name, "length": 9, "test_length": 11} | SIZES)


def recall() -> Corpus:
    """Return a task with several scored tokens in a sequence."""
    return open_corpus(RECALL)


def training(row: str, corpus: Corpus, seed: int = 0, width: int = 8, **fields: object) -> Training:
    config = zoo.config(row, width=width, **fields)
    model = zoo.build(config, corpus.task, seed)
    return Training(model, RECIPE, seed)


@pytest.mark.parametrize("row", ["lstm_lm", "transformer_decoder_preln", "trigram_latent_crf"])
def test_the_loss_and_the_accuracy_are_those_of_the_answers(row):
    corpus = task()
    model = training(row, corpus).model.eval()
    nats = []
    right = []
    lengths = corpus.test.lengths.tolist()
    for tokens, length in zip(corpus.test.tokens, lengths, strict=True):
        # The last token of a sequence is its answer.
        *prefix, answer = tokens[:length].tolist()
        dense = next_log_prob(model, prefix)
        nats.append(-dense[answer])
        right.append(dense.argmax() == answer)
    losses = evaluate(model, corpus.test, batch=3)
    loss = pytest.approx(np.mean(nats), abs=1e-5)
    accuracy = pytest.approx(np.mean(right))
    assert losses.tokens == 7
    assert losses.token == losses.sentence == loss
    assert losses.accuracy == losses.sequence_accuracy == accuracy


def next_log_prob(model: LanguageModel, prefix: list[int]) -> np.ndarray:
    """Return the log probabilities of the token after these."""
    with torch.no_grad():
        (dense,) = model.next_log_prob(torch.tensor([prefix]))
    return dense.numpy()


def test_a_sequence_is_right_if_all_its_scored_tokens_are():
    corpus = recall()
    run = training("rnn_lm", corpus)
    list(fit(run, corpus, 5))
    losses = evaluate(run.model, corpus.test)
    # Or both accuracies would be the same.
    assert 0 < losses.accuracy < 1
    assert losses.sequence_accuracy < losses.accuracy


def test_right_answers_are_counted_on_the_cpu_wherever_tensors_are_made():
    """The evaluation of a pack on a GPU may be in a scope of its device."""
    corpus = task()
    model = training("lstm_lm", corpus).model.eval()

    def count():
        return count_right(model, corpus.test, lambda tokens, lengths: tokens[:, 1:])

    # As a GPU would, without one.
    with torch.device("meta"):
        inside = count()
    assert inside.equal(count())
    assert inside.equal(corpus.test.counts)


def test_training_ignores_the_tokens_that_are_not_scored():
    """Without scored tokens but the sign `=`, which is certain, nothing else is learned."""
    corpus = task("parity")
    # It follows every sequence, so it is certain.
    sign = corpus.train.tokens == corpus.vocabulary.ids["="]
    train = dataclasses.replace(corpus.train, scored=sign)
    changed = dataclasses.replace(corpus, train=train)
    run = training("rnn_lm", corpus, width=16)
    *_, last = fit(run, changed, 12)
    uniform = math.log(corpus.task.vocab)
    assert last["train_token"] < 0.2 * uniform
    assert last["valid_accuracy"] == 0  # it learned to answer `=` everywhere


def test_a_pack_member_has_the_losses_and_accuracies_of_a_run_alone():
    # So that only errors are larger than the tolerance.
    torch.set_default_dtype(torch.float64)
    try:
        corpus = recall()
        alone = [training("rnn_lm", corpus, seed, starts=2) for seed in (0, 1)]
        packed = [training("rnn_lm", corpus, seed, starts=2) for seed in (0, 1)]
        for run in alone:
            list(fit(run, corpus, 3))
        list(KeptTrainers().fit(packed, corpus, 3))
    finally:
        torch.set_default_dtype(torch.float32)
    for member, run in zip(packed, alone, strict=True):
        assert_trainings_equal(member, run, 1e-9)
        for key in ("valid_accuracy", "valid_sequence_accuracy"):
            assert member.record[key] == run.record[key]


def test_a_run_records_accuracies_and_the_ceiling(tmp_path):
    corpus = recall()
    model = zoo.config("ngram_count")
    config = run_config(model, Recipe(batch=8), corpus, RECALL, 0)
    folder = RunFolder(tmp_path)
    run = Run(folder, config, corpus)
    list(run.train(1))
    losses = run.test()
    run.close()
    epoch, test = folder.records()
    assert config["ceiling"] == corpus.ceiling == 1
    assert epoch["valid_accuracy"] > 0
    assert test["accuracy"] == losses.accuracy > test["sequence_accuracy"]
    # A task has no text.
    assert "bytes" not in test


@pytest.mark.parametrize("row", ["gru_vae", "word2vec_cbow", "rnn_autoencoder"])
def test_a_model_without_a_next_token_says_so_in_one_line(row):
    corpus = task()
    run = training(row, corpus)
    with raises_user_error("no distribution of the next token"):
        list(fit(run, corpus, 1))
    with raises_user_error("no distribution of the next token"):
        evaluate(run.model, corpus.test)


@pytest.fixture(params=[0, 30], ids=["pass", "random"])
def stream(request, tmp_path) -> Corpus:
    """A contiguous text, read once in an epoch or in random blocks."""
    path = tmp_path / "text.txt"
    path.write_text("abcdef\nbcdef\ncdef\ndef\nef\n" * 60)
    spec = {"name": "stream", "path": str(path), "block": 7, "stride": 3}
    return open_corpus(spec | {"blocks": request.param})


def first_of_window(t: int, length: int) -> int:
    """Return where the window begins that scores the character at t.

    Windows have 8 characters and move by 3; the last one ends with the text.
    """
    if t < 8:
        return 0
    moves = math.ceil((t - 7) / 3)
    return min(3 * moves, length - 8)


def test_the_loss_is_that_of_every_character_with_its_context(stream):
    model = training("rnn_lm", stream).model.eval()
    text = stream.test.tokens[stream.test.scored].tolist()
    nats = []
    for t, character in enumerate(text):
        first = first_of_window(t, len(text))
        dense = next_log_prob(model, [START] + text[first:t])
        nats.append(-dense[character])
    losses = evaluate(model, stream.test)
    assert losses.tokens == len(text)
    assert losses.token == pytest.approx(np.mean(nats), abs=1e-5)
    assert losses.accuracies == {}


def test_a_pack_whose_members_are_at_different_epochs_trains_as_each_alone(stream):
    alone = [training("rnn_lm", stream, seed) for seed in range(3)]
    packed = [training("rnn_lm", stream, seed) for seed in range(3)]
    for member in alone + packed:
        list(fit(member, stream, member.seed))  # member p is at epoch p
    for member in alone:
        list(fit(member, stream, 4))
    list(KeptTrainers().fit(packed, stream, 4))
    for ours, other in zip(packed, alone, strict=True):
        assert_trainings_equal(ours, other)
