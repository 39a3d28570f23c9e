"""Gates, states and attention of whole models, beside what can be worked out by hand."""

import math

import pytest
import torch

from lmzoo import zoo
from lmzoo.blocks.attention import Attention
from lmzoo.data.open import open_corpus
from lmzoo.errors import UserError
from lmzoo.inspect.attention import edges, heads
from lmzoo.inspect.gates import carries, gates
from lmzoo.inspect.hooks import Activity, record_activity
from lmzoo.inspect.summary import equal_length_sequences, summarise_activity
from tests.laws.ask import log_prob, same
from tests.tiny import CLOSE, SAME, every_sequence, given, tiny

T = 4


def watch(model: torch.nn.Module) -> tuple[Activity, int]:
    tokens, lengths = every_sequence(model.task)
    with torch.no_grad(), record_activity(model.eval()) as seen:
        model.log_prob(tokens, lengths, *given(model, len(tokens)))
    return seen, len(tokens)


def test_facts_of_a_gate_are_over_sequences_steps_and_units() -> None:
    model = tiny("DLM46")
    tokens, _ = every_sequence(model.task)
    (gate,) = gates(watch(model)[0])
    (carry,) = carries(watch(model)[0])
    w, values, norms = model.cell.w, [], []
    for sequence in tokens[:, :-1]:
        h = torch.ones(4)
        for token in sequence:
            x = model.embedding.weight[token]
            x = x * 2 / x.norm()
            f = torch.sigmoid(x @ w.xf + w.bf + h @ w.hf)
            h = h + f * (torch.tanh(x @ w.xh + w.bh + (h * f) @ w.hh) - h)
            values.append(f)
            norms.append(h.norm())
    every = torch.stack(values).flatten().double()
    assert (gate.cell, gate.name) == ("cell", "f")
    assert gate.mean == pytest.approx(every.mean().item(), abs=SAME)
    assert gate.spread == pytest.approx(every.std(correction=0).item(), abs=SAME)
    means = torch.stack(norms).view(-1, T - 1).mean(0)
    same(torch.tensor(carry.norms[0]), means.detach(), CLOSE, "norms")


@pytest.mark.parametrize(("bias", "share"), [(0.0, 0.0), (2.9, 0.0), (3.0, 1.0), (-3.0, 1.0)])
def test_saturated_is_beyond_a_twentieth(bias: float, share: float) -> None:
    model = tiny("lstm_lm", cell={"name": "lstm", "forget_bias": bias})
    with torch.no_grad():
        for name, weight in model.cell.w.named_parameters():
            if name.startswith("weight"):
                weight.zero_()
    f = next(gate for gate in gates(watch(model)[0]) if gate.name == "f")
    assert f.mean == pytest.approx(1 / (1 + math.exp(-bias)), abs=SAME)
    assert (f.spread, f.saturated) == (pytest.approx(0, abs=SAME), share)


def test_a_model_is_as_it_was_when_nobody_looks_any_more() -> None:
    for name in ("gru", "gpt"):
        model = tiny(name)
        tokens, lengths = every_sequence(model.task)
        before = [set(vars(module)) for module in model.modules()]
        scores = log_prob(model, tokens, lengths)
        seen, _ = watch(model)
        with pytest.raises(ZeroDivisionError), record_activity(model):
            _ = 1 / 0
        assert [set(vars(module)) for module in model.modules()] == before
        assert scores.equal(log_prob(model, tokens, lengths))
        assert bool(seen.steps) != bool(seen.looks)


def test_equal_keys_have_the_entropy_of_what_is_visible() -> None:
    model = tiny("gpt")
    for attention in (m for m in model.modules() if isinstance(m, Attention)):
        torch.nn.init.zeros_(attention.key.weight)
    seen, _ = watch(model)
    widest = sum(math.log(i) for i in range(1, T)) / (T - 1)
    found = heads(model, seen)
    assert {(head.layer, head.head) for head in found} == {
        (f"blocks.{k}.attention", h) for k in (0, 1) for h in (0, 1)
    }
    for head in found:
        assert head.entropy == pytest.approx(widest, abs=SAME)
        assert head.widest == pytest.approx(widest, abs=SAME)
        assert head.key_norm == 0


def test_sharp_attention_has_no_entropy_and_any_has_less_than_the_widest() -> None:
    plain = tiny("gpt")
    sharp = tiny("gpt", attention={"temperature": 1e6})
    assert max(head.entropy for head in heads(sharp, watch(sharp)[0])) < 1e-3
    assert all(0 < head.entropy < head.widest for head in heads(plain, watch(plain)[0]))


def test_attention_that_picks_one_value_has_no_entropy() -> None:
    model = tiny("hard_attention")
    for head in heads(model, watch(model)[0]):
        assert head.entropy == 0 < head.widest


def test_entropy_is_that_of_the_weights() -> None:
    model = tiny("gpt")
    for attention in (m for m in model.modules() if isinstance(m, Attention)):
        with torch.no_grad():  # weights far from even, where every factor of a logit shows
            attention.query.weight.mul_(1e4)
    tokens, _ = every_sequence(model.task)
    maps = model.eval().attention_maps(tokens[:, :-1])
    expected = torch.special.entr(maps).sum(-1).mean((1, 3))
    found = torch.tensor([head.entropy for head in heads(model, watch(model)[0])])
    same(found.view(2, 2), expected.detach(), CLOSE, "entropies")
    assert found.max() < 0.5


def test_norms_are_one_where_they_are_normed() -> None:
    for normed, query in (("both", True), ("key", False)):
        model = tiny("gpt", attention={"normed": normed})
        for head in heads(model, watch(model)[0]):
            assert head.key_norm == pytest.approx(1, abs=SAME)
            assert (abs(head.query_norm - 1) < SAME) is query


def test_edges_are_layers_times_heads_times_positions_squared() -> None:
    model = tiny("gpt")
    seen, count = watch(model)
    found = edges(model, seen, count)
    n = T - 1  # the last token is read by nobody
    assert sum(one.edges for one in found) == 2 * 2 * n**2
    assert sum(one.seen for one in found) == 2 * 2 * n * (n + 1) // 2


def test_a_row_with_sources_shows_both_its_cells() -> None:
    model = tiny("seq2seq")
    found = {(gate.cell, gate.name) for gate in gates(watch(model)[0])}
    assert found == {(cell, gate) for cell in ("encoder", "decoder") for gate in "rz"}


def test_every_row_is_shown_or_refused() -> None:
    corpus = open_corpus(
        {"name": "copy", "symbols": 3, "length": 3, "train": 9, "valid": 9, "test": 9}
    )
    shown = set()
    for name in zoo.names():
        if zoo.row(name).model is None or zoo.row(name).family == "count":
            continue
        model = tiny(name)
        part = equal_length_sequences(corpus)
        model = zoo.build(model.config, corpus.task)
        try:
            found = summarise_activity(model, part, name)
            shown.add(name)
            assert found["states"] or found["heads"], name  # what could be watched was asked
            assert model.training
        except UserError as error:
            assert name in str(error)  # noqa: PT017
    assert shown >= {"gru", "lstm_lm", "hm_lstm", "gpt", "seq2seq", "transformer_encdec", "elmo"}
    assert not shown & {"ngram_log_bilinear", "word2vec_cbow", "pcfg"}


def test_no_pad_is_looked_at() -> None:
    part = equal_length_sequences(open_corpus("captions"))
    assert (part.lengths == part.tokens.shape[1]).all()
    assert (part.tokens != 0).all()
