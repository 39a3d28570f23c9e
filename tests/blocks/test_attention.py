"""Multi-head attention: equality with torch, scale, mask, normalisation and hard attention."""

import functools

import torch
from torch import nn

from lmzoo.blocks.attention import Attention
from lmzoo.functional.softmax_attention import causal_mask
from tests.cases import parametrize
from tests.tiny import CLOSE, assert_equal_single

T = 5
E = 8


def attention(width=E, **fields):
    """Build an attention in evaluation mode, with weights drawn from a fixed seed."""
    torch.manual_seed(0)
    config = Attention.Config(**fields)
    return Attention(config, width).eval()


def inputs(*shape, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator)


@torch.no_grad()
def as_torch(ours):
    """Return torch's module with our weights; its key bias is arbitrary."""
    width = ours.query.in_features
    theirs = nn.MultiheadAttention(width, ours.config.heads, batch_first=True)
    parts = (ours.query, ours.key, ours.value)
    weights = [part.weight for part in parts]
    # It adds the same number to all logits of a query.
    key_bias = torch.full_like(ours.query.bias, 3.0)
    biases = [ours.query.bias, key_bias, ours.value.bias]
    # torch stacks the three maps in one.
    theirs.in_proj_weight.copy_(torch.cat(weights))
    theirs.in_proj_bias.copy_(torch.cat(biases))
    output = ours.output.state_dict()
    theirs.out_proj.load_state_dict(output)
    return theirs.eval()


@parametrize("heads", [1, 2, 4])
@parametrize("masked", [False, True])
def test_it_equals_torchs_module_with_the_same_weights(heads, masked):
    ours = attention(heads=heads)
    x = inputs(3, T, E)
    memory = inputs(3, T, E, seed=2)
    theirs = functools.partial(as_torch(ours), average_attn_weights=False)
    if masked:
        mask = causal_mask(T)
        expected, weights = theirs(x, memory, memory, attn_mask=~mask)
    else:
        mask = None
        expected, weights = theirs(x, memory, memory)
    actual = ours(x, memory, mask)
    assert_equal_single(actual, expected)
    logits = ours.logits(x, memory, mask)
    assert_equal_single(logits.softmax(-1), weights)


@torch.no_grad()
def rescale(ours, part, factor):
    """Multiply the parameters of a part by `factor`, in place."""
    module = getattr(ours, part)
    for parameter in module.parameters():
        parameter.mul_(factor)
    return ours


READ_NORMS = [("none", "query"), ("none", "key"), ("key", "query")]
DIVIDED_NORMS = [("key", "key"), ("both", "query"), ("both", "key")]
"""What is normalised, and which vectors are longer."""


def change(normed, part):
    """Return how outputs change when queries or keys are seven times as long."""
    x = inputs(3, T, E)
    memory = inputs(3, T, E, seed=2)
    before = attention(normed=normed)(x, memory)
    # The same weights as before, one part of them longer.
    longer = rescale(attention(normed=normed), part, 7.0)
    after = longer(x, memory)
    difference = (after - before).abs()
    return difference.max()


@parametrize(("normed", "part"), DIVIDED_NORMS)
def test_the_norm_of_a_normalised_vector_has_no_effect(normed, part):
    assert change(normed, part) <= CLOSE


@parametrize(("normed", "part"), READ_NORMS)
def test_the_norm_of_another_vector_has_an_effect(normed, part):
    assert change(normed, part) > 1e-3


def test_argmax_returns_the_best_value_with_the_gradient_of_the_mean():
    ours = attention(pick="argmax")
    x = inputs(2, T, E)
    mask = causal_mask(T)
    bias = torch.zeros(E)
    identity = {"weight": torch.eye(E), "bias": bias}
    # So that outputs are values.
    ours.output.load_state_dict(identity)
    logits = ours.logits(x, x, mask)
    values = ours.value(x)
    by_head = values.unflatten(-1, (4, -1))
    values = by_head.transpose(1, 2)
    place = logits.argmax(-1, keepdim=True)
    best = values.gather(2, place.expand_as(values))
    output = ours(x, x, mask)
    expected = best.transpose(1, 2).flatten(2)
    assert_equal_single(output, expected)
    weight = ours.query.weight
    mean = logits.softmax(-1) @ values
    # Both depend on the logits.
    (expected,) = torch.autograd.grad(mean.sum(), weight, retain_graph=True)
    total = output.sum()
    (gradient,) = torch.autograd.grad(total, weight)
    assert_equal_single(gradient, expected)


@parametrize("pick", ["mean", "argmax"])
def test_dropout_acts_on_the_weights_in_training_only(pick):
    """With a memory of one vector, a query takes twice its value or nothing."""
    config = Attention.Config(heads=1, pick=pick)
    ours = Attention(config, E, dropout=0.5)
    x = inputs(200, 1, E)
    memory = inputs(200, 1, E, seed=2)
    value = ours.value(memory)
    output = ours.train()(x, memory)

    def is_output_of(value):
        difference = output - ours.output(value)
        return difference.abs().amax(-1) < CLOSE

    # The dropout rate is ½, so a kept weight is doubled.
    is_kept = is_output_of(2 * value)
    is_nothing = is_output_of(0 * value)
    assert (is_kept ^ is_nothing).all()
    # 100 of 200 are expected, with a deviation of 7.
    assert 60 < is_kept.sum() < 140
    actual = ours.eval()(x, memory)
    expected = ours.output(value)
    assert_equal_single(actual, expected)


def test_the_width_need_not_be_divisible_by_the_heads():
    ours = attention(5, heads=2)
    x = inputs(3, T, 5)
    logits = ours.logits(x, x)
    assert logits.shape == (3, 2, T, T)
    assert ours.query.out_features == 6
    assert ours(x, x).shape == x.shape


def test_the_temperature_is_the_root_of_the_width_of_a_head():
    x = inputs(3, T, 5)
    options = {"heads": 2, "normed": "both"}
    ours = attention(5, **options)
    # Two heads of a width of five have three numbers each.
    stated = attention(5, temperature=3**0.5, **options)
    expected = stated.logits(x, x)
    assert ours.logits(x, x).equal(expected)
