"""A Transformer decoder layer equals torch's, for both positions of the LayerNorm."""

import pytest
import torch
from torch import nn

from lmzoo.blocks.attention import Attention
from lmzoo.blocks.attention_block import Activation, CrossBlock, NormPosition
from lmzoo.functional.softmax_attention import causal_mask
from lmzoo.laws.support import assert_close
from tests.blocks.test_attention import E, T, as_torch, inputs
from tests.tiny import CLOSE

M = 3
"""Number of vectors in the memory."""


def block(**options: object) -> CrossBlock:
    """Build a layer whose LayerNorms are not the identity."""
    torch.manual_seed(0)
    return randomise_norms(CrossBlock(E, Attention.Config(heads=2), **options)).eval()


@torch.no_grad()
def randomise_norms(module: nn.Module) -> nn.Module:
    """Draw the parameters of every LayerNorm, in place."""
    for part in module.modules():
        if isinstance(part, nn.LayerNorm):
            part.weight.uniform_(0.5, 2)
            part.bias.uniform_(-1, 1)
    return module


def as_decoder_layer(ours: CrossBlock, activation: Activation) -> nn.TransformerDecoderLayer:
    """Return torch's layer with our weights."""
    theirs = nn.TransformerDecoderLayer(
        E, 2, 4 * E, batch_first=True, norm_first=ours.norm_position is NormPosition.PRE,
        activation="relu" if activation is Activation.RELU else nn.GELU("tanh"),
    ).eval()  # fmt: skip
    theirs.self_attn = as_torch(ours.self_attention)
    theirs.multihead_attn = as_torch(ours.attention)
    theirs.linear1.load_state_dict(ours.feed_forward.expand.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.contract.state_dict())
    theirs.norm1.load_state_dict(ours.self_attention_norm.state_dict())
    theirs.norm2.load_state_dict(ours.attention_norm.state_dict())
    theirs.norm3.load_state_dict(ours.feed_forward_norm.state_dict())
    return theirs


@pytest.mark.parametrize("norm_position", list(NormPosition))
@pytest.mark.parametrize("activation", list(Activation))
def test_it_equals_torchs_decoder_layer(
    norm_position: NormPosition, activation: Activation
) -> None:
    ours = block(norm_position=norm_position, activation=activation)
    x, memory = inputs(3, T, E), inputs(3, M, E, seed=2)
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0]], dtype=torch.bool)
    theirs = as_decoder_layer(ours, activation)
    expected = theirs(x, memory, tgt_mask=~causal_mask(T), memory_key_padding_mask=~mask)
    assert_close(ours(x, memory, mask[:, None].expand(-1, T, -1)), expected, CLOSE, "layer")
