"""Multi-head attention: equality with torch, scale, mask, normalisation and hard attention."""

import functools

import pytest
import torch
from torch import Tensor, nn

from lmzoo.blocks.attention import Attention
from lmzoo.functional.softmax_attention import causal_mask
from tests.tiny import CLOSE, assert_equal_single

T = 5
E = 8


def attention(width: int = E, **fields: object) -> Attention:
    """Build an attention in evaluation mode, with weights drawn from a fixed seed."""
    torch.manual_seed(0)
    return Attention(Attention.Config(**fields), width).eval()


def inputs(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def as_torch(ours: Attention) -> nn.MultiheadAttention:
    """Return torch's module with our weights; its key bias is arbitrary."""
    theirs = nn.MultiheadAttention(ours.query.in_features, ours.config.heads, batch_first=True)
    weights = [ours.query.weight, ours.key.weight, ours.value.weight]
    # It adds the same number to all logits of a query.
    key_bias = torch.full_like(ours.query.bias, 3.0)
    biases = [ours.query.bias, key_bias, ours.value.bias]
    theirs.in_proj_weight.copy_(torch.cat(weights))
    theirs.in_proj_bias.copy_(torch.cat(biases))
    theirs.out_proj.load_state_dict(ours.output.state_dict())
    return theirs.eval()


@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize("masked", [False, True])
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
    assert_equal_single(ours(x, memory, mask), expected)
    assert_equal_single(ours.logits(x, memory, mask).softmax(-1), weights)


@torch.no_grad()
def rescale(ours: Attention, part: str, factor: float) -> Attention:
    """Multiply the parameters of a part by `factor`, in place."""
    for parameter in getattr(ours, part).parameters():
        parameter.mul_(factor)
    return ours


READ_NORMS = [("none", "query"), ("none", "key"), ("key", "query")]
DIVIDED_NORMS = [("key", "key"), ("both", "query"), ("both", "key")]


def change(normed: str, part: str) -> Tensor:
    """Return how outputs change when queries or keys are seven times as long."""
    x = inputs(3, T, E)
    memory = inputs(3, T, E, seed=2)
    before = attention(normed=normed)(x, memory)
    after = rescale(attention(normed=normed), part, 7.0)(x, memory)
    return (after - before).abs().max()


@pytest.mark.parametrize(("normed", "part"), DIVIDED_NORMS)
def test_the_norm_of_a_normalised_vector_has_no_effect(normed, part):
    assert change(normed, part) <= CLOSE


@pytest.mark.parametrize(("normed", "part"), READ_NORMS)
def test_the_norm_of_another_vector_has_an_effect(normed, part):
    assert change(normed, part) > 1e-3


def test_argmax_returns_the_best_value_with_the_gradient_of_the_mean():
    ours = attention(pick="argmax")
    x = inputs(2, T, E)
    mask = causal_mask(T)
    ours.output.load_state_dict({"weight": torch.eye(E), "bias": torch.zeros(E)})
    logits = ours.logits(x, x, mask)
    values = ours.value(x).unflatten(-1, (4, -1)).transpose(1, 2)
    place = logits.argmax(-1, keepdim=True)
    best = values.gather(2, place.expand_as(values))
    output = ours(x, x, mask)
    assert_equal_single(output, best.transpose(1, 2).flatten(2))
    weight = ours.query.weight
    mean = (logits.softmax(-1) @ values).sum()
    (expected,) = torch.autograd.grad(mean, weight, retain_graph=True)
    (gradient,) = torch.autograd.grad(output.sum(), weight)
    assert_equal_single(gradient, expected)


@pytest.mark.parametrize("pick", ["mean", "argmax"])
def test_dropout_acts_on_the_weights_in_training_only(pick):
    """With a memory of one vector, a query takes twice its value or nothing."""
    torch.manual_seed(0)
    config = Attention.Config(heads=1, pick=pick)
    ours = Attention(config, E, dropout=0.5)
    x = inputs(200, 1, E)
    memory = inputs(200, 1, E, seed=2)
    value = ours.value(memory)
    output = ours.train()(x, memory)
    # The dropout rate is ½, so a kept weight is doubled.
    is_kept = (output - ours.output(2 * value)).abs().amax(-1) < CLOSE
    is_nothing = (output - ours.output(0 * value)).abs().amax(-1) < CLOSE
    assert (is_kept ^ is_nothing).all()
    assert 60 < is_kept.sum() < 140
    assert_equal_single(ours.eval()(x, memory), ours.output(value))


def test_the_width_need_not_be_divisible_by_the_heads():
    ours = attention(5, heads=2)
    x = inputs(3, T, 5)
    assert ours.logits(x, x).shape == (3, 2, T, T)
    assert ours.query.out_features == 6
    assert ours(x, x).shape == x.shape


def test_the_temperature_is_the_root_of_the_width_of_a_head():
    x = inputs(3, T, 5)
    ours = attention(5, heads=2, normed="both")
    stated = attention(5, heads=2, normed="both", temperature=3**0.5)
    assert ours.logits(x, x).equal(stated.logits(x, x))
