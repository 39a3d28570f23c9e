"""Neural n-gram models: the equations, one term at a time; sequences longer than the task's."""

from collections.abc import Sequence
from itertools import permutations

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


def blocks(layer, count: int, dim: int) -> list[Tensor]:
    return list(layer.weight.chunk(count, dim=dim))


def context(model, prefix: Tensor, window: int) -> list[Tensor]:
    """Return c_1 .. c_W of one prefix: its last token's vector first, then ones before it."""
    # The nearest token is the first.
    vectors = list(model.embedding.weight[prefix.flip(0)])
    vectors += [torch.ones(model.config.width)] * window
    return vectors[:window]


def softmax(model, y: Tensor) -> Tensor:
    return torch.softmax(model.embedding.weight @ y, 0)


def of_context(model, vectors: Sequence[Tensor]) -> Tensor:
    """Return P(v) from one vector for each lag, by the sum of their maps."""
    y = model.transition.bias
    for block, vector in zip(blocks(model.transition, len(vectors), 1), vectors, strict=True):
        y = y + block @ vector
    return softmax(model, y)


def mixture(model, weights: Tensor, c: Tensor) -> Tensor:
    """Return Σ_k weight_k P_k(v), each by a map of one vector."""
    count = len(weights)
    maps = blocks(model.transition, count, 0)
    biases = model.transition.bias.chunk(count)
    total = torch.zeros(())
    for weight, block, bias in zip(weights, maps, biases, strict=True):
        total = total + weight * softmax(model, block @ c + bias)
    return total


def ngram_log_bilinear(model, prefix: Tensor) -> Tensor:
    return of_context(model, context(model, prefix, model.config.window))


def permutation_log_bilinear(model, prefix: Tensor) -> Tensor:
    orders = permutations(context(model, prefix, model.config.window))
    total = torch.zeros(model.task.vocab)
    for weight, vectors in zip(model.weights().exp(), orders, strict=True):
        total += weight * of_context(model, vectors)
    return total


def log_bilinear_mixture(model, prefix: Tensor) -> Tensor:
    c = torch.cat(context(model, prefix, model.config.window))
    return mixture(model, model.weights().exp(), c)


def markov_mlp(model, prefix: Tensor) -> Tensor:
    y = torch.cat(context(model, prefix, model.config.window))
    activations = {"tanh": torch.tanh, "relu": torch.relu, "gelu": nn.functional.gelu}
    *inner, last = model.layers
    for layer in inner:
        y = activations[model.config.activation](layer(y))
    y = last(y)
    table = model.output
    if model.output is None:
        table = model.embedding
    return torch.softmax(table.weight @ y, 0)


def multi_transition_bigram(model, prefix: Tensor) -> Tensor:
    count = model.config.components
    if getattr(model, "free", None) is not None:
        unigram = torch.softmax(model.free, 0)
    else:
        first_map = blocks(model.transition, count, 0)[0]
        first_bias = model.transition.bias.chunk(count)[0]
        unigram = softmax(model, first_map.sum(1) + first_bias)  # of a vector of ones
    weights = model.weights().exp()
    (c,) = context(model, prefix, 1)
    return weights[0] * unigram + mixture(model, weights[1:], c)


def unigram_mixture(model, prefix: Tensor) -> Tensor:
    words = torch.softmax(model.words.means @ model.embedding.weight.T, 1)
    return model.weights().exp() @ words


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
    model = small(name, **fields)
    if getattr(model, "free", None) is not None:
        model.free.normal_()  # it starts at 0
    assert_equation(model, BY_NAME[equation])


def test_permutations_have_names():
    names = small("permutation_log_bilinear", window=3).latent_value_names()
    assert names == ("1 2 3", "1 3 2", "2 1 3", "2 3 1", "3 1 2", "3 2 1")


def test_scores_equal_the_pytorch_rnn_on_one_hot_vectors():
    model = small("onehot_embedding").eval()
    tokens, lengths = every_sequence(model.task)
    library = nn.RNN(model.task.vocab, model.config.width, batch_first=True)
    with torch.no_grad():
        library.weight_ih_l0.copy_(model.read.weight)
        library.weight_hh_l0.copy_(model.carry.weight)
        library.bias_ih_l0.copy_(model.read.bias)
        # torch's module has two biases where ours has one.
        library.bias_hh_l0.zero_()
        words = nn.functional.one_hot(tokens, model.task.vocab).float()
        ones = torch.ones(1, len(tokens), model.config.width)
        h, _ = library(words[:, :-1], ones)
        dense = model.write(h).log_softmax(-1)
    expected = (dense * words[:, 1:]).sum(-1)
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
    for refusal in refusals:
        assert "; use " in refusal
        assert "\n" not in refusal
    assert len(refusals) in (0, 2) or not model.causal
