"""The Transformer encoder-decoder equals PyTorch's with the same weights."""

import pytest
import torch
from torch import nn

from lmzoo.blocks.attention_block import Activation, NormPosition
from lmzoo.blocks.positions import sinusoids
from lmzoo.contract import LanguageModel
from lmzoo.functional.softmax_attention import causal_mask
from lmzoo.laws.support import assert_close, log_prob
from tests.blocks.test_attention_block import as_layer
from tests.blocks.test_cross_block import as_decoder_layer, randomise_norms
from tests.models.equivalence import small
from tests.tiny import CLOSE, every_sequence, sources

E = 8
"""Width of the layers that the shared helper functions build."""


def as_transformer(model: LanguageModel, place: NormPosition) -> nn.Transformer:
    """Return PyTorch's model with our weights; a final LayerNorm exists with `pre` only."""
    body, pre = model.body, place is NormPosition.PRE
    theirs = nn.Transformer(
        E, 2, len(body.encoder), len(body.decoder), 4 * E, batch_first=True, norm_first=pre
    )
    theirs.encoder.layers = nn.ModuleList(as_layer(b, Activation.RELU) for b in body.encoder)
    theirs.decoder.layers = nn.ModuleList(
        as_decoder_layer(b, Activation.RELU) for b in body.decoder
    )
    theirs.encoder.norm, theirs.decoder.norm = body.encoder_norm, body.decoder_norm
    return theirs.eval()


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("place", list(NormPosition))
def test_scores_equal_the_pytorch_transformer(place: NormPosition) -> None:
    model = randomise_norms(small("transformer_encdec", width=E, norm=place)).eval()
    theirs = as_transformer(model, place)
    tokens, lengths = every_sequence(model.task)
    source, n = sources(model.task, len(tokens))
    x, u = model.source_embedding(source) * E**0.5, model.embedding(tokens[:, :-1]) * E**0.5
    beyond = torch.arange(source.shape[1]) >= n[:, None]
    y = theirs(
        x + sinusoids(source.shape[1], E).float(),
        u + sinusoids(u.shape[1], E).float(),
        tgt_mask=~causal_mask(u.shape[1]),
        src_key_padding_mask=beyond,
        memory_key_padding_mask=beyond,
    )
    dense = torch.log_softmax(y @ model.embedding.weight.T, dim=-1)
    expected = dense.gather(2, tokens[:, 1:, None])[..., 0].detach()
    assert_close(log_prob(model, tokens, lengths, source, n)[:, 1:], expected, CLOSE, "scores")
