"""Posteriors, priors, names of latents, attention maps and boundaries, against enumeration."""

from typing import Any

import pytest
import torch
from torch import Tensor

from lmzoo.base.errors import UserError
from lmzoo.blocks.attention import Attention, masked_logits
from lmzoo.blocks.latent import ComponentModel
from lmzoo.contract import START, LanguageModel
from lmzoo.functional.normalise import normalise_sequence
from lmzoo.inspect.posterior import (
    HasAttentionMaps,
    attention_maps,
    boundaries,
    posterior,
    prior,
    value_names,
)
from lmzoo.laws.tiny import assert_close, log_prob, next_log_prob
from tests.cases import cases
from tests.tiny import CLOSE, assert_equal_single, batch, row_names, tiny

Case = tuple[str, dict[str, Any]]

MODELS = {name: tiny(name) for name in row_names()}
LATENT: list[Case] = [
    *((name, {}) for name, model in MODELS.items() if model.latent),
    ("recurrent_lm", {"starts": 2}),
    ("latent_parent_typed", {"arcs": "positional"}),
]
CONTEXT_FREE = [
    "latent_parent_uniform", "latent_parent_positional", "latent_parent_typed",
    "aligned_aggregate_markov", "aligned_aggregate_markov_sphere", "two_parent_aggregate_markov",
    "permutation_log_bilinear", "log_bilinear_mixture", "interpolated_bigram",
    "multi_transition_bigram", "unigram_mixture",
]  # fmt: skip
"""Rows in which P(z_t | s_<t) is the prior."""
IDS, TOKENS = [START, 0, 2, 1], ["<start>", "a", "c", "b"]
GATED = [name for name, model in MODELS.items() if isinstance(model, ComponentModel)]


def full_posterior(model: LanguageModel, tokens: Tensor) -> Tensor:
    with torch.no_grad():
        lengths = torch.full((len(tokens),), tokens.shape[1])
        return model.eval().posterior(tokens, lengths)


def expected_posterior(model: LanguageModel, prefix: Tensor) -> Tensor:
    """Return Σ_v P(v | prefix) P(z | v, prefix) = P(z | prefix), (B, K)."""
    vocab, count = model.task.vocab, len(prefix)
    words = torch.arange(vocab).repeat(count)[:, None]
    longer = torch.cat([prefix.repeat_interleave(vocab, 0), words], dim=1)
    found = full_posterior(model, longer)[..., -1].unflatten(0, (count, vocab))
    return (next_log_prob(model, prefix).exp()[..., None] * found).sum(1)


@pytest.mark.parametrize("case", LATENT, ids=str)
def test_posterior_and_prior_are_normalised_and_have_the_documented_shape(case):
    name, fields = case
    model = tiny(name, **fields)
    tokens = ["<start>", "a", "b"]
    found = posterior(model, [START, 0, 2], tokens)
    assert found.tokens == ("1 a", "2 b")
    assert found.probability.shape == (len(found.values), 2)
    assert len(set(found.values)) == len(found.values)
    assert (found.probability >= 0).all()
    assert_equal_single(found.probability.sum(0), torch.ones(2))
    prior_table, log_prior = prior(model), model.prior()
    assert (prior_table is None) == (log_prior is None)
    if prior_table is not None:
        table, values = prior_table.probability, prior_table.values
        assert table.shape[1] == len(values) == len(set(values))
        assert table.shape[2] in (1, model.task.length - 1)
        assert_equal_single(table.sum(1), torch.ones_like(table[:, 0]))
        assert len(posterior(model, IDS, TOKENS).values) == len(values)


@pytest.mark.parametrize("name", CONTEXT_FREE)
def test_the_prior_is_the_expected_posterior(name):
    model = tiny(name)
    prior_table = prior(model)
    assert prior_table is not None
    prefix = batch(model.task)[0]
    for t in range(1, model.task.length):
        found = expected_posterior(model, prefix[:, :t])
        column = prior_table.probability[0, :, min(t, prior_table.probability.shape[2]) - 1]
        assert_close(found, column[: found.shape[1]].expand_as(found), CLOSE, f"prior at {t}")
        assert (column[found.shape[1] :] == 0).all()


@pytest.mark.parametrize("name", GATED)
def test_the_gate_is_the_expected_posterior(name):
    model = tiny(name)
    prefix = batch(model.task)[0]
    for t in range(1, model.task.length):
        weights = model.log_weights(prefix[:, :t])[:, -1].exp().detach()
        assert_close(expected_posterior(model, prefix[:, :t]), weights, CLOSE, f"P(z | s_<{t})")


@pytest.mark.parametrize("starts", [0, 1, 3])
def test_a_recurrent_mixture_weights_its_initial_states_by_their_likelihood(starts):
    """P(z_t, s_<=t) = Σ_i ω_i Π_{u<t} P(s_u | s_<u, i) P(z_t, s_t | s_<t, i), initial states i."""
    model = tiny("recurrent_lm", starts=starts).eval()
    tokens, _ = batch(model.task)
    lengths = torch.full((len(tokens),), model.task.length)
    joint = torch.zeros_like(full_posterior(model, tokens))
    for i in range(max(1, starts)):
        single = tiny("recurrent_lm", starts=min(1, starts)).eval()
        state, weight = dict(model.state_dict()), 1.0
        if starts:
            state["starts.vectors"] = model.starts.vectors[i : i + 1].detach()
            weight = model.starts.log_weights()[i].exp().item()
            state.pop("starts.logits", None)
        single.load_state_dict(state)
        likelihood = log_prob(single, tokens, lengths).cumsum(1).exp()[:, 1:]
        joint += weight * likelihood[:, None] * full_posterior(single, tokens)
    expected = joint / joint.sum(1, keepdim=True)
    assert_equal_single(full_posterior(model, tokens), expected)


def test_a_model_without_a_latent_and_sentences_of_invalid_length_are_refused():
    assert tiny("gru_mixture").latent == "component"
    vector = tiny("gru_lm_sphere")
    assert vector.latent == ""
    with pytest.raises(UserError, match=r"^recurrent_lm has no discrete latent.*\w$"):
        posterior(vector, [START, 0], ["<start>", "a"])
    with pytest.raises(NotImplementedError):
        vector.posterior(*batch(vector.task))
    for count in (1, 5):
        with pytest.raises(UserError, match=f"1 to 3 tokens, got {count - 1}$"):
            posterior(tiny("aggregate_markov"), [START] * count, ["a"] * count)


@cases("inspect/cases.toml", "value_names", "name, count, expected")
def test_value_names(name, count, expected):
    found = value_names(tiny(name), count, ("<start>", "a", "a"))
    assert list(found) == expected


@pytest.mark.parametrize("name", ["gpt", "gpt_mixture", "transformer_decoder", "hard_attention"])
def test_a_decoder_attends_to_its_prefix(name, monkeypatch):
    model = tiny(name, spread=0.5)
    maps = attention_maps(model, IDS, TOKENS)
    assert isinstance(model, HasAttentionMaps)
    assert model.training
    assert maps.weight.shape == (2, 2, 3, 3)
    assert maps.looking == maps.looked_at == ("0 <start>", "1 a", "2 c")
    assert_equal_single(maps.weight.sum(-1), torch.ones(2, 2, 3))
    assert not maps.weight.triu(1).any()
    calls, forward = [], Attention.forward

    def recorded(self: Attention, x: Tensor, memory, mask=None) -> Tensor:
        k = memory[0] if isinstance(memory, tuple) else self.keys_and_values(memory)[0]
        calls.append(self.attention_weights(masked_logits(self.scaled_queries(x), k, mask))[0])
        return forward(self, x, memory, mask)

    monkeypatch.setattr(Attention, "forward", recorded)
    log_prob(model.eval(), torch.tensor([IDS]), torch.tensor([4]))
    assert_equal_single(maps.weight, torch.stack(calls))


@torch.no_grad()
def test_a_predicted_token_attends_to_the_source():
    model = tiny("seq2seq_dot_attention")
    sources = torch.tensor([[2, 0]]), torch.tensor([2])
    maps = attention_maps(model, IDS, TOKENS, sources, ["x", "y"])
    assert maps.weight.shape == (1, 1, 3, 2)
    assert maps.looking == ("1 a", "2 c", "3 b")
    assert maps.looked_at == ("1 x", "2 y")
    state = model.begin(1, *sources)
    for i, token in enumerate(IDS[:-1]):
        expected = torch.softmax(state.source[0] @ state.h[0], dim=0)
        assert_close(maps.weight[0, 0, i], expected, CLOSE, f"weights of {TOKENS[i + 1]}")
        _, state = model.eval().advance(state, torch.tensor([token]))


def test_boundaries_equal_those_in_the_state_after_each_token():
    model = tiny("hm_lstm", cell={"depth": 3}, length=12)
    with torch.no_grad():  # untrained layers end a segment at every token
        for layer in model.cell.layers[:-1]:
            layer.bias[-1] = 0
            layer.own[-1] *= torch.tensor([30.0, -30.0, 30.0, -30.0])
    ids, tokens = IDS * 3, TOKENS * 3
    result = boundaries(model, ids, tokens)
    assert model.training
    cell, read = model.cell, torch.tensor([ids[:-1]])
    inputs = normalise_sequence(model.embedding(read), model.config.norm)
    state, expected = cell.initial_state(torch.ones(1, cell.num_state_vectors * 4)), []
    with torch.no_grad():
        for projected in cell.project(inputs).unbind(1):
            state = cell.step(projected, state)[1]
            expected.append(state[-1][0])
    assert_close(result.ended, torch.stack(expected).T, 0, "ended")
    assert result.layers == ("layer 1", "layer 2")
    assert set(result.ended.flatten().tolist()) == {0.0, 1.0}
    assert result.tokens == tuple(f"{i} {token}" for i, token in enumerate(tokens[:-1]))


def test_other_rows_have_no_attention_maps():
    for name in ("gru", "slot_ngram", "hm_lstm", "seq2seq"):
        assert not isinstance(tiny(name), HasAttentionMaps)
