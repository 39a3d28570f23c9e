"""Attention maps: normalisation, causality, and equality with the weights in use."""

import pytest
import torch
from torch import Tensor

from lmzoo.blocks.attention import Attention
from lmzoo.contract import START
from lmzoo.inspect.attention import attention_maps, has_attention_maps
from lmzoo.laws.support import assert_close, log_prob
from tests.tiny import CLOSE, tiny

IDS, TOKENS = [START, 0, 2, 1], ["<start>", "a", "c", "b"]
SOURCE = torch.tensor([[2, 0, 1]])


@pytest.mark.parametrize("name", ["gpt", "gpt_mixture", "transformer_decoder", "hard_attention"])
def test_a_decoder_attends_to_its_prefix(name: str, monkeypatch) -> None:
    model = tiny(name, spread=0.5)
    maps = attention_maps(model, IDS, TOKENS)
    assert has_attention_maps(model)
    assert model.training
    assert maps.weight.shape == (2, 2, 3, 3)
    assert maps.looking == maps.looked_at == ("0 <start>", "1 a", "2 c")
    assert_close(maps.weight.sum(-1), torch.ones(2, 2, 3), CLOSE, "weights of a query")
    assert not maps.weight.triu(1).any()
    calls, attend = [], Attention.attend

    def recorded(self: Attention, x: Tensor, cache, mask=None) -> Tensor:
        calls.append(self.attention_weights(self.logits_for_keys(x, cache[0], mask))[0])
        return attend(self, x, cache, mask)

    monkeypatch.setattr(Attention, "attend", recorded)
    log_prob(model.eval(), torch.tensor([IDS]), torch.tensor([4]))
    assert_close(maps.weight, torch.stack(calls).detach(), CLOSE, "weights in use")


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
