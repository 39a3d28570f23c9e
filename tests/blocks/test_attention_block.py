"""Transformer layers equal torch's; causal set attention equals the plain form on prefixes."""

import torch
from torch import nn

from lmzoo.blocks.attention import Attention
from lmzoo.blocks.attention_block import Activation, AttentionBlock, CrossBlock, NormPosition
from lmzoo.functional.softmax_attention import causal_mask
from lmzoo.laws.tiny import assert_close
from lmzoo.models.set_transformer_causal import InducedAttention
from tests.blocks.test_attention import E, T, as_torch, inputs
from tests.cases import parametrize
from tests.tiny import CLOSE, assert_equal_single

SIZES = torch.tensor([3, 1, 2])
MEMORY = torch.arange(3) < SIZES[:, None]
"""Which of three vectors of a memory each sequence has."""


def block(kind=AttentionBlock, **options):
    """Build a layer whose LayerNorms are not the identity."""
    torch.manual_seed(0)
    config = Attention.Config(heads=2)
    layer = kind(E, config, **options)
    return randomise_norms(layer).eval()


@torch.no_grad()
def randomise_norms(module):
    """Draw the parameters of every LayerNorm, in place."""
    for part in module.modules():
        if isinstance(part, nn.LayerNorm):
            part.weight.uniform_(0.5, 2)
            part.bias.uniform_(-1, 1)
    return module


def as_layer(ours, activation):
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
    layers = ours.feed_forward
    theirs.linear1.load_state_dict(layers.expand.state_dict())
    theirs.linear2.load_state_dict(layers.contract.state_dict())
    for number, norm in enumerate(norms, 1):
        their_norm = getattr(theirs, f"norm{number}")
        their_norm.load_state_dict(norm.state_dict())
    return theirs.eval()


EVERY_ACTIVATION = parametrize("activation", list(Activation))
EVERY_PLACE = parametrize("norm_position", list(NormPosition))


@EVERY_PLACE
@EVERY_ACTIVATION
def test_layers_of_an_encoder_equal_torchs(norm_position, activation):
    x = inputs(3, T, E)
    mask = causal_mask(T)
    ours = block(norm_position=norm_position, activation=activation)
    theirs = as_layer(ours, activation)
    expected = theirs(x, src_mask=~mask)
    actual = ours(x, mask=mask)
    assert_equal_single(actual, expected)


@EVERY_PLACE
@EVERY_ACTIVATION
def test_layers_of_a_decoder_equal_torchs(norm_position, activation):
    x = inputs(3, T, E)
    memory = inputs(3, 3, E, seed=2)
    mask = causal_mask(T)
    options = {"norm_position": norm_position, "activation": activation}
    ours = block(CrossBlock, **options)
    theirs = as_layer(ours, activation)
    expected = theirs(x, memory, tgt_mask=~mask, memory_key_padding_mask=~MEMORY)
    # Every position sees the same vectors of the memory.
    seen = MEMORY[:, None].expand(-1, T, -1)
    actual = ours(x, memory, seen)
    assert_equal_single(actual, expected)


def test_a_memory_is_not_normalised():
    ours = block(norm_position=NormPosition.PRE)
    x = inputs(3, T, E)
    memory = inputs(3, 2, E, seed=2)
    normed = ours.attention_norm(x)
    # The memory comes as it is.
    h = x + ours.attention(normed, memory)
    normed = ours.feed_forward_norm(h)
    expected = h + ours.feed_forward(normed)
    assert_equal_single(ours(x, memory), expected)


def test_dropout_does_not_act_on_the_residual():
    """With pre-LN and a dropout near 1, a layer is nearly the identity."""
    ours = block(norm_position=NormPosition.PRE, dropout=0.999)
    ours.train()
    x = inputs(100, 1, E)
    difference = (ours(x) - x).abs()
    unchanged = (difference < CLOSE).float()
    assert unchanged.mean() > 0.9


X = inputs(3, T, E)
CONFIG = Attention.Config(heads=2)


def induced():
    torch.manual_seed(0)
    return InducedAttention(E, 2, CONFIG).eval()


def test_causal_induced_attention_equals_the_plain_form_on_every_prefix():
    isab = induced()
    # The same seed gives the same weights.
    causal = induced()(X)
    vectors = isab.points.vectors
    points = vectors.expand(len(X), -1, -1)
    for t in range(1, T + 1):
        prefix = X[:, :t]
        gathered = isab.gather(points, prefix)
        plain = isab.spread(prefix, gathered)
        actual = causal[:, t - 1]
        expected = plain[:, -1]
        assert_close(actual, expected, CLOSE, f"ISAB of {t}")


def test_masked_set_attention_equals_the_plain_form_on_every_prefix():
    mask = causal_mask(T)
    masked = block()(X, mask=mask)
    for t in range(1, T + 1):
        prefix = X[:, :t]
        plain = block()(prefix)
        actual = masked[:, t - 1]
        expected = plain[:, -1]
        assert_close(actual, expected, CLOSE, f"SAB of {t}")
