"""Multi-head attention: equal to torch's, and what its scale, its mask and its norms promise."""

import pytest
import torch
from torch import Tensor, nn

from lmzoo.blocks.attention import Attention, causal_mask
from tests.laws.support import assert_close
from tests.tiny import CLOSE

T, E = 5, 8


def attention(width: int = E, **fields: object) -> Attention:
    """With weights drawn from one stream, biases included."""
    torch.manual_seed(0)
    return Attention(Attention.Config(**fields), width).eval()


def inputs(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def as_library(ours: Attention) -> nn.MultiheadAttention:
    """torch's module with our weights; its key bias may be anything."""
    theirs = nn.MultiheadAttention(ours.query.in_features, ours.config.heads, batch_first=True)
    theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
    free = torch.full_like(ours.query.bias, 3.0)
    theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, free, ours.value.bias]))
    theirs.out_proj.load_state_dict(ours.output.state_dict())
    return theirs.eval()


@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize("masked", [False, True])
def test_it_is_the_librarys_with_copied_weights(heads: int, *, masked: bool) -> None:
    ours = attention(heads=heads)
    x, memory = inputs(3, T, E), inputs(3, T, E, seed=2)
    see = causal_mask(T) if masked else None
    hidden = None if see is None else ~see
    expected, weights = as_library(ours)(
        x, memory, memory, attn_mask=hidden, average_attn_weights=False
    )
    assert_close(ours(x, memory, see), expected, CLOSE, "output")
    assert_close(ours.logits(x, memory, see).softmax(-1), weights, CLOSE, "weights")


def test_a_mask_keeps_the_non_zero_part_of_the_softmax() -> None:
    """-∞ before the softmax is 0/1 after its exponentials."""
    ours, x, see = attention(), inputs(3, T, E), causal_mask(T)
    kept = ours.logits(x, x).exp() * see
    assert_close(
        ours.logits(x, x, see).softmax(-1), kept / kept.sum(-1, keepdim=True), CLOSE, "weights"
    )


def test_without_a_mask_it_knows_no_order() -> None:
    ours, x = attention(), inputs(3, T, E)
    order = torch.randperm(T, generator=torch.Generator().manual_seed(3))
    moved = x[:, order]
    assert_close(ours(moved, moved), ours(x, x)[:, order], CLOSE, "permuted")
    see = causal_mask(T)
    assert (ours(moved, moved, see) - ours(x, x, see)[:, order]).abs().max() > 1e-2


@pytest.mark.parametrize("normed", ["none", "key", "both"])
def test_identical_keys_are_averaged(normed: str) -> None:
    ours, x = attention(normed=normed), inputs(3, T, E)
    memory = inputs(3, T, E, seed=2)
    with torch.no_grad():
        ours.key.weight.zero_()
    mean = ours.output(ours.value(memory).mean(1, keepdim=True)).expand_as(x)
    assert_close(ours(x, memory), mean, CLOSE, "average")


@pytest.mark.parametrize("width", [4, 16, 64, 256])
@pytest.mark.parametrize("scaled", [True, False])
def test_logits_of_unit_variance_whatever_the_size(width: int, *, scaled: bool) -> None:
    """... of the heads; unscaled, their variance is that size d."""
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
def stretched(ours: Attention, part: str, factor: float) -> Attention:
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
def test_a_normalised_vector_has_no_length(normed: str, part: str, *, changes: bool) -> None:
    x, memory = inputs(3, T, E), inputs(3, T, E, seed=2)
    before = attention(normed=normed)(x, memory)
    after = stretched(attention(normed=normed), part, 7.0)(x, memory)
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
    logits = stretched(ours, "key", 1e3).logits(x, inputs(3, 200, E, seed=2))
    assert logits.abs().max() <= bound * (1 + CLOSE)
    assert logits.abs().max() > 0.8 * bound


def test_every_head_learns_a_temperature_of_its_own() -> None:
    ours, fixed = attention(heads=2, learned=True), attention(heads=2)
    x = inputs(3, T, E)
    assert_close(ours(x, x), fixed(x, x), CLOSE, "first output")
    with torch.no_grad():
        ours.log_temperature[1] += torch.tensor(3.0).log()
    expected = fixed.logits(x, x) * torch.tensor([1.0, 3.0])[:, None, None]
    assert_close(ours.logits(x, x), expected, CLOSE, "logits")


def test_no_temperature_averages_and_a_large_one_picks() -> None:
    x, memory = inputs(3, T, E), inputs(3, T, E, seed=2)
    cold = attention(normed="both", temperature=1e-6)
    mean = cold.output(cold.value(memory).mean(1, keepdim=True)).expand_as(x)
    assert_close(cold(x, memory), mean, CLOSE, "average")
    hot = attention(normed="both", temperature=1e6)(x, memory)
    for pick in ("argmax", "sample"):
        assert_close(attention(normed="both", pick=pick)(x, memory), hot, CLOSE, "hard attention")


def test_a_picked_value_is_the_best_seen_and_its_gradient_that_of_the_average() -> None:
    ours, x, see = attention(pick="argmax"), inputs(2, T, E), causal_mask(T)
    ours.output.load_state_dict({"weight": torch.eye(E), "bias": torch.zeros(E)})
    logits = ours.logits(x, x, see)
    values = ours.value(x).unflatten(-1, (4, -1)).transpose(1, 2)
    best = values.gather(2, logits.argmax(-1, keepdim=True).expand_as(values))
    found = ours(x, x, see)
    assert_close(found, best.transpose(1, 2).flatten(2), CLOSE, "picked")
    weight = ours.query.weight
    mean = (logits.softmax(-1) @ values).sum()
    expected = torch.autograd.grad(mean, weight, retain_graph=True)[0]
    assert_close(torch.autograd.grad(found.sum(), weight)[0], expected, CLOSE, "gradient")


def test_samples_come_as_often_as_the_weights_say() -> None:
    """4000 draws of a weight p scatter by at most 0.008; allowed are four times that."""
    ours = attention(heads=1, pick="sample").train()
    ours.output.load_state_dict({"weight": torch.eye(E), "bias": torch.zeros(E)})
    x, memory = inputs(1, 1, E).expand(4000, -1, -1), inputs(1, T, E, seed=2).expand(4000, -1, -1)
    alpha = ours.logits(x[:1], memory[:1]).softmax(-1)[0, 0, 0]
    taken = torch.cdist(ours(x, memory)[:, 0], ours.value(memory[0])).argmin(-1)
    assert_close(taken.bincount(minlength=T) / 4000, alpha, 0.032, "frequencies")


@pytest.mark.parametrize("pick", ["mean", "argmax"])
def test_dropout_touches_weights_in_training_only(pick: str) -> None:
    """With half of the weights dropped and the rest doubled, a query may take nothing."""
    torch.manual_seed(0)
    ours = Attention(Attention.Config(heads=1, pick=pick), E, dropout=0.5)
    x, only = inputs(200, 1, E), inputs(200, 1, E, seed=2)
    kept = ours.output(2 * ours.value(only))
    nothing = ours.output(torch.zeros_like(only))
    found = ours.train()(x, only)
    is_kept, is_nothing = ((found - one).abs().amax(-1) < CLOSE for one in (kept, nothing))
    assert (is_kept ^ is_nothing).all()
    assert 60 < is_kept.sum() < 140
    assert_close(ours.eval()(x, only), ours.output(ours.value(only)), CLOSE, "in evaluation")


def test_heads_need_not_share_the_width() -> None:
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
