"""Attention along the words of a sentence: sums, causality, and who looks at whom."""

import pytest
import torch

from lmzoo.contract import START
from lmzoo.inspect.attention_maps import has_maps, maps
from lmzoo.inspect.hooks import record_activity
from tests.laws.ask import same
from tests.tiny import CLOSE, tiny

IDS, TOKENS = [START, 0, 2, 1], ["<start>", "a", "c", "b"]
SOURCE = torch.tensor([[2, 0, 1]])


@pytest.mark.parametrize("name", ["gpt", "gpt_mixture", "transformer_decoder", "hard_attention"])
def test_a_decoder_looks_back_at_what_it_has_read(name: str) -> None:
    model = tiny(name, spread=0.5)
    found = maps(model, IDS, TOKENS)
    assert has_maps(model)
    assert model.training
    assert found.weight.shape == (2, 2, 3, 3)
    assert found.looking == found.looked_at == ("0 <start>", "1 a", "2 c")
    same(found.weight.sum(-1), torch.ones(2, 2, 3), CLOSE, "weights of a query")
    assert not found.weight.triu(1).any()
    with torch.no_grad(), record_activity(model.eval()) as seen:
        model.log_prob(torch.tensor([IDS]), torch.tensor([4]))
    for layer, looks in enumerate(seen.looks.values()):
        attention, (look,) = model.blocks[layer].attention, looks
        told = attention.weigh(attention.compare(look.x, look.remembered[0], look.see))
        same(found.weight[layer], told[0].detach(), CLOSE, f"weights of layer {layer + 1}")


@torch.no_grad()
def test_a_word_that_is_predicted_looks_at_the_words_of_its_source() -> None:
    model = tiny("seq2seq_dot_attention")
    given = SOURCE[:, :2], torch.tensor([2])
    found = maps(model, IDS, TOKENS, given, ["x", "y"])
    assert found.weight.shape == (1, 1, 3, 2)
    assert found.looking == ("1 a", "2 c", "3 b")
    assert found.looked_at == ("1 x", "2 y")
    carried = model.begin(1, *given)
    for i, token in enumerate(IDS[:-1]):
        expected = torch.softmax(carried.source[0] @ carried.h[0], dim=0)
        same(found.weight[0, 0, i], expected, CLOSE, f"what {TOKENS[i + 1]} looked at")
        _, carried = model.eval().advance(carried, torch.tensor([token]))


def test_most_rows_have_no_maps() -> None:
    assert not any(has_maps(tiny(name)) for name in ("gru", "slot_ngram", "hm_lstm", "seq2seq"))
