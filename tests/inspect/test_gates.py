"""Statistics of gates, states and attention, compared with direct computations."""

import math

import pytest
import torch

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.blocks.attention import Attention
from lmzoo.data.corpus import open_corpus
from lmzoo.inspect.attention import edges, heads
from lmzoo.inspect.hooks import Activity, record_activity
from lmzoo.inspect.summary import equal_length_sequences, gates, state_norms, summarise_activity
from tests.laws.support import assert_close, log_prob
from tests.tiny import CLOSE, SAME, default_source, every_sequence, tiny

T = 4


def record(model: torch.nn.Module) -> tuple[Activity, int]:
    tokens, lengths = every_sequence(model.task)
    with torch.no_grad(), record_activity(model.eval()) as activity:
        model.log_prob(tokens, lengths, *default_source(model, len(tokens)))
    return activity, len(tokens)


def test_gate_statistics_are_over_sequences_steps_and_units() -> None:
    model = tiny("DLM46")
    tokens, _ = every_sequence(model.task)
    (gate,) = gates(record(model)[0])
    (state,) = state_norms(record(model)[0])
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
    all_values = torch.stack(values).flatten().double()
    assert (gate.cell, gate.name) == ("cell", "f")
    assert gate.mean == pytest.approx(all_values.mean().item(), abs=SAME)
    assert gate.spread == pytest.approx(all_values.std(correction=0).item(), abs=SAME)
    means = torch.stack(norms).view(-1, T - 1).mean(0)
    assert_close(torch.tensor(state.norms[0]), means.detach(), CLOSE, "norms")


@pytest.mark.parametrize(("bias", "share"), [(0.0, 0.0), (2.9, 0.0), (3.0, 1.0), (-3.0, 1.0)])
def test_gates_below_or_above_a_twentieth_are_saturated(bias: float, share: float) -> None:
    model = tiny("lstm_lm", cell={"name": "lstm", "forget_bias": bias})
    with torch.no_grad():
        for name, weight in model.cell.w.named_parameters():
            if name.startswith("weight"):
                weight.zero_()
    f = next(gate for gate in gates(record(model)[0]) if gate.name == "f")
    assert f.mean == pytest.approx(1 / (1 + math.exp(-bias)), abs=SAME)
    assert (f.spread, f.saturated) == (pytest.approx(0, abs=SAME), share)


def test_recording_leaves_the_model_unchanged() -> None:
    for name in ("gru", "gpt"):
        model = tiny(name)
        tokens, lengths = every_sequence(model.task)
        before = [set(vars(module)) for module in model.modules()]
        scores = log_prob(model, tokens, lengths)
        activity, _ = record(model)
        with pytest.raises(ZeroDivisionError), record_activity(model):
            _ = 1 / 0
        assert [set(vars(module)) for module in model.modules()] == before
        assert scores.equal(log_prob(model, tokens, lengths))
        assert bool(activity.cell_steps) != bool(activity.attention_calls)


def test_equal_keys_have_the_maximal_entropy() -> None:
    model = tiny("gpt")
    for attention in (m for m in model.modules() if isinstance(m, Attention)):
        torch.nn.init.zeros_(attention.key.weight)
    activity, _ = record(model)
    widest = sum(math.log(i) for i in range(1, T)) / (T - 1)
    found = heads(model, activity)
    assert {(head.layer, head.head) for head in found} == {
        (f"blocks.{k}.attention", h) for k in (0, 1) for h in (0, 1)
    }
    for head in found:
        assert head.entropy == pytest.approx(widest, abs=SAME)
        assert head.widest == pytest.approx(widest, abs=SAME)
        assert head.key_norm == 0


def test_sharp_attention_has_no_entropy_and_other_attention_is_below_the_maximum() -> None:
    plain = tiny("gpt")
    sharp = tiny("gpt", attention={"temperature": 1e6})
    assert max(head.entropy for head in heads(sharp, record(sharp)[0])) < 1e-3
    assert all(0 < head.entropy < head.widest for head in heads(plain, record(plain)[0]))


def test_hard_attention_has_no_entropy() -> None:
    model = tiny("hard_attention")
    for head in heads(model, record(model)[0]):
        assert head.entropy == 0 < head.widest


def test_entropy_equals_that_of_the_attention_maps() -> None:
    model = tiny("gpt")
    for attention in (m for m in model.modules() if isinstance(m, Attention)):
        with torch.no_grad():  # weights far from uniform, which depend on every factor of a logit
            attention.query.weight.mul_(1e4)
    tokens, _ = every_sequence(model.task)
    maps = model.eval().attention_maps(tokens[:, :-1])
    expected = torch.special.entr(maps).sum(-1).mean((1, 3))
    found = torch.tensor([head.entropy for head in heads(model, record(model)[0])])
    assert_close(found.view(2, 2), expected.detach(), CLOSE, "entropies")
    assert found.max() < 0.5


def test_normalised_queries_and_keys_have_norm_one() -> None:
    for normed, query in (("both", True), ("key", False)):
        model = tiny("gpt", attention={"normed": normed})
        for head in heads(model, record(model)[0]):
            assert head.key_norm == pytest.approx(1, abs=SAME)
            assert (abs(head.query_norm - 1) < SAME) is query


def test_number_of_edges_is_layers_times_heads_times_positions_squared() -> None:
    model = tiny("gpt")
    activity, count = record(model)
    found = edges(model, activity, count)
    n = T - 1  # the last token is not an input
    assert sum(layer.edges for layer in found) == 2 * 2 * n**2
    assert sum(layer.seen for layer in found) == 2 * 2 * n * (n + 1) // 2


def test_a_row_with_sources_has_gates_of_both_cells() -> None:
    model = tiny("seq2seq")
    found = {(gate.cell, gate.name) for gate in gates(record(model)[0])}
    assert found == {(cell, gate) for cell in ("encoder", "decoder") for gate in "rz"}


def test_every_row_has_a_summary_or_is_rejected() -> None:
    corpus = open_corpus(
        {"name": "copy", "symbols": 3, "length": 3, "train": 9, "valid": 9, "test": 9}
    )
    summarised = set()
    for name in zoo.names():
        if zoo.row(name).model is None or zoo.row(name).family == "count":
            continue
        model = tiny(name)
        part = equal_length_sequences(corpus)
        model = zoo.build(model.config, corpus.task)
        try:
            summary = summarise_activity(model, part, name)
            summarised.add(name)
            assert summary["states"] or summary["heads"], name
            assert model.training
        except UserError as error:
            assert name in str(error)  # noqa: PT017
    assert summarised >= {
        "gru",
        "lstm_lm",
        "hm_lstm",
        "gpt",
        "seq2seq",
        "transformer_encdec",
        "elmo",
    }
    assert not summarised & {"ngram_log_bilinear", "word2vec_cbow", "pcfg"}


def test_sequences_of_a_summary_have_no_padding() -> None:
    part = equal_length_sequences(open_corpus("captions"))
    assert (part.lengths == part.tokens.shape[1]).all()
    assert (part.tokens != 0).all()
