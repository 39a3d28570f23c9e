"""Recurrent language models: inputs, layers, dropout, a skip; ELMo; from right to left."""

import dataclasses
from typing import Any

import pytest
import torch

from lmzoo import zoo
from lmzoo.base.config import to_dict
from lmzoo.cells.base import CELLS
from lmzoo.contract import END, MODELS, START, Task
from lmzoo.functional.normalise import Norm, normalise_sequence
from lmzoo.kernels.tokens import TokenInputs
from lmzoo.laws.tiny import assert_close, log_prob, next_log_prob
from lmzoo.laws_of_training.packing import random_corpus
from lmzoo.train.pack_compatibility import reason_not_packable
from lmzoo.train.recipe import Recipe
from lmzoo.train.trainer import Training, fit
from tests.cells.support import LIBRARY, torch_layers
from tests.models.equivalence import LENGTH, small
from tests.models.sentences import pad_sentences
from tests.tiny import (
    CLOSE,
    SAME,
    assert_equal_double,
    assert_equal_single,
    batch,
    every_sequence,
    shrink,
    tiny,
)

FEW = torch.tensor([[1, 3]])
MANY = torch.tensor([[1, 2, 3, 0], [3, 3, 1, 2]])


def inputs_and_gradient(model, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return vectors, and the gradient of the embedding for one random upstream gradient."""
    generator = torch.Generator().manual_seed(0)
    upstream = torch.randn(inputs.shape, generator=generator, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(inputs, model.embedding.weight, upstream)
    return inputs, gradient


@pytest.mark.parametrize("norm", Norm)
@pytest.mark.parametrize("tokens", [FEW, MANY], ids=["few", "many"])
def test_inputs_per_vocabulary_entry_equal_inputs_per_position(norm, tokens):
    model = tiny("recurrent_lm", vocab=4, norm=norm.value).double()
    ours = model._inputs(tokens)
    if isinstance(ours, TokenInputs):
        ours = ours.vectors()
    plain = normalise_sequence(model.embedding(tokens), norm)
    actual, gradient = inputs_and_gradient(model, ours)
    expected, expected_gradient = inputs_and_gradient(model, plain)
    assert_equal_double(actual, expected)
    assert_equal_double(gradient, expected_gradient)


@pytest.mark.parametrize("norm", Norm)
def test_inputs_are_computed_per_entry_for_more_tokens_than_entries(norm):
    """A norm over time has no value of its own for an entry of the vocabulary."""
    model = tiny("recurrent_lm", vocab=4, norm=norm.value)
    assert isinstance(model._inputs(MANY), TokenInputs) != norm.over_time
    assert not isinstance(model._inputs(FEW), TokenInputs)


@pytest.mark.parametrize("cell", LIBRARY)
def test_three_layers_equal_the_pytorch_module(cell):
    model = small("recurrent_lm", cell=cell, emission="vector", norm="none", num_layers=3)
    endings = ("l0", "l1", "l2")
    theirs = torch_layers(model.cell, *model.upper, endings=endings, num_layers=3)
    prefix = every_sequence(model.task)[0][:, :4]
    start = torch.ones(3, len(prefix), 4)
    if cell == "lstm":
        start = (start, start)
    h, _ = theirs(model.embedding(prefix), start)
    logits = h[:, -1] @ model.embedding.weight.T
    assert_equal_single(model.next_log_prob(prefix), logits.log_softmax(-1))


EVERY_CELL: list[Any] = [*CELLS, {"name": "block", "inner": "gla"}]


@pytest.mark.parametrize("start", ["zeros", "ones"])
@pytest.mark.parametrize("cell", EVERY_CELL, ids=str)
def test_a_model_starts_from_zeros_or_ones(cell, start):
    model = tiny("recurrent_lm", cell=cell, start=start)
    # Other tensors of a state are memories of the cell.
    h, *_ = model.cell.initial_state(model._start_vectors())
    assert (h == (start == "ones")).all()
    assert log_prob(model, *batch(model.task)).isfinite().all()


@pytest.mark.parametrize("cell", EVERY_CELL, ids=str)
def test_a_model_without_a_start_has_vectors_of_ones(cell):
    model = tiny("recurrent_lm", cell=cell)
    assert "start" not in to_dict(model.config)
    assert (model._start_vectors() == 1).all()


def test_a_learned_start_is_one_start():
    learned = tiny("recurrent_lm", start="learned")
    one = tiny("recurrent_lm", starts=1)
    assert learned.config == one.config


RATES = ("dropout_input", "dropout_output")
TASK = Task(vocab=9, length=8)
TOKENS = torch.randint(4, 9, (6, 8), generator=torch.Generator().manual_seed(0))
LENGTHS = torch.full((6,), 8)


def build(row="recurrent_lm", **fields):
    return zoo.build(zoo.config(row, width=8, **fields), TASK)


def score(model, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return model.log_prob(TOKENS, LENGTHS)


DROPPING: list[tuple[str, dict[str, Any]]] = [
    ("gpt", {"dropout": 0.5}),
    ("recurrent_lm", {"num_layers": 2, "dropout_input": 0.5}),
    ("recurrent_lm", {"num_layers": 2, "dropout_output": 0.5}),
]
EACH_RATE = pytest.mark.parametrize(("row", "fields"), DROPPING, ids=str)


def without_dropout(noisy):
    """Return a model with the same weights."""
    rates = {name: 0.0 for name in to_dict(noisy.config) if name.startswith("dropout")}
    plain = zoo.build(dataclasses.replace(noisy.config, **rates), TASK)
    plain.load_state_dict(noisy.state_dict())
    return plain


@EACH_RATE
def test_a_rate_drops_nothing_in_evaluation(row, fields):
    noisy = build(row, **fields).eval()
    plain = without_dropout(noisy).eval()
    assert score(noisy).equal(score(plain))


@EACH_RATE
def test_the_generator_decides_what_a_training_drops(row, fields):
    noisy = build(row, **fields).train()
    assert score(noisy, 1).equal(score(noisy, 1))
    assert not score(noisy, 1).equal(score(noisy, 2))


def test_the_steps_of_a_recurrent_model_drop_nothing():
    noisy = build(num_layers=2, dropout_input=0.5, dropout_output=0.5).train()
    plain = without_dropout(noisy)
    prefix = TOKENS[:, :3]
    assert noisy.next_log_prob(prefix).equal(plain.next_log_prob(prefix))


@EACH_RATE
def test_every_weight_has_a_finite_gradient_with_dropout(row, fields):
    noisy = build(row, **fields).train()
    score(noisy).sum().backward()
    for name, weight in noisy.named_parameters():
        assert weight.grad.isfinite().all(), name


@pytest.mark.parametrize("row", ["recurrent_lm", "gpt"])
def test_a_training_with_dropout_resumes_bit_by_bit(row):
    fields = {"dropout": 0.3}
    if row == "recurrent_lm":
        fields = dict.fromkeys(RATES, 0.3) | {"num_layers": 2, "starts": 2}
    data = random_corpus(build())

    def training() -> Training:
        return Training(build(row, **fields), Recipe(batch=4), 0)

    def losses(training: Training, epochs: int) -> list[float]:
        return [record["valid_token"] for record in fit(training, data, epochs)]

    whole = training()
    first = training()
    second = training()
    expected = losses(whole, 4)
    losses(first, 2)
    second.load(first.dump())
    assert losses(second, 4) == expected[2:]
    for name, weight in whole.model.named_parameters():
        assert second.model.get_parameter(name).equal(weight)


@pytest.mark.parametrize("rate", RATES)
def test_a_model_with_dropout_trains_alone(rate):
    assert "noise" in reason_not_packable(build(**{rate: 0.1}))
    assert reason_not_packable(build(**{rate: 0.0})) == ""


@pytest.mark.parametrize("rate", RATES)
def test_a_config_has_the_rates_that_are_not_zero(rate):
    noisy = build(**{rate: 0.1}).config
    plain = build(**{rate: 0.0}).config
    assert rate not in MODELS.dump(plain)
    assert MODELS.parse(MODELS.dump(noisy)) == noisy


def test_skip_reads_the_last_token_only():
    model = small("latent_ar")
    prefix = every_sequence(model.task)[0][:, :4]
    x = model.embedding(prefix)
    h = model.cell.scan(x, torch.ones(len(x), 4))[:, -1]
    y = h + model.skip(x[:, -1])
    logits = y @ model.embedding.weight.T
    assert_equal_single(next_log_prob(model, prefix), logits.log_softmax(1))


WIDTH = 4


def elmo(**fields):
    return small("elmo", **fields).eval()


def weights_of(model, direction: str) -> dict[str, torch.Tensor]:
    """Return the weights of one direction with the names of the recurrent language model."""
    names = {"cells.0.": "cell.", "cells.1.": "upper.0."}
    actual = {}
    for name, value in getattr(model, direction).state_dict().items():
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        actual[name] = value
    return actual


def test_each_direction_is_a_recurrent_language_model():
    model = elmo(num_layers=2)
    plain = small("lstm_lm", num_layers=2).eval()
    tokens, _ = every_sequence(model.task)
    # Every length from 2 to the full one.
    lengths = 2 + torch.arange(len(tokens)) % (LENGTH - 1)
    plain.load_state_dict(weights_of(model, "forward_lm"))
    expected = log_prob(plain, tokens, lengths)
    assert_equal_single(log_prob(model, tokens, lengths), expected)


def test_the_backward_direction_is_a_backward_model():
    model = elmo(num_layers=2)
    tokens, _ = every_sequence(model.task)
    lengths = 2 + torch.arange(len(tokens)) % (LENGTH - 1)
    back = small("backward_lm", reader=zoo.config("lstm_lm", num_layers=2, width=WIDTH))
    back.reader.load_state_dict(weights_of(model, "backward_lm"))
    with torch.no_grad():
        actual = model.backward_log_prob(tokens, lengths)
    assert_equal_single(actual, log_prob(back, tokens, lengths))


def test_padding_does_not_change_representations():
    model = elmo()
    tokens, lengths = batch(model.task)
    t = torch.arange(LENGTH)
    mask = t < lengths[:, None]
    with torch.no_grad():
        before = model.represent(tokens, lengths)
        after = model.represent(tokens.masked_fill(~mask, 2), lengths)
    assert_close(after[mask], before[mask], SAME, "representations")


# Causal models of several families.
READERS: list[Any] = [
    "recurrent_lm",
    {"starts": 2},
    "aggregate_markov",
    "latent_parent_positional",
]


@pytest.mark.parametrize("reader", READERS)
def test_scores_are_the_readers_scores_of_the_reversed_sequence(reader):
    model = small("backward_lm", reader=reader)
    tokens, lengths = batch(model.task, count=20)
    actual = log_prob(model, tokens, lengths)
    for b, n in enumerate(lengths.tolist()):
        # `<start>` stays first.
        words = tokens[b, 1:n].flip(0)
        read = torch.cat([tokens[b, :1], words])[None]
        expected = log_prob(model.reader, read, torch.tensor([n]))[0]
        assert_close(actual[b, 1:n], expected[1:].flip(0), CLOSE, f"scores of row {b}")
        assert not actual[b, n:].any()


def test_a_backward_model_is_not_causal():
    assert not small("backward_lm").causal


ENDED = Task(vocab=4, length=5, ends=True)


def tiny_model(name: str, task: Task = ENDED, **fields):
    small = shrink(to_dict(zoo.config(name, **fields)))
    return zoo.build(zoo.config(name, **small), task).eval()


def test_nothing_follows_the_end_of_a_represented_sentence():
    model = tiny_model("elmo")
    tokens, lengths = pad_sentences([(START, 3, 0, 1, END), (START, 2, END)], 5)
    width = model.forward_lm.layer_outputs(tokens).shape[-1]
    with torch.no_grad():
        ends = model.represent(tokens, lengths)[torch.arange(2), lengths - 1]
    backward = ends[:, width : 2 * width]
    assert_close(backward[0], backward[1], SAME, "state after the start")
    assert (ends[0, :width] != ends[1, :width]).any()


def test_end_is_predicted_last_and_words_from_right_to_left():
    back = tiny_model("backward_lm")
    sentences = [(START, 3, 0, 1, END), (START, 3, END), (START, END)]
    read = [(START, 1, 0, 3, END), (START, 3, END), (START, END)]
    actual = log_prob(back, *pad_sentences(sentences, 5))
    scores = log_prob(back.reader, *pad_sentences(read, 5))
    for row, words in enumerate(read):
        # The end is predicted last, by both.
        end = len(words) - 1
        expected = torch.cat([scores[row, 1:end].flip(0), scores[row, end : end + 1]])
        assert_close(actual[row, 1 : end + 1], expected, CLOSE, f"scores of row {row}")
