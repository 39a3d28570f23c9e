"""A Transformer layer equals torch's, for both positions of the LayerNorm."""

import pytest
import torch
from torch import nn

from lmzoo.blocks.attention import Attention
from lmzoo.blocks.attention_block import Activation, AttentionBlock, NormPosition
from lmzoo.functional.softmax_attention import causal_mask
from lmzoo.laws.support import assert_close
from tests.blocks.test_attention import E, T, as_torch, inputs
from tests.tiny import CLOSE


def block(**options: object) -> AttentionBlock:
    """Build a layer whose LayerNorms are not the identity."""
    torch.manual_seed(0)
    layer = AttentionBlock(E, Attention.Config(heads=2), **options)
    with torch.no_grad():
        for norm in (layer.attention_norm, layer.feed_forward_norm):
            norm.weight.uniform_(0.5, 2)
            norm.bias.uniform_(-1, 1)
    return layer.eval()


def as_layer(ours: AttentionBlock, activation: Activation) -> nn.TransformerEncoderLayer:
    """Return torch's layer with our weights."""
    theirs = nn.TransformerEncoderLayer(
        E, 2, 4 * E, batch_first=True, norm_first=ours.norm_position is NormPosition.PRE,
        activation="relu" if activation is Activation.RELU else nn.GELU("tanh"),
    ).eval()  # fmt: skip
    theirs.self_attn = as_torch(ours.attention)
    theirs.linear1.load_state_dict(ours.feed_forward.expand.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.contract.state_dict())
    theirs.norm1.load_state_dict(ours.attention_norm.state_dict())
    theirs.norm2.load_state_dict(ours.feed_forward_norm.state_dict())
    return theirs


@pytest.mark.parametrize("norm_position", list(NormPosition))
@pytest.mark.parametrize("activation", list(Activation))
def test_it_equals_torchs_layer(norm_position: NormPosition, activation: Activation) -> None:
    ours = block(norm_position=norm_position, activation=activation)
    x, mask = inputs(3, T, E), causal_mask(T)
    expected = as_layer(ours, activation)(x, src_mask=~mask)
    assert_close(ours(x, mask=mask), expected, CLOSE, "layer")


def test_a_memory_is_not_normalised() -> None:
    ours = block(norm_position=NormPosition.PRE)
    x, memory = inputs(3, T, E), inputs(3, 2, E, seed=2)
    h = x + ours.attention(ours.attention_norm(x), memory)
    expected = h + ours.feed_forward(ours.feed_forward_norm(h))
    assert_close(ours(x, memory), expected, CLOSE, "layer with a memory")


def test_dropout_does_not_act_on_the_residual() -> None:
    """With pre-LN and a dropout near 1, a layer is nearly the identity."""
    ours = block(norm_position=NormPosition.PRE, dropout=0.999).train()
    x = inputs(100, 1, E)
    assert ((ours(x) - x).abs() < CLOSE).float().mean() > 0.9
