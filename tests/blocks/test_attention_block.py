"""Transformer layers equal torch's; causal set attention equals the plain form on prefixes."""

from typing import Any

import pytest
import torch
from torch import nn

from lmzoo.blocks.attention import Attention
from lmzoo.blocks.attention_block import Activation, AttentionBlock, CrossBlock, NormPosition
from lmzoo.functional.softmax_attention import causal_mask
from lmzoo.laws.tiny import assert_close
from lmzoo.models.set_transformer_causal import InducedAttention
from tests.blocks.test_attention import E, T, as_torch, inputs
from tests.tiny import CLOSE, assert_equal_single

MEMORY = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0]], dtype=torch.bool)
"""Which of three vectors of a memory each sequence has."""


def block(kind: Any = AttentionBlock, **options: object) -> Any:
    """Build a layer whose LayerNorms are not the identity."""
    torch.manual_seed(0)
    return randomise_norms(kind(E, Attention.Config(heads=2), **options)).eval()


@torch.no_grad()
def randomise_norms(module: nn.Module) -> nn.Module:
    """Draw the parameters of every LayerNorm, in place."""
    for part in module.modules():
        if isinstance(part, nn.LayerNorm):
            part.weight.uniform_(0.5, 2)
            part.bias.uniform_(-1, 1)
    return module


def as_layer(ours: Any, activation: Activation) -> Any:
    """Return torch's layer with our weights."""
    cross = isinstance(ours, CrossBlock)
    kind: Any = nn.TransformerDecoderLayer if cross else nn.TransformerEncoderLayer
    theirs = kind(
        E, 2, 4 * E, batch_first=True, norm_first=ours.norm_position is NormPosition.PRE,
        activation="relu" if activation is Activation.RELU else nn.GELU("tanh"),
    ).eval()  # fmt: skip
    theirs.self_attn = as_torch(ours.self_attention if cross else ours.attention)
    norms = [ours.attention_norm, ours.feed_forward_norm]
    if cross:
        theirs.multihead_attn = as_torch(ours.attention)
        norms.insert(0, ours.self_attention_norm)
    theirs.linear1.load_state_dict(ours.feed_forward.expand.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.contract.state_dict())
    for number, norm in enumerate(norms, 1):
        getattr(theirs, f"norm{number}").load_state_dict(norm.state_dict())
    return theirs


@pytest.mark.parametrize("norm_position", list(NormPosition))
@pytest.mark.parametrize("activation", list(Activation))
def test_layers_equal_torchs(norm_position, activation):
    x = inputs(3, T, E)
    memory = inputs(3, 3, E, seed=2)
    mask = causal_mask(T)
    ours = block(norm_position=norm_position, activation=activation)
    expected = as_layer(ours, activation)(x, src_mask=~mask)
    assert_equal_single(ours(x, mask=mask), expected)
    ours = block(CrossBlock, norm_position=norm_position, activation=activation)
    theirs = as_layer(ours, activation)
    expected = theirs(x, memory, tgt_mask=~mask, memory_key_padding_mask=~MEMORY)
    actual = ours(x, memory, MEMORY[:, None].expand(-1, T, -1))
    assert_equal_single(actual, expected)


def test_a_memory_is_not_normalised():
    ours = block(norm_position=NormPosition.PRE)
    x = inputs(3, T, E)
    memory = inputs(3, 2, E, seed=2)
    h = x + ours.attention(ours.attention_norm(x), memory)
    expected = h + ours.feed_forward(ours.feed_forward_norm(h))
    assert_equal_single(ours(x, memory), expected)


def test_dropout_does_not_act_on_the_residual():
    """With pre-LN and a dropout near 1, a layer is nearly the identity."""
    ours = block(norm_position=NormPosition.PRE, dropout=0.999).train()
    x = inputs(100, 1, E)
    assert ((ours(x) - x).abs() < CLOSE).float().mean() > 0.9


X = inputs(3, T, E)
CONFIG = Attention.Config(heads=2)


def induced(points: int = 2) -> InducedAttention:
    torch.manual_seed(0)
    return InducedAttention(E, points, CONFIG).eval()


def test_the_causal_form_equals_the_plain_form_on_every_prefix():
    isab = induced()
    causal = induced()(X)
    masked = block()(X, mask=causal_mask(T))
    for t in range(1, T + 1):
        points = isab.points.vectors.expand(len(X), -1, -1)
        plain = isab.spread(X[:, :t], isab.gather(points, X[:, :t]))
        assert_close(causal[:, t - 1], plain[:, -1], CLOSE, f"ISAB of {t}")
        assert_close(masked[:, t - 1], block()(X[:, :t])[:, -1], CLOSE, f"SAB of {t}")
