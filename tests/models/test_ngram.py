"""Neural n-gram models: the equations, one term at a time; sequences longer than the task's."""

from itertools import permutations

import torch
from torch import nn

from lmzoo.base.errors import UserError
from lmzoo.contract import Task
from lmzoo.laws.tiny import log_prob, next_log_prob
from tests.cases import cases, parametrize
from tests.models.equivalence import assert_equation, small, token_scores
from tests.test_contract import CASES
from tests.tiny import assert_equal_single, batch, every_sequence, tiny


def blocks(layer, count, dim):
    return layer.weight.chunk(count, dim=dim)


def context(model, prefix, window):
    """Return c_1 .. c_W of one prefix: its last token's vector first, then ones before it."""
    nearest_first = prefix.flip(0)
    vectors = list(model.embedding.weight[nearest_first])
    ones = torch.ones(model.config.width)
    vectors += [ones] * window
    return vectors[:window]


def window_of(model, prefix):
    return context(model, prefix, model.config.window)


def softmax(model, y):
    logits = model.embedding.weight @ y
    return torch.softmax(logits, 0)


def of_context(model, vectors):
    """Return P(v) from one vector for each lag, by the sum of their maps."""
    y = model.transition.bias
    maps = blocks(model.transition, len(vectors), 1)
    for block, vector in zip(maps, vectors, strict=True):
        y = y + block @ vector
    return softmax(model, y)


def mixture(model, weights, c):
    """Return Σ_k weight_k P_k(v), each by a map of one vector."""
    count = len(weights)
    maps = blocks(model.transition, count, 0)
    biases = model.transition.bias.chunk(count)
    total = torch.zeros(())
    parts = zip(weights, maps, biases, strict=True)
    for weight, block, bias in parts:
        y = block @ c + bias
        total = total + weight * softmax(model, y)
    return total


def ngram_log_bilinear(model, prefix):
    return of_context(model, window_of(model, prefix))


def permutation_log_bilinear(model, prefix):
    orders = permutations(window_of(model, prefix))
    weights = model.weights().exp()
    total = torch.zeros(model.task.vocab)
    for weight, vectors in zip(weights, orders, strict=True):
        total += weight * of_context(model, vectors)
    return total


def log_bilinear_mixture(model, prefix):
    c = torch.cat(window_of(model, prefix))
    weights = model.weights().exp()
    return mixture(model, weights, c)


ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "gelu": nn.functional.gelu}


def markov_mlp(model, prefix):
    y = torch.cat(window_of(model, prefix))
    activation = ACTIVATIONS[model.config.activation]
    *inner, last = model.layers
    # The last layer is linear.
    for layer in inner:
        y = activation(layer(y))
    y = last(y)
    table = model.output
    if model.output is None:
        table = model.embedding
    return torch.softmax(table.weight @ y, 0)


def multi_transition_bigram(model, prefix):
    count = model.config.components
    if getattr(model, "free", None) is not None:
        # Free logits take the place of a map.
        unigram = torch.softmax(model.free, 0)
    else:
        first = blocks(model.transition, count, 0)[0]
        bias = model.transition.bias.chunk(count)[0]
        # The map of a vector of ones.
        unigram = softmax(model, first.sum(1) + bias)
    weights = model.weights().exp()
    (c,) = context(model, prefix, 1)
    rest = mixture(model, weights[1:], c)
    return weights[0] * unigram + rest


def unigram_mixture(model, prefix):
    logits = model.words.means @ model.embedding.weight.T
    weights = model.weights().exp()
    return weights @ torch.softmax(logits, 1)


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
    model = small("permutation_log_bilinear", window=3)
    names = ", ".join(model.latent_value_names())
    assert names == "1 2 3, 1 3 2, 2 1 3, 2 3 1, 3 1 2, 3 2 1"


def test_scores_equal_the_pytorch_rnn_on_one_hot_vectors():
    model = small("onehot_embedding").eval()
    vocab = model.task.vocab
    width = model.config.width
    tokens, lengths = every_sequence(model.task)
    library = nn.RNN(vocab, width, batch_first=True)
    with torch.no_grad():
        library.weight_ih_l0.copy_(model.read.weight)
        library.weight_hh_l0.copy_(model.carry.weight)
        library.bias_ih_l0.copy_(model.read.bias)
        # torch's module has two biases where ours has one.
        library.bias_hh_l0.zero_()
        words = nn.functional.one_hot(tokens, vocab).float()
        ones = torch.ones(1, len(tokens), width)
        read = words[:, :-1]
        h, _ = library(read, ones)
        logits = model.write(h)
        expected = token_scores(logits, tokens[:, 1:])
    actual = log_prob(model, tokens, lengths)[:, 1:]
    assert_equal_single(actual, expected)


@parametrize("case", CASES, ids=str)
def test_a_longer_sequence_is_scored_or_refused(case):
    name, fields = case
    model = tiny(name, **fields)
    task = model.task
    longer = Task(vocab=task.vocab, length=task.length + 3)
    tokens, lengths = batch(longer)

    def score():
        return log_prob(model, tokens, lengths)

    def decode():
        return next_log_prob(model, tokens)

    refusals = []
    for function in (score, decode):
        try:
            is_nan = function().isnan().any()
            assert model.leaks or not is_nan
        except UserError as error:
            refusals.append(str(error))
    for refusal in refusals:
        assert "; use " in refusal
        assert "\n" not in refusal
    # Both are refused, or none is.
    assert len(refusals) in (0, 2) or not model.causal
