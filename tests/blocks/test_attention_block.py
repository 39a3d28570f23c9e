"""Transformer layers equal torch's; causal set attention equals the plain form on prefixes."""

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


def block(kind=AttentionBlock, **options: object):
    """Build a layer whose LayerNorms are not the identity."""
    torch.manual_seed(0)
    layer = kind(E, Attention.Config(heads=2), **options)
    return randomise_norms(layer).eval()


@torch.no_grad()
def randomise_norms(module: nn.Module) -> nn.Module:
    """Draw the parameters of every LayerNorm, in place."""
    for part in module.modules():
        if isinstance(part, nn.LayerNorm):
            part.weight.uniform_(0.5, 2)
            part.bias.uniform_(-1, 1)
    return module


def as_layer(ours, activation: Activation):
    """Return torch's layer with our weights."""
    pre = ours.norm_position is NormPosition.PRE
    function = nn.GELU("tanh")
    if activation is Activation.RELU:
        function = "relu"
    options = {"batch_first": True, "norm_first": pre, "activation": function}
    norms = [ours.attention_norm, ours.feed_forward_norm]
    if isinstance(ours, CrossBlock):
        theirs = nn.TransformerDecoderLayer(E, 2, 4 * E, **options)
        theirs.self_attn = as_torch(ours.self_attention)
        theirs.multihead_attn = as_torch(ours.attention)
        # torch numbers them in the order of the layers.
        norms.insert(0, ours.self_attention_norm)
    else:
        theirs = nn.TransformerEncoderLayer(E, 2, 4 * E, **options)
        theirs.self_attn = as_torch(ours.attention)
    theirs.linear1.load_state_dict(ours.feed_forward.expand.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.contract.state_dict())
    for number, norm in enumerate(norms, 1):
        getattr(theirs, f"norm{number}").load_state_dict(norm.state_dict())
    return theirs.eval()


EVERY_ACTIVATION = pytest.mark.parametrize("activation", list(Activation))
EVERY_PLACE = pytest.mark.parametrize("norm_position", list(NormPosition))


@EVERY_PLACE
@EVERY_ACTIVATION
def test_layers_of_an_encoder_equal_torchs(norm_position, activation):
    x = inputs(3, T, E)
    mask = causal_mask(T)
    ours = block(norm_position=norm_position, activation=activation)
    expected = as_layer(ours, activation)(x, src_mask=~mask)
    assert_equal_single(ours(x, mask=mask), expected)


@EVERY_PLACE
@EVERY_ACTIVATION
def test_layers_of_a_decoder_equal_torchs(norm_position, activation):
    x = inputs(3, T, E)
    memory = inputs(3, 3, E, seed=2)
    mask = causal_mask(T)
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
    unchanged = (ours(x) - x).abs() < CLOSE
    assert unchanged.float().mean() > 0.9


X = inputs(3, T, E)
CONFIG = Attention.Config(heads=2)


def induced(points: int = 2) -> InducedAttention:
    torch.manual_seed(0)
    return InducedAttention(E, points, CONFIG).eval()


def test_causal_induced_attention_equals_the_plain_form_on_every_prefix():
    isab = induced()
    causal = induced()(X)
    points = isab.points.vectors.expand(len(X), -1, -1)
    for t in range(1, T + 1):
        prefix = X[:, :t]
        plain = isab.spread(prefix, isab.gather(points, prefix))
        assert_close(causal[:, t - 1], plain[:, -1], CLOSE, f"ISAB of {t}")


def test_masked_set_attention_equals_the_plain_form_on_every_prefix():
    masked = block()(X, mask=causal_mask(T))
    for t in range(1, T + 1):
        plain = block()(X[:, :t])
        assert_close(masked[:, t - 1], plain[:, -1], CLOSE, f"SAB of {t}")
