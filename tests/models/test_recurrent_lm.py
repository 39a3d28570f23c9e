"""Recurrent language models: inputs, layers, dropout, a skip; ELMo; from right to left."""

from typing import Any

import pytest
import torch

from lmzoo import zoo
from lmzoo.base.config import to_dict
from lmzoo.base.errors import UserError
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


@pytest.mark.parametrize("norm", Norm)
@pytest.mark.parametrize("tokens", [FEW, MANY], ids=["few", "many"])
def test_inputs_per_vocabulary_entry_equal_inputs_per_position(norm, tokens):
    model = tiny("recurrent_lm", vocab=4, norm=norm.value).double()
    assert (tokens.numel() > model.task.vocab) == (tokens is MANY)
    weight = model.embedding.weight
    ours = model._inputs(tokens)
    plain = normalise_sequence(model.embedding(tokens), norm)
    assert isinstance(ours, TokenInputs) == (tokens is MANY and not norm.over_time)
    if isinstance(ours, TokenInputs):
        ours = ours.vectors()
    assert_equal_double(ours, plain)
    upstream = torch.randn(plain.shape, dtype=torch.float64)
    first, second = (torch.autograd.grad(x, weight, upstream)[0] for x in (ours, plain))
    assert_equal_double(first, second)


@pytest.mark.parametrize("cell", LIBRARY)
def test_three_layers_equal_the_pytorch_module(cell):
    model = small("recurrent_lm", cell=cell, emission="vector", norm="none", num_layers=3)
    endings = ("l0", "l1", "l2")
    theirs = torch_layers(model.cell, *model.upper, endings=endings, num_layers=3)
    x = model.embedding(every_sequence(model.task)[0][:, :4])
    ones = torch.ones(3, len(x), 4)
    h = theirs(x, (ones, ones) if cell == "lstm" else ones)[0]
    dense = torch.log_softmax(h[:, -1] @ model.embedding.weight.T, dim=-1)
    actual = model.next_log_prob(every_sequence(model.task)[0][:, :4])
    assert_equal_single(actual, dense)


@pytest.mark.parametrize("name", ["recurrent_lm", "lstm_lm"])
def test_bidirectional_language_model_is_refused(name):
    with pytest.raises(UserError, match="no field 'bidirectional'"):
        zoo.config(name, bidirectional=True)


@pytest.mark.parametrize("cell", [*CELLS, {"name": "block", "inner": "gla"}], ids=str)
def test_a_model_starts_from_zeros_or_ones(cell):
    """`zeros` and `ones` set h_0 of every cell; without them it is as before."""
    for start, value in (("zeros", 0.0), ("ones", 1.0)):
        model: Any = tiny("recurrent_lm", cell=cell, start=start)
        h, *_ = model.cell.initial_state(model._start_vectors())
        assert (h == value).all()
        assert log_prob(model, *batch(model.task)).isfinite().all()
    plain: Any = tiny("recurrent_lm", cell=cell)
    assert "start" not in to_dict(plain.config)
    assert (plain._start_vectors() == 1).all()


def test_a_learned_start_is_one_start():
    configs = [tiny("recurrent_lm", **f).config for f in ({"start": "learned"}, {"starts": 1})]
    assert configs[0] == configs[1]
    with pytest.raises(UserError, match="starts=2 learns initial states, but start=zeros sets one"):
        tiny("recurrent_lm", starts=2, start="zeros")


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


@pytest.mark.parametrize(
    ("row", "rate"), [("gpt", "dropout"), *(("recurrent_lm", rate) for rate in RATES)]
)
def test_each_rate_acts_in_training_only(row, rate):
    fields = {}
    if row == "recurrent_lm":
        fields = {"num_layers": 2}
    plain, noisy = (build(row, **fields, **{rate: p}) for p in (0.0, 0.5))
    noisy.load_state_dict(plain.state_dict())
    assert torch.equal(score(noisy.eval()), score(plain.eval()))
    noisy.train()
    assert torch.equal(score(noisy, 1), score(noisy, 1))
    assert not torch.equal(score(noisy, 1), score(noisy, 2))
    if row == "recurrent_lm":  # its steps drop nothing
        prefix = TOKENS[:, :3]
        assert torch.equal(noisy.next_log_prob(prefix), plain.next_log_prob(prefix))
    score(noisy, 1).sum().backward()
    weights = dict(noisy.named_parameters())
    assert all(w.grad is not None and bool(w.grad.isfinite().all()) for w in weights.values())
    assert all(isinstance(w, torch.nn.Parameter) for w in weights.values())


@pytest.mark.parametrize("row", ["recurrent_lm", "gpt"])
def test_a_training_with_dropout_resumes_bit_by_bit(row):
    rates = dict.fromkeys(RATES, 0.3) | {"num_layers": 2, "starts": 2}
    fields = {"dropout": 0.3}
    if row == "recurrent_lm":
        fields = rates
    data = random_corpus(build())
    whole, first, second = (Training(build(row, **fields), Recipe(batch=4), 0) for _ in range(3))
    expected = [record["valid_token"] for record in fit(whole, data, 4)]
    list(fit(first, data, 2))
    second.load(first.dump())
    assert [record["valid_token"] for record in fit(second, data, 4)] == expected[2:]
    pairs = zip(whole.model.parameters(), second.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("rate", RATES)
def test_a_model_with_dropout_trains_alone_and_without_it_is_as_before(rate):
    assert "noise" in reason_not_packable(build(**{rate: 0.1}))
    assert reason_not_packable(build(**{rate: 0.0})) == ""
    assert rate not in MODELS.dump(build(**{rate: 0.0}).config)
    noisy = build(**{rate: 0.1}).config
    assert MODELS.parse(MODELS.dump(noisy)) == noisy


def test_skip_reads_the_last_token_only():
    model = small("latent_ar")
    prefix = every_sequence(model.task)[0][:, :4]
    x = model.embedding(prefix)
    h = model.cell.scan(x, torch.ones(len(x), 4))[:, -1]
    expected = torch.log_softmax(
        (h + x[:, -1] @ model.skip.weight.T) @ model.embedding.weight.T, dim=1
    )
    assert_equal_single(next_log_prob(model, prefix), expected)


WIDTH = 4


def elmo(**fields: Any) -> Any:
    return small("elmo", **fields).eval()


def weights_of(model: Any, direction: str) -> dict[str, torch.Tensor]:
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
    tokens, lengths = every_sequence(model.task)
    lengths = 2 + torch.arange(len(tokens)) % (LENGTH - 1)
    plain.load_state_dict(weights_of(model, "forward_lm"))
    assert_equal_single(log_prob(model, tokens, lengths), log_prob(plain, tokens, lengths))
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
        reversed_tokens = torch.cat([tokens[b, :1], tokens[b, 1:n].flip(0)])[None]
        expected = log_prob(model.reader, reversed_tokens, torch.tensor([n]))[0]
        assert_close(actual[b, 1:n], expected[1:].flip(0), CLOSE, f"scores of row {b}")
        assert not actual[b, n:].any()


def test_backward_model_is_not_causal_and_needs_a_causal_reader():
    assert not small("backward_lm").causal
    with pytest.raises(UserError, match="'backward_lm' cannot read backwards"):
        small("backward_lm", reader="backward_lm")


ENDED = Task(vocab=4, length=5, ends=True)


def tiny_model(name: str, task: Task = ENDED, **fields: Any) -> Any:
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
    tokens, lengths = pad_sentences([(START, 3, 0, 1, END), (START, 3, END), (START, END)], 5)
    actual = log_prob(back, tokens, lengths)
    for row, read in enumerate([(START, 1, 0, 3, END), (START, 3, END), (START, END)]):
        scores = log_prob(back.reader, *pad_sentences([read], 5))[0, 1 : len(read)]
        expected = torch.cat([scores[:-1].flip(0), scores[-1:]])
        assert_close(actual[row, 1 : len(read)], expected, CLOSE, f"scores of row {row}")
