"""Attention maps: normalisation, causality, and equality with the weights in use."""

import pytest
import torch

from lmzoo.contract import START
from lmzoo.inspect.attention import attention_maps, has_attention_maps
from lmzoo.inspect.hooks import record_activity
from tests.laws.support import assert_close
from tests.tiny import CLOSE, tiny

IDS, TOKENS = [START, 0, 2, 1], ["<start>", "a", "c", "b"]
SOURCE = torch.tensor([[2, 0, 1]])


@pytest.mark.parametrize("name", ["gpt", "gpt_mixture", "transformer_decoder", "hard_attention"])
def test_a_decoder_attends_to_its_prefix(name: str) -> None:
    model = tiny(name, spread=0.5)
    maps = attention_maps(model, IDS, TOKENS)
    assert has_attention_maps(model)
    assert model.training
    assert maps.weight.shape == (2, 2, 3, 3)
    assert maps.looking == maps.looked_at == ("0 <start>", "1 a", "2 c")
    assert_close(maps.weight.sum(-1), torch.ones(2, 2, 3), CLOSE, "weights of a query")
    assert not maps.weight.triu(1).any()
    with torch.no_grad(), record_activity(model.eval()) as activity:
        model.log_prob(torch.tensor([IDS]), torch.tensor([4]))
    for layer, calls in enumerate(activity.attention_calls.values()):
        attention, (call,) = model.blocks[layer].attention, calls
        weights = attention.attention_weights(
            attention.logits_for_keys(call.x, call.cache[0], call.mask)
        )
        assert_close(
            maps.weight[layer], weights[0].detach(), CLOSE, f"weights of layer {layer + 1}"
        )


@torch.no_grad()
def test_a_predicted_token_attends_to_the_source() -> None:
    model = tiny("seq2seq_dot_attention")
    sources = SOURCE[:, :2], torch.tensor([2])
    maps = attention_maps(model, IDS, TOKENS, sources, ["x", "y"])
    assert maps.weight.shape == (1, 1, 3, 2)
    assert maps.looking == ("1 a", "2 c", "3 b")
    assert maps.looked_at == ("1 x", "2 y")
    state = model.begin(1, *sources)
    for i, token in enumerate(IDS[:-1]):
        expected = torch.softmax(state.source[0] @ state.h[0], dim=0)
        assert_close(maps.weight[0, 0, i], expected, CLOSE, f"weights of {TOKENS[i + 1]}")
        _, state = model.eval().advance(state, torch.tensor([token]))


def test_other_rows_have_no_attention_maps() -> None:
    assert not any(
        has_attention_maps(tiny(name)) for name in ("gru", "slot_ngram", "hm_lstm", "seq2seq")
    )
