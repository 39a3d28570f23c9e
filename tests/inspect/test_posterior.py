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
from tests.cases import cases, rows
from tests.tiny import CLOSE, assert_equal_single, batch, row_names, tiny

Case = tuple[str, dict[str, Any]]

MODELS = {name: tiny(name) for name in row_names()}
LATENT: list[Case] = rows("inspect/cases.toml", "latent")
LATENT += [(name, {}) for name, model in MODELS.items() if model.latent]
CONTEXT_FREE: list[str] = rows("inspect/cases.toml", "context_free")
IDS = [START, 0, 2, 1]
TOKENS = ["<start>", "a", "c", "b"]
GATED = [name for name, model in MODELS.items() if isinstance(model, ComponentModel)]
GATED = [name for name, model in MODELS.items() if isinstance(model, ComponentModel)]


def full_posterior(model: LanguageModel, tokens: Tensor) -> Tensor:
    with torch.no_grad():
        lengths = torch.full((len(tokens),), tokens.shape[1])
        return model.eval().posterior(tokens, lengths)


def expected_posterior(model: LanguageModel, prefix: Tensor) -> Tensor:
    """Return Σ_v P(v | prefix) P(z | v, prefix) = P(z | prefix), (B, K)."""
    vocab = model.task.vocab
    count = len(prefix)
    words = torch.arange(vocab).repeat(count)[:, None]
    longer = torch.cat([prefix.repeat_interleave(vocab, 0), words], dim=1)
    last = full_posterior(model, longer)[..., -1]
    by_word = last.unflatten(0, (count, vocab))
    return torch.einsum("bv,bvk->bk", next_log_prob(model, prefix).exp(), by_word)


@pytest.mark.parametrize(("name", "fields"), LATENT, ids=str)
def test_a_posterior_is_normalised_and_has_the_documented_shape(name, fields):
    found = posterior(tiny(name, **fields), [START, 0, 2], ["<start>", "a", "b"])
    assert found.tokens == ("1 a", "2 b")
    assert found.probability.shape == (len(found.values), 2)
    assert len(set(found.values)) == len(found.values)
    assert (found.probability >= 0).all()
    assert_equal_single(found.probability.sum(0), torch.ones(2))


@pytest.mark.parametrize(("name", "fields"), LATENT, ids=str)
def test_a_prior_is_normalised_and_has_the_documented_shape(name, fields):
    model = tiny(name, **fields)
    found = prior(model)
    if model.prior() is None:
        assert found is None
        return
    table = found.probability
    assert table.shape[1] == len(found.values) == len(set(found.values))
    assert table.shape[2] in (1, model.task.length - 1)
    assert_equal_single(table.sum(1), torch.ones_like(table[:, 0]))
    assert len(posterior(model, IDS, TOKENS).values) == len(found.values)


@pytest.mark.parametrize("name", CONTEXT_FREE)
def test_the_prior_is_the_expected_posterior(name):
    model = tiny(name)
    table = prior(model).probability[0]
    steps = table.shape[1]
    prefix, _ = batch(model.task)
    for t in range(1, model.task.length):
        found = expected_posterior(model, prefix[:, :t])
        # A prior that is the same at every position has one column.
        column = table[:, min(t, steps) - 1]
        known = found.shape[1]
        assert_close(found, column[:known].expand_as(found), CLOSE, f"prior at {t}")
        assert not column[known:].any()


@pytest.mark.parametrize("name", GATED)
def test_the_gate_is_the_expected_posterior(name):
    model = tiny(name)
    prefix, _ = batch(model.task)
    for t in range(1, model.task.length):
        seen = prefix[:, :t]
        gate = model.log_weights(seen)[:, -1].exp()
        assert_close(expected_posterior(model, seen), gate, CLOSE, f"P(z | s_<{t})")


@pytest.mark.parametrize("starts", [0, 1, 3])
def test_a_recurrent_mixture_weights_its_initial_states_by_their_likelihood(starts):
    """P(z_t, s_<=t) = Σ_i ω_i Π_{u<t} P(s_u | s_<u, i) P(z_t, s_t | s_<t, i), initial states i."""
    model = tiny("recurrent_lm", starts=starts).eval()
    tokens, _ = batch(model.task)
    lengths = torch.full((len(tokens),), model.task.length)
    joint = torch.zeros_like(full_posterior(model, tokens))
    for i in range(max(1, starts)):
        single = tiny("recurrent_lm", starts=min(1, starts)).eval()
        state = dict(model.state_dict())
        weight = 1.0
        if starts:
            state["starts.vectors"] = model.starts.vectors[i : i + 1].detach()
            weight = model.starts.log_weights()[i].exp().item()
            state.pop("starts.logits", None)
        single.load_state_dict(state)
        likelihood = log_prob(single, tokens, lengths).cumsum(1).exp()[:, 1:]
        joint += weight * likelihood[:, None] * full_posterior(single, tokens)
    expected = joint / joint.sum(1, keepdim=True)
    assert_equal_single(full_posterior(model, tokens), expected)


def test_a_vector_emission_has_no_latent():
    assert tiny("gru_mixture").latent == "component"
    assert tiny("gru_lm_sphere").latent == ""


def test_the_posterior_of_a_model_without_a_latent_is_refused():
    model = tiny("gru_lm_sphere")
    with pytest.raises(UserError, match=r"^recurrent_lm has no discrete latent.*\w$"):
        posterior(model, [START, 0], ["<start>", "a"])
    with pytest.raises(NotImplementedError):
        model.posterior(*batch(model.task))


@pytest.mark.parametrize("count", [1, 5])
def test_a_sentence_of_invalid_length_is_refused(count):
    with pytest.raises(UserError, match=f"1 to 3 tokens, got {count - 1}$"):
        posterior(tiny("aggregate_markov"), [START] * count, ["a"] * count)


@cases("inspect/cases.toml", "value_names", "name, count, expected")
def test_value_names(name, count, expected):
    found = value_names(tiny(name), count, ("<start>", "a", "a"))
    assert list(found) == expected


DECODERS = pytest.mark.parametrize(
    "name", ["gpt", "gpt_mixture", "transformer_decoder", "hard_attention"]
)


@DECODERS
def test_a_decoder_attends_to_its_prefix(name):
    model = tiny(name, spread=0.5)
    maps = attention_maps(model, IDS, TOKENS)
    assert isinstance(model, HasAttentionMaps)
    assert model.training
    assert maps.weight.shape == (2, 2, 3, 3)
    assert maps.looking == maps.looked_at == ("0 <start>", "1 a", "2 c")
    assert_equal_single(maps.weight.sum(-1), torch.ones(2, 2, 3))
    assert not maps.weight.triu(1).any()


@DECODERS
def test_attention_maps_are_the_weights_of_the_forward_pass(name, monkeypatch):
    model = tiny(name, spread=0.5)
    calls = []
    forward = Attention.forward

    def recorded(self: Attention, x: Tensor, memory, mask=None) -> Tensor:
        if isinstance(memory, tuple):
            keys, _ = memory
        else:
            keys, _ = self.keys_and_values(memory)
        logits = masked_logits(self.scaled_queries(x), keys, mask)
        calls.append(self.attention_weights(logits)[0])
        return forward(self, x, memory, mask)

    monkeypatch.setattr(Attention, "forward", recorded)
    log_prob(model.eval(), torch.tensor([IDS]), torch.tensor([4]))
    weights = torch.stack(calls)
    assert_equal_single(attention_maps(model, IDS, TOKENS).weight, weights)


@torch.no_grad()
def test_a_predicted_token_attends_to_the_source():
    model = tiny("seq2seq_dot_attention").eval()
    source = torch.tensor([[2, 0]])
    length = torch.tensor([2])
    maps = attention_maps(model, IDS, TOKENS, (source, length), ["x", "y"])
    assert maps.weight.shape == (1, 1, 3, 2)
    assert maps.looking == ("1 a", "2 c", "3 b")
    assert maps.looked_at == ("1 x", "2 y")
    state = model.begin(1, source, length)
    for i, token in enumerate(IDS[:-1]):
        logits = state.source[0] @ state.h[0]
        assert_equal_single(maps.weight[0, 0, i], torch.softmax(logits, dim=0))
        _, state = model.advance(state, torch.tensor([token]))


@pytest.fixture
def segments():
    """A model that ends a segment at some tokens; untrained layers end one at every token."""
    model = tiny("hm_lstm", cell={"depth": 3}, length=12)
    with torch.no_grad():
        for layer in model.cell.layers[:-1]:
            layer.bias[-1] = 0
            layer.own[-1] *= torch.tensor([30.0, -30.0, 30.0, -30.0])
    return model


@torch.no_grad()
def test_boundaries_equal_those_in_the_state_after_each_token(segments):
    ids = IDS * 3
    result = boundaries(segments, ids, TOKENS * 3)
    cell = segments.cell
    embedded = segments.embedding(torch.tensor([ids[:-1]]))
    inputs = normalise_sequence(embedded, segments.config.norm)
    state = cell.initial_state(torch.ones(1, cell.num_state_vectors * 4))
    expected = []
    for projected in cell.project(inputs).unbind(1):
        _, state = cell.step(projected, state)
        expected.append(state[-1][0])
    assert result.ended.equal(torch.stack(expected).T)
    assert set(result.ended.flatten().tolist()) == {0.0, 1.0}


def test_boundaries_have_the_names_of_layers_and_tokens(segments):
    result = boundaries(segments, IDS, TOKENS)
    assert segments.training
    assert result.layers == ("layer 1", "layer 2")
    assert result.tokens == ("0 <start>", "1 a", "2 c")


def test_other_rows_have_no_attention_maps():
    for name in ("gru", "slot_ngram", "hm_lstm", "seq2seq"):
        assert not isinstance(tiny(name), HasAttentionMaps)
