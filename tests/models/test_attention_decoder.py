"""Transformer decoders equal PyTorch's encoder with a causal mask (DLM40, DLM41)."""

import pytest
import torch
from torch import nn

from lmzoo import zoo
from lmzoo.base.config import to_dict
from lmzoo.blocks.attention_block import NormPosition
from lmzoo.laws.support import assert_close, log_prob
from tests.blocks.test_attention_block import as_layer
from tests.models.equivalence import LENGTH, assert_same_model, copy_weights, small
from tests.tiny import CLOSE, every_sequence

DECODERS = [
    "gpt", "gpt_mixture", "transformer_decoder", "transformer_decoder_preln",
    "qk_norm_attention", "hard_attention",
]  # fmt: skip
"""The rows of the model `transformer_decoder`."""


def wide(name: str, **fields: object) -> nn.Module:
    """Return a small model with the width that the layer tests use."""
    return small(name, width=8, **fields)


@pytest.mark.parametrize("name", ["gpt", "transformer_decoder", "transformer_decoder_preln"])
def test_scores_equal_the_pytorch_encoder_with_a_causal_mask(name: str) -> None:
    model = wide(name)
    pre = model.config.norm is NormPosition.PRE
    layers = [as_layer(block, model.config.activation) for block in model.blocks]
    tokens, lengths = every_sequence(model.task)
    x = model.place(model.embedding(tokens[:, :-1]))
    hidden = nn.Transformer.generate_square_subsequent_mask(LENGTH - 1)
    for layer in layers:
        x = layer(x, src_mask=hidden, is_causal=True)
    y = model.final_norm(x) if pre else x
    table = model.embedding if model.config.tied else model.output
    expected = torch.log_softmax(y @ table.weight.T, dim=-1)
    expected = expected.gather(2, tokens[:, 1:, None])[..., 0].detach()
    assert_close(log_prob(model, tokens, lengths)[:, 1:], expected, CLOSE, "scores")


@torch.no_grad()
@pytest.mark.parametrize("name", ["gpt", "transformer_decoder", "hard_attention"])
def test_attention_maps_are_the_weights_of_the_forward_pass(name: str) -> None:
    """The map of the second layer times its values equals the layer's attention output."""
    model = wide(name, spread=0.3).eval()
    tokens = every_sequence(model.task)[0]
    maps = model.attention_maps(tokens)
    assert maps.shape == (2, len(tokens), 2, LENGTH, LENGTH)
    assert_close(maps.sum(-1), torch.ones(maps.shape[:-1]), CLOSE, "weights of a query")
    assert not maps.triu(1).any()
    taken = []
    part = model.blocks[1].attention
    hook = part.register_forward_hook(lambda _, given, made: taken.append((given[1], made)))
    model.encode(model._inputs(tokens))
    hook.remove()
    memory, made = taken[0]
    values = part.value(memory).unflatten(-1, (2, -1)).transpose(1, 2)
    assert_close(part.output((maps[1] @ values).transpose(1, 2).flatten(2)), made, CLOSE, "layer 2")


def test_posterior_follows_bayes_rule() -> None:
    model = wide("gpt_mixture", spread=0.3).eval()
    tokens, lengths = every_sequence(model.task)
    y = model.encode(model._inputs(tokens[:, :-1]))
    words = model.emission.log_prob_table(model.embedding.weight).T[tokens[:, 1:]]
    joint = model.emission.gate(y).softmax(-1) * words.exp()
    posterior = model.posterior(tokens, lengths)
    assert_close(posterior, (joint / joint.sum(-1, keepdim=True)).mT, CLOSE, "posterior")


@pytest.mark.parametrize("where", ["token vectors", "weights", "residuals", "nowhere"])
def test_dropout_acts_in_three_places_during_training(where: str) -> None:
    model = wide("gpt", spread=0.3, dropout=0.3)
    keep = {"token vectors": [model.dropout], "residuals": [b.dropout for b in model.blocks]}
    for module in model.modules():
        if isinstance(module, nn.Dropout) and module not in keep.get(where, []):
            module.p = 0.0
    for block in model.blocks:
        block.attention.dropout *= where == "weights"
    tokens, lengths = every_sequence(model.task)
    draws = [log_prob(model, tokens, lengths, training=True, noise=n) for n in (0, 1)]
    assert draws[0].equal(draws[1]) is (where == "nowhere")


def test_a_window_that_covers_everything_changes_nothing_and_has_the_stated_state() -> None:
    wide = {"width": 8, "spread": 0.3}
    local, dense = (small("local_attention", window=w, **wide) for w in (LENGTH, 0))
    copy_weights(dense, local, *dict(local.named_parameters()))
    assert_same_model(dense, local)
    assert dense.state_size is None
    model = small("local_attention", window=3, **wide).eval()
    state = model.begin(1)
    for token in (1, 0, 2, 0, 1, 2):
        _, state = model.advance(state, torch.tensor([token]))
    assert sum(tensor.numel() for layer in state[1] for tensor in layer) == model.state_size
    assert "window" not in to_dict(zoo.config("transformer_decoder"))
