"""Multi-head attention: equality with torch, scale, mask, normalisation and hard attention."""

import pytest
import torch
from torch import Tensor, nn

from lmzoo.blocks.attention import Attention
from lmzoo.functional.softmax_attention import causal_mask
from lmzoo.laws.tiny import assert_close
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
    theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
    key_bias = torch.full_like(ours.query.bias, 3.0)
    theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, key_bias, ours.value.bias]))
    theirs.out_proj.load_state_dict(ours.output.state_dict())
    return theirs.eval()


@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize("masked", [False, True])
def test_it_equals_torchs_module_with_the_same_weights(heads, masked):
    ours = attention(heads=heads)
    x = inputs(3, T, E)
    memory = inputs(3, T, E, seed=2)
    mask = None
    if masked:
        mask = causal_mask(T)
    attn_mask = None
    if mask is not None:
        attn_mask = ~mask
    expected, weights = as_torch(ours)(
        x, memory, memory, attn_mask=attn_mask, average_attn_weights=False
    )
    assert_equal_single(ours(x, memory, mask), expected)
    assert_equal_single(ours.logits(x, memory, mask).softmax(-1), weights)


@torch.no_grad()
def rescale(ours: Attention, part: str, factor: float) -> Attention:
    """Multiply the parameters of a part by `factor`, in place."""
    for parameter in getattr(ours, part).parameters():
        parameter.mul_(factor)
    return ours


@pytest.mark.parametrize(
    ("normed", "part", "changes"),
    [
        ("none", "query", True), ("none", "key", True),
        ("key", "query", True), ("key", "key", False),
        ("both", "query", False), ("both", "key", False),
    ],
)  # fmt: skip
def test_the_norm_of_a_normalised_vector_has_no_effect(normed, part, changes):
    x = inputs(3, T, E)
    memory = inputs(3, T, E, seed=2)
    before = attention(normed=normed)(x, memory)
    after = rescale(attention(normed=normed), part, 7.0)(x, memory)
    assert bool((after - before).abs().max() > 1e-3) is changes
    if not changes:
        assert_equal_single(after, before)


def test_argmax_returns_the_best_value_with_the_gradient_of_the_mean():
    ours = attention(pick="argmax")
    x = inputs(2, T, E)
    mask = causal_mask(T)
    ours.output.load_state_dict({"weight": torch.eye(E), "bias": torch.zeros(E)})
    logits = ours.logits(x, x, mask)
    values = ours.value(x).unflatten(-1, (4, -1)).transpose(1, 2)
    best = values.gather(2, logits.argmax(-1, keepdim=True).expand_as(values))
    output = ours(x, x, mask)
    assert_equal_single(output, best.transpose(1, 2).flatten(2))
    weight = ours.query.weight
    mean = (logits.softmax(-1) @ values).sum()
    expected = torch.autograd.grad(mean, weight, retain_graph=True)[0]
    assert_equal_single(torch.autograd.grad(output.sum(), weight)[0], expected)


@pytest.mark.parametrize("pick", ["mean", "argmax"])
def test_dropout_acts_on_the_weights_in_training_only(pick):
    """With a memory of one vector, a query takes twice its value or nothing."""
    torch.manual_seed(0)
    ours = Attention(Attention.Config(heads=1, pick=pick), E, dropout=0.5)
    x = inputs(200, 1, E)
    memory = inputs(200, 1, E, seed=2)
    kept = ours.output(2 * ours.value(memory))
    nothing = ours.output(torch.zeros_like(memory))
    output = ours.train()(x, memory)
    is_kept, is_nothing = ((output - y).abs().amax(-1) < CLOSE for y in (kept, nothing))
    assert (is_kept ^ is_nothing).all()
    assert 60 < is_kept.sum() < 140
    assert_equal_single(ours.eval()(x, memory), ours.output(ours.value(memory)))


def test_the_width_need_not_be_divisible_by_the_heads():
    ours = attention(5, heads=2, normed="both")
    x = inputs(3, T, 5)
    assert ours.logits(x, x).shape == (3, 2, T, T)
    assert ours.query.out_features == 6
    assert ours(x, x).shape == x.shape
    assert_close(
        ours.logits(x, x),
        attention(5, heads=2, normed="both", temperature=3**0.5).logits(x, x),
        0,
        "τ",
    )
