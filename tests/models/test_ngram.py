"""Neural n-gram models: the equations, one term at a time; sequences longer than the task's."""

from itertools import permutations
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lmzoo.base.errors import UserError
from lmzoo.contract import Task
from lmzoo.laws.tiny import log_prob, next_log_prob
from tests.cases import cases
from tests.models.equivalence import assert_equation, small
from tests.test_contract import CASES
from tests.tiny import assert_equal_single, batch, every_sequence, tiny


def blocks(layer: Any, count: int, dim: int) -> list[Tensor]:
    return list(layer.weight.chunk(count, dim=dim))


def context(model: Any, prefix: Tensor, window: int) -> list[Tensor]:
    """Return c_1 .. c_W of one prefix: its last token's vector first, then ones before it."""
    vectors = [model.embedding.weight[v] for v in prefix.tolist()[::-1]]
    return (vectors + [torch.ones(model.config.width)] * window)[:window]


def softmax(model: Any, y: Tensor) -> Tensor:
    return torch.softmax(model.embedding.weight @ y, 0)


def ngram_log_bilinear(model: Any, prefix: Tensor) -> Tensor:
    window = model.config.window
    maps = blocks(model.transition, window, 1)
    c = context(model, prefix, window)
    y = sum(maps[j] @ c[j] for j in range(window)) + model.transition.bias
    return softmax(model, y)


def permutation_log_bilinear(model: Any, prefix: Tensor) -> Tensor:
    window = model.config.window
    maps = blocks(model.transition, window, 1)
    c = context(model, prefix, window)
    total = torch.zeros(model.task.vocab)
    for weight, order in zip(model.weights().exp(), permutations(range(window)), strict=True):
        y = sum(maps[j] @ c[order[j]] for j in range(window)) + model.transition.bias
        total += weight * softmax(model, y)
    return total


def log_bilinear_mixture(model: Any, prefix: Tensor) -> Tensor:
    count = model.config.components
    c = torch.cat(context(model, prefix, model.config.window))
    biases = model.transition.bias.chunk(count)
    parts = zip(model.weights().exp(), blocks(model.transition, count, 0), biases, strict=True)
    return sum((weight * softmax(model, m @ c + b) for weight, m, b in parts), torch.zeros(()))


def markov_mlp(model: Any, prefix: Tensor) -> Tensor:
    y = torch.cat(context(model, prefix, model.config.window))
    activation = {"tanh": torch.tanh, "relu": torch.relu, "gelu": torch.nn.functional.gelu}
    for layer in model.layers[:-1]:
        y = activation[model.config.activation](layer.weight @ y + layer.bias)
    y = model.layers[-1].weight @ y + model.layers[-1].bias
    table = model.output
    if model.output is None:
        table = model.embedding
    return torch.softmax(table.weight @ y, 0)


def multi_transition_bigram(model: Any, prefix: Tensor) -> Tensor:
    count = model.config.components
    ones = torch.ones(model.config.width)
    maps = blocks(model.transition, count, 0)
    biases = model.transition.bias.chunk(count)
    first, *weights = model.weights().exp()
    unigram = softmax(model, maps[0] @ ones + biases[0])
    if getattr(model, "free", None) is not None:
        unigram = torch.softmax(model.free, 0)
    (c,) = context(model, prefix, 1)
    parts = zip(weights, maps, biases, strict=True)
    return first * unigram + sum(w * softmax(model, m @ c + b) for w, m, b in parts)


def unigram_mixture(model: Any, prefix: Tensor) -> Tensor:
    parts = zip(model.weights().exp(), model.words.means, strict=True)
    return sum((weight * softmax(model, v) for weight, v in parts), torch.zeros(()))


EQUATIONS = (
    ngram_log_bilinear,
    permutation_log_bilinear,
    log_bilinear_mixture,
    markov_mlp,
    multi_transition_bigram,
    unigram_mixture,
)
BY_NAME = {equation.__name__: equation for equation in EQUATIONS}


@torch.no_grad()
@cases("models/cases.toml", "equations", "name, equation, fields")
def test_distributions_equal_the_equation(name, equation, fields):
    model: Any = small(name, **fields)
    if getattr(model, "free", None) is not None:
        model.free.normal_()  # it starts at 0
    assert_equation(model, BY_NAME[equation])


def test_permutations_have_names():
    names = small("permutation_log_bilinear", window=3).latent_value_names()
    assert names == ("1 2 3", "1 3 2", "2 1 3", "2 3 1", "3 1 2", "3 2 1")


def test_scores_equal_the_pytorch_rnn_on_one_hot_vectors():
    model: Any = small("onehot_embedding").eval()
    tokens, lengths = every_sequence(model.task)
    library = nn.RNN(model.task.vocab, model.config.width, batch_first=True)
    with torch.no_grad():
        library.weight_ih_l0.copy_(model.read.weight)
        library.weight_hh_l0.copy_(model.carry.weight)
        library.bias_ih_l0.copy_(model.read.bias)
        library.bias_hh_l0.zero_()
        words = nn.functional.one_hot(tokens, model.task.vocab).float()
        h, _ = library(words[:, :-1], torch.ones(1, len(tokens), model.config.width))
        expected = model.write(h).log_softmax(-1)
    expected = (expected * words[:, 1:]).sum(-1)
    assert_equal_single(log_prob(model, tokens, lengths)[:, 1:], expected)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_longer_sequence_is_scored_or_refused(case):
    name, fields = case
    model = tiny(name, **fields)
    tokens, lengths = batch(Task(vocab=model.task.vocab, length=model.task.length + 3))
    refusals = []
    for score in (lambda: log_prob(model, tokens, lengths), lambda: next_log_prob(model, tokens)):
        try:
            assert model.leaks or not score().isnan().any()
        except UserError as error:
            refusals.append(str(error))
    assert all("; use " in refusal and "\n" not in refusal for refusal in refusals)
    assert len(refusals) in (0, 2) or not model.causal
