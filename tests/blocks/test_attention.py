"""Multi-head attention: equality with torch, scale, mask, normalisation and hard attention."""

import pytest
import torch
from torch import Tensor, nn

from lmzoo.blocks.attention import Attention, causal_mask
from tests.laws.support import assert_close
from tests.tiny import CLOSE

T, E = 5, 8


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
def test_it_equals_torchs_module_with_the_same_weights(heads: int, *, masked: bool) -> None:
    ours = attention(heads=heads)
    x, memory = inputs(3, T, E), inputs(3, T, E, seed=2)
    mask = causal_mask(T) if masked else None
    attn_mask = None if mask is None else ~mask
    expected, weights = as_torch(ours)(
        x, memory, memory, attn_mask=attn_mask, average_attn_weights=False
    )
    assert_close(ours(x, memory, mask), expected, CLOSE, "output")
    assert_close(ours.logits(x, memory, mask).softmax(-1), weights, CLOSE, "weights")


def test_a_mask_renormalises_the_allowed_weights() -> None:
    ours, x, mask = attention(), inputs(3, T, E), causal_mask(T)
    allowed = ours.logits(x, x).exp() * mask
    assert_close(
        ours.logits(x, x, mask).softmax(-1),
        allowed / allowed.sum(-1, keepdim=True),
        CLOSE,
        "weights",
    )


def test_without_a_mask_it_is_permutation_equivariant() -> None:
    ours, x = attention(), inputs(3, T, E)
    order = torch.randperm(T, generator=torch.Generator().manual_seed(3))
    permuted = x[:, order]
    assert_close(ours(permuted, permuted), ours(x, x)[:, order], CLOSE, "permuted")
    mask = causal_mask(T)
    assert (ours(permuted, permuted, mask) - ours(x, x, mask)[:, order]).abs().max() > 1e-2


@pytest.mark.parametrize("normed", ["none", "key", "both"])
def test_values_with_equal_keys_are_averaged(normed: str) -> None:
    ours, x = attention(normed=normed), inputs(3, T, E)
    memory = inputs(3, T, E, seed=2)
    with torch.no_grad():
        ours.key.weight.zero_()
    mean = ours.output(ours.value(memory).mean(1, keepdim=True)).expand_as(x)
    assert_close(ours(x, memory), mean, CLOSE, "average")


@pytest.mark.parametrize("width", [4, 16, 64, 256])
@pytest.mark.parametrize("scaled", [True, False])
def test_scaled_logits_have_unit_variance(width: int, *, scaled: bool) -> None:
    """For every head size d; the variance of unscaled logits is d."""
    heads = 2
    ours = attention(width, heads=heads, temperature=None if scaled else 1.0)
    with torch.no_grad():
        for part in (ours.query, ours.key):
            part.weight.copy_(torch.eye(width))
        ours.query.bias.zero_()
    logits = ours.logits(inputs(1, 400, width), inputs(1, 400, width, seed=2))
    expected = 1.0 if scaled else width / heads
    assert logits.var().item() == pytest.approx(expected, rel=0.1)


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
def test_the_norm_of_a_normalised_vector_has_no_effect(
    normed: str, part: str, *, changes: bool
) -> None:
    x, memory = inputs(3, T, E), inputs(3, T, E, seed=2)
    before = attention(normed=normed)(x, memory)
    after = rescale(attention(normed=normed), part, 7.0)(x, memory)
    assert bool((after - before).abs().max() > 1e-3) is changes
    if not changes:
        assert_close(after, before, CLOSE, "output")


@pytest.mark.parametrize("temperature", [None, 0.5, 30.0])
@pytest.mark.parametrize("learned", [False, True])
def test_logits_are_bounded_by_the_temperature(temperature: float | None, *, learned: bool) -> None:
    heads = 2
    ours = attention(heads=heads, normed="both", temperature=temperature, learned=learned)
    bound = temperature or (E / heads) ** 0.5
    x = inputs(3, T, E)
    logits = rescale(ours, "key", 1e3).logits(x, inputs(3, 200, E, seed=2))
    assert logits.abs().max() <= bound * (1 + CLOSE)
    assert logits.abs().max() > 0.8 * bound


def test_every_head_has_a_learned_temperature() -> None:
    ours, fixed = attention(heads=2, learned=True), attention(heads=2)
    x = inputs(3, T, E)
    assert_close(ours(x, x), fixed(x, x), CLOSE, "first output")
    with torch.no_grad():
        ours.log_temperature[1] += torch.tensor(3.0).log()
    expected = fixed.logits(x, x) * torch.tensor([1.0, 3.0])[:, None, None]
    assert_close(ours.logits(x, x), expected, CLOSE, "logits")


def test_temperature_zero_averages_and_a_large_one_is_hard_attention() -> None:
    x, memory = inputs(3, T, E), inputs(3, T, E, seed=2)
    low = attention(normed="both", temperature=1e-6)
    mean = low.output(low.value(memory).mean(1, keepdim=True)).expand_as(x)
    assert_close(low(x, memory), mean, CLOSE, "average")
    high = attention(normed="both", temperature=1e6)(x, memory)
    for pick in ("argmax", "sample"):
        assert_close(attention(normed="both", pick=pick)(x, memory), high, CLOSE, "hard attention")


def test_argmax_returns_the_best_value_with_the_gradient_of_the_mean() -> None:
    ours, x, mask = attention(pick="argmax"), inputs(2, T, E), causal_mask(T)
    ours.output.load_state_dict({"weight": torch.eye(E), "bias": torch.zeros(E)})
    logits = ours.logits(x, x, mask)
    values = ours.value(x).unflatten(-1, (4, -1)).transpose(1, 2)
    best = values.gather(2, logits.argmax(-1, keepdim=True).expand_as(values))
    output = ours(x, x, mask)
    assert_close(output, best.transpose(1, 2).flatten(2), CLOSE, "hard attention")
    weight = ours.query.weight
    mean = (logits.softmax(-1) @ values).sum()
    expected = torch.autograd.grad(mean, weight, retain_graph=True)[0]
    assert_close(torch.autograd.grad(output.sum(), weight)[0], expected, CLOSE, "gradient")


def test_sample_frequencies_equal_the_attention_weights() -> None:
    """The standard deviation of 4000 draws is at most 0.008; the tolerance is four times that."""
    ours = attention(heads=1, pick="sample").train()
    ours.output.load_state_dict({"weight": torch.eye(E), "bias": torch.zeros(E)})
    x, memory = inputs(1, 1, E).expand(4000, -1, -1), inputs(1, T, E, seed=2).expand(4000, -1, -1)
    alpha = ours.logits(x[:1], memory[:1]).softmax(-1)[0, 0, 0]
    picks = torch.cdist(ours(x, memory)[:, 0], ours.value(memory[0])).argmin(-1)
    assert_close(picks.bincount(minlength=T) / 4000, alpha, 0.032, "frequencies")


@pytest.mark.parametrize("pick", ["mean", "argmax"])
def test_dropout_acts_on_the_weights_in_training_only(pick: str) -> None:
    """With a memory of one vector, a query takes twice its value or nothing."""
    torch.manual_seed(0)
    ours = Attention(Attention.Config(heads=1, pick=pick), E, dropout=0.5)
    x, memory = inputs(200, 1, E), inputs(200, 1, E, seed=2)
    kept = ours.output(2 * ours.value(memory))
    nothing = ours.output(torch.zeros_like(memory))
    output = ours.train()(x, memory)
    is_kept, is_nothing = ((output - y).abs().amax(-1) < CLOSE for y in (kept, nothing))
    assert (is_kept ^ is_nothing).all()
    assert 60 < is_kept.sum() < 140
    assert_close(ours.eval()(x, memory), ours.output(ours.value(memory)), CLOSE, "in evaluation")


def test_the_width_need_not_be_divisible_by_the_heads() -> None:
    ours, x = attention(5, heads=2, normed="both"), inputs(3, T, 5)
    assert ours.logits(x, x).shape == (3, 2, T, T)
    assert ours.query.out_features == 6
    assert ours(x, x).shape == x.shape
    assert_close(
        ours.logits(x, x),
        attention(5, heads=2, normed="both", temperature=3**0.5).logits(x, x),
        0,
        "τ",
    )
