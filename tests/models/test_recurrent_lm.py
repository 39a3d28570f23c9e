"""Recurrent language models: inputs, layers, dropout, a skip; ELMo; from right to left."""

import dataclasses

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
from tests.cases import parametrize, rows
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
"""Tokens that are fewer than the four entries of a vocabulary, and more."""


def inputs_and_gradient(model, inputs):
    """Return vectors, and the gradient of the embedding for one random upstream gradient."""
    table = model.embedding.weight
    torch.manual_seed(0)
    upstream = torch.randn(inputs.shape, dtype=inputs.dtype)
    (gradient,) = torch.autograd.grad(inputs, table, upstream)
    return inputs, gradient


@parametrize("norm", Norm)
@parametrize("tokens", [FEW, MANY], ids=["few", "many"])
def test_inputs_per_vocabulary_entry_equal_inputs_per_position(norm, tokens):
    model = tiny("recurrent_lm", vocab=4, norm=norm.value)
    model.double()
    ours = model._inputs(tokens)
    if isinstance(ours, TokenInputs):
        ours = ours.vectors()
    plain = normalise_sequence(model.embedding(tokens), norm)
    actual, gradient = inputs_and_gradient(model, ours)
    expected, expected_gradient = inputs_and_gradient(model, plain)
    assert_equal_double(actual, expected)
    assert_equal_double(gradient, expected_gradient)


@parametrize("norm", Norm)
def test_inputs_are_computed_per_entry_for_more_tokens_than_entries(norm):
    """A norm over time has no value of its own for an entry of the vocabulary."""
    model = tiny("recurrent_lm", vocab=4, norm=norm.value)
    many = model._inputs(MANY)
    few = model._inputs(FEW)
    assert isinstance(many, TokenInputs) != norm.over_time
    assert not isinstance(few, TokenInputs)


@parametrize("cell", LIBRARY)
def test_three_layers_equal_the_pytorch_module(cell):
    layers = {"cell": cell, "num_layers": 3}
    fields = {"emission": "vector", "norm": "none"}
    model = small("recurrent_lm", **fields, **layers)
    cells = [model.cell] + list(model.upper)
    endings = ("l0", "l1", "l2")
    theirs = torch_layers(*cells, endings=endings, num_layers=3)
    tokens, _ = every_sequence(model.task)
    prefix = tokens[:, :4]
    start = torch.ones(3, len(prefix), 4)
    if cell == "lstm":
        start = (start, start)
    h, _ = theirs(model.embedding(prefix), start)
    last = h[:, -1]
    logits = last @ model.embedding.weight.T
    actual = model.next_log_prob(prefix)
    expected = logits.log_softmax(-1)
    assert_equal_single(actual, expected)


EVERY_CELL = list(CELLS) + [{"name": "block", "inner": "gla"}]


@parametrize("start", ["zeros", "ones"])
@parametrize("cell", EVERY_CELL, ids=str)
def test_a_model_starts_from_zeros_or_ones(cell, start):
    model = tiny("recurrent_lm", cell=cell, start=start)
    vectors = model._start_vectors()
    # Other tensors of a state are memories of the cell.
    h, *_ = model.cell.initial_state(vectors)
    assert (h == (start == "ones")).all()
    tokens, lengths = batch(model.task)
    scores = log_prob(model, tokens, lengths)
    assert scores.isfinite().all()


@parametrize("cell", EVERY_CELL, ids=str)
def test_a_model_without_a_start_has_vectors_of_ones(cell):
    model = tiny("recurrent_lm", cell=cell)
    assert "start" not in to_dict(model.config)
    vectors = model._start_vectors()
    assert (vectors == 1).all()


def test_a_learned_start_is_one_start():
    learned = tiny("recurrent_lm", start="learned")
    one = tiny("recurrent_lm", starts=1)
    assert learned.config == one.config


RATES = ("dropout_input", "dropout_output")
TASK = Task(vocab=9, length=8)
GENERATOR = torch.Generator().manual_seed(0)
TOKENS = torch.randint(4, 9, (6, 8), generator=GENERATOR)
LENGTHS = torch.full((6,), 8)


def build(row="recurrent_lm", **fields):
    config = zoo.config(row, width=8, **fields)
    return zoo.build(config, TASK)


def score(model, seed=0):
    torch.manual_seed(seed)
    return model.log_prob(TOKENS, LENGTHS)


DROPPING = rows("models/cases.toml", "dropping")
EACH_RATE = parametrize(("row", "fields"), DROPPING, ids=str)


def without_dropout(noisy):
    """Return a model with the same weights."""
    rates = {}
    for name in to_dict(noisy.config):
        if name.startswith("dropout"):
            rates[name] = 0.0
    config = dataclasses.replace(noisy.config, **rates)
    plain = zoo.build(config, TASK)
    plain.load_state_dict(noisy.state_dict())
    return plain


@EACH_RATE
def test_a_rate_drops_nothing_in_evaluation(row, fields):
    noisy = build(row, **fields).eval()
    plain = without_dropout(noisy).eval()
    expected = score(plain)
    assert score(noisy).equal(expected)


@EACH_RATE
def test_the_generator_decides_what_a_training_drops(row, fields):
    noisy = build(row, **fields).train()
    first = score(noisy, 1)
    assert score(noisy, 1).equal(first)
    assert not score(noisy, 2).equal(first)


def test_the_steps_of_a_recurrent_model_drop_nothing():
    rates = dict.fromkeys(RATES, 0.5)
    noisy = build(num_layers=2, **rates).train()
    plain = without_dropout(noisy)
    prefix = TOKENS[:, :3]
    expected = plain.next_log_prob(prefix)
    assert noisy.next_log_prob(prefix).equal(expected)


@EACH_RATE
def test_every_weight_has_a_finite_gradient_with_dropout(row, fields):
    noisy = build(row, **fields).train()
    score(noisy).sum().backward()
    for name, weight in noisy.named_parameters():
        gradient = weight.grad
        assert gradient.isfinite().all(), name


@parametrize("row", ["recurrent_lm", "gpt"])
def test_a_training_with_dropout_resumes_bit_by_bit(row):
    fields = {"dropout": 0.3}
    if row == "recurrent_lm":
        fields = dict.fromkeys(RATES, 0.3)
        fields |= {"num_layers": 2, "starts": 2}
    data = random_corpus(build())

    def training():
        model = build(row, **fields)
        return Training(model, Recipe(batch=4), 0)

    def losses(training, epochs):
        records = fit(training, data, epochs)
        return [record["valid_token"] for record in records]

    whole = training()
    first = training()
    second = training()
    expected = losses(whole, 4)
    losses(first, 2)
    second.load(first.dump())
    # It goes on at the third epoch.
    assert losses(second, 4) == expected[2:]
    resumed = second.model
    for name, weight in whole.model.named_parameters():
        assert resumed.get_parameter(name).equal(weight)


@parametrize("rate", RATES)
def test_a_model_with_dropout_trains_alone(rate):
    noisy = build(**{rate: 0.1})
    plain = build(**{rate: 0.0})
    assert "noise" in reason_not_packable(noisy)
    assert reason_not_packable(plain) == ""


@parametrize("rate", RATES)
def test_a_config_has_the_rates_that_are_not_zero(rate):
    noisy = build(**{rate: 0.1}).config
    plain = build(**{rate: 0.0}).config
    assert rate not in MODELS.dump(plain)
    dumped = MODELS.dump(noisy)
    assert MODELS.parse(dumped) == noisy


def test_skip_reads_the_last_token_only():
    model = small("latent_ar")
    tokens, _ = every_sequence(model.task)
    prefix = tokens[:, :4]
    x = model.embedding(prefix)
    start = torch.ones(len(x), 4)
    h = model.cell.scan(x, start)
    skipped = model.skip(x[:, -1])
    y = h[:, -1] + skipped
    logits = y @ model.embedding.weight.T
    actual = next_log_prob(model, prefix)
    expected = logits.log_softmax(1)
    assert_equal_single(actual, expected)


WIDTH = 4


def elmo(**fields):
    return small("elmo", **fields).eval()


def weights_of(model, direction):
    """Return the weights of one direction with the names of the recurrent language model."""
    # The same layers have other names there.
    names = {"cells.0.": "cell.", "cells.1.": "upper.0."}
    actual = {}
    weights = getattr(model, direction).state_dict()
    for name, value in weights.items():
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        actual[name] = value
    return actual


def of_every_length(model):
    """Return all sequences, with every length from 2 to the full one."""
    tokens, _ = every_sequence(model.task)
    numbers = torch.arange(len(tokens))
    lengths = numbers % (LENGTH - 1)
    return tokens, 2 + lengths


def test_each_direction_is_a_recurrent_language_model():
    model = elmo(num_layers=2)
    plain = small("lstm_lm", num_layers=2).eval()
    tokens, lengths = of_every_length(model)
    plain.load_state_dict(weights_of(model, "forward_lm"))
    expected = log_prob(plain, tokens, lengths)
    actual = log_prob(model, tokens, lengths)
    assert_equal_single(actual, expected)


def test_the_backward_direction_is_a_backward_model():
    model = elmo(num_layers=2)
    tokens, lengths = of_every_length(model)
    reader = zoo.config("lstm_lm", num_layers=2, width=WIDTH)
    back = small("backward_lm", reader=reader)
    back.reader.load_state_dict(weights_of(model, "backward_lm"))
    with torch.no_grad():
        actual = model.backward_log_prob(tokens, lengths)
    expected = log_prob(back, tokens, lengths)
    assert_equal_single(actual, expected)


def test_padding_does_not_change_representations():
    model = elmo()
    tokens, lengths = batch(model.task)
    real = torch.arange(LENGTH) < lengths[:, None]
    # 2 is a word, which is no padding.
    changed = tokens.masked_fill(~real, 2)
    with torch.no_grad():
        before = model.represent(tokens, lengths)
        after = model.represent(changed, lengths)
    assert_close(after[real], before[real], SAME, "representations")


READERS = ["recurrent_lm", {"starts": 2}, "aggregate_markov", "latent_parent_positional"]
"""Causal models of several families."""


@parametrize("reader", READERS)
def test_scores_are_the_readers_scores_of_the_reversed_sequence(reader):
    model = small("backward_lm", reader=reader)
    tokens, lengths = batch(model.task, count=20)
    actual = log_prob(model, tokens, lengths)
    for b, n in enumerate(lengths.tolist()):
        # `<start>` stays first.
        words = tokens[b, 1:n].flip(0)
        first = tokens[b, :1]
        read = torch.cat([first, words])
        length = torch.tensor([n])
        (scores,) = log_prob(model.reader, read[None], length)
        expected = scores[1:].flip(0)
        found = actual[b, 1:n]
        assert_close(found, expected, CLOSE, f"scores of row {b}")
        assert not actual[b, n:].any()


def test_a_backward_model_is_not_causal():
    assert not small("backward_lm").causal


ENDED = Task(vocab=4, length=5, ends=True)


def tiny_model(name):
    config = zoo.config(name)
    small = shrink(to_dict(config))
    model = zoo.build(zoo.config(name, **small), ENDED)
    return model.eval()


def test_nothing_follows_the_end_of_a_represented_sentence():
    model = tiny_model("elmo")
    sentences = [(START, 3, 0, 1, END), (START, 2, END)]
    tokens, lengths = pad_sentences(sentences, 5)
    outputs = model.forward_lm.layer_outputs(tokens)
    width = outputs.shape[-1]
    with torch.no_grad():
        vectors = model.represent(tokens, lengths)
    last = lengths - 1
    first, second = vectors[torch.arange(2), last]
    forward = slice(width)
    backward = slice(width, 2 * width)
    assert_close(first[backward], second[backward], SAME, "state after the start")
    assert (first[forward] != second[forward]).any()


def test_end_is_predicted_last_and_words_from_right_to_left():
    back = tiny_model("backward_lm")
    short = [(START, 3, END), (START, END)]
    sentences = [(START, 3, 0, 1, END)] + short
    read = [(START, 1, 0, 3, END)] + short
    tokens, lengths = pad_sentences(sentences, 5)
    actual = log_prob(back, tokens, lengths)
    tokens, lengths = pad_sentences(read, 5)
    scores = log_prob(back.reader, tokens, lengths)
    for row, words in enumerate(read):
        # The end is predicted last, by both.
        end = len(words) - 1
        of_words = scores[row, 1:end].flip(0)
        of_end = scores[row, end : end + 1]
        expected = torch.cat([of_words, of_end])
        found = actual[row, 1 : end + 1]
        assert_close(found, expected, CLOSE, f"scores of row {row}")
