"""Posteriors, priors, names of latents, attention maps and boundaries, against enumeration."""

import pytest
import torch

from lmzoo.base.errors import UserError
from lmzoo.blocks.attention import Attention, masked_logits
from lmzoo.blocks.latent import ComponentModel
from lmzoo.contract import START
from lmzoo.functional.normalise import normalise_sequence
from lmzoo.inspect.posterior import (
    HasAttentionMaps,
    attention_maps,
    boundaries,
    posterior,
    prior,
    value_names,
)
from lmzoo.laws.tiny import assert_close, full_lengths, log_prob, next_log_prob
from tests.cases import cases, parametrize, rows
from tests.tiny import CLOSE, assert_equal_single, batch, row_names, tiny

LATENT = rows("inspect/cases.toml", "latent")
GATED = []
for name in row_names():
    model = tiny(name)
    if model.latent:
        LATENT.append((name, {}))
    if isinstance(model, ComponentModel):
        GATED.append(name)
CONTEXT_FREE = rows("inspect/cases.toml", "context_free")
IDS = [START, 0, 2, 1]
TOKENS = ["<start>", "a", "c", "b"]


def full_posterior(model, tokens):
    lengths = full_lengths(tokens)
    with torch.no_grad():
        return model.eval().posterior(tokens, lengths)


def expected_posterior(model, prefix):
    """Return Σ_v P(v | prefix) P(z | v, prefix) = P(z | prefix), (B, K)."""
    vocab = model.task.vocab
    count = len(prefix)
    words = torch.arange(vocab).repeat(count)
    repeated = prefix.repeat_interleave(vocab, 0)
    column = words[:, None]
    longer = torch.cat([repeated, column], dim=1)
    last = full_posterior(model, longer)[..., -1]
    by_word = last.unflatten(0, (count, vocab))
    following = next_log_prob(model, prefix).exp()
    return torch.einsum("bv,bvk->bk", following, by_word)


EVERY_LATENT = parametrize(("name", "fields"), LATENT, ids=str)


@EVERY_LATENT
def test_a_posterior_is_normalised_and_has_the_documented_shape(name, fields):
    model = tiny(name, **fields)
    ids = [START, 0, 2]
    found = posterior(model, ids, ["<start>", "a", "b"])
    probability = found.probability
    count = len(found.values)
    assert found.tokens == ("1 a", "2 b")
    assert probability.shape == (count, 2)
    assert len(set(found.values)) == count
    assert (probability >= 0).all()
    assert_equal_single(probability.sum(0), torch.ones(2))


@EVERY_LATENT
def test_a_prior_is_normalised_and_has_the_documented_shape(name, fields):
    model = tiny(name, **fields)
    found = prior(model)
    if model.prior() is None:
        assert found is None
        return
    table = found.probability
    count = len(found.values)
    assert table.shape[1] == count
    assert len(set(found.values)) == count
    # A column for each position, or one for all.
    positions = model.task.length - 1
    assert table.shape[2] in (1, positions)
    mass = table.sum(1)
    assert_equal_single(mass, torch.ones_like(mass))
    latent = posterior(model, IDS, TOKENS)
    assert len(latent.values) == count


@parametrize("name", CONTEXT_FREE)
def test_the_prior_is_the_expected_posterior(name):
    model = tiny(name)
    table = prior(model).probability[0]
    steps = table.shape[1]
    prefix, _ = batch(model.task)
    for t in range(1, model.task.length):
        found = expected_posterior(model, prefix[:, :t])
        # A prior that is the same at every position has one column.
        place = min(t, steps) - 1
        column = table[:, place]
        # Latent values that this prefix cannot have are at the end.
        known = found.shape[1]
        expected = column[:known].expand_as(found)
        assert_close(found, expected, CLOSE, f"prior at {t}")
        assert not column[known:].any()


@parametrize("name", GATED)
def test_the_gate_is_the_expected_posterior(name):
    model = tiny(name)
    prefix, _ = batch(model.task)
    for t in range(1, model.task.length):
        seen = prefix[:, :t]
        gate = model.log_weights(seen)[:, -1]
        actual = expected_posterior(model, seen)
        assert_close(actual, gate.exp(), CLOSE, f"P(z | s_<{t})")


@parametrize("starts", [0, 1, 3])
def test_a_recurrent_mixture_weights_its_initial_states_by_their_likelihood(starts):
    """P(z_t, s_<=t) = Σ_i ω_i Π_{u<t} P(s_u | s_<u, i) P(z_t, s_t | s_<t, i), initial states i."""
    model = tiny("recurrent_lm", starts=starts).eval()
    tokens, _ = batch(model.task)
    lengths = full_lengths(tokens)
    found = full_posterior(model, tokens)
    joint = torch.zeros_like(found)
    for i in range(max(1, starts)):
        count = min(1, starts)
        single = tiny("recurrent_lm", starts=count).eval()
        state = dict(model.state_dict())
        weight = 1.0
        if starts:
            vectors = model.starts.vectors.detach()
            state["starts.vectors"] = vectors[i : i + 1]
            log_weights = model.starts.log_weights()
            weight = log_weights[i].exp().item()
            state.pop("starts.logits", None)
        single.load_state_dict(state)
        scores = log_prob(single, tokens, lengths).cumsum(1)
        likelihood = scores.exp()[:, None, 1:]
        joint += weight * likelihood * full_posterior(single, tokens)
    expected = joint / joint.sum(1, keepdim=True)
    assert_equal_single(found, expected)


def test_a_vector_emission_has_no_latent():
    assert tiny("gru_mixture").latent == "component"
    assert tiny("gru_lm_sphere").latent == ""


def test_the_posterior_of_a_model_without_a_latent_is_refused():
    model = tiny("gru_lm_sphere")
    tokens, lengths = batch(model.task)
    with pytest.raises(UserError, match=r"^recurrent_lm has no discrete latent.*\w$"):
        posterior(model, [START, 0], ["<start>", "a"])
    with pytest.raises(NotImplementedError):
        model.posterior(tokens, lengths)


@parametrize("count", [1, 5])
def test_a_sentence_of_invalid_length_is_refused(count):
    model = tiny("aggregate_markov")
    words = f"1 to 3 tokens, got {count - 1}$"
    with pytest.raises(UserError, match=words):
        posterior(model, [START] * count, ["a"] * count)


@cases("inspect/cases.toml", "value_names", "name, count, expected")
def test_value_names(name, count, expected):
    vocabulary = ("<start>", "a", "a")
    found = value_names(tiny(name), count, vocabulary)
    assert list(found) == expected


DECODERS = parametrize("name", ["gpt", "gpt_mixture", "transformer_decoder", "hard_attention"])


@DECODERS
def test_a_decoder_attends_to_its_prefix(name):
    model = tiny(name, spread=0.5)
    maps = attention_maps(model, IDS, TOKENS)
    assert isinstance(model, HasAttentionMaps)
    assert model.training
    weight = maps.weight
    assert weight.shape == (2, 2, 3, 3)
    assert maps.looking == ("0 <start>", "1 a", "2 c")
    assert maps.looked_at == maps.looking
    mass = weight.sum(-1)
    assert_equal_single(mass, torch.ones(2, 2, 3))
    assert not weight.triu(1).any()


@DECODERS
def test_attention_maps_are_the_weights_of_the_forward_pass(name, monkeypatch):
    model = tiny(name, spread=0.5)
    calls = []
    forward = Attention.forward

    def recorded(self, x, memory, mask=None):
        if isinstance(memory, tuple):
            keys, _ = memory
        else:
            keys, _ = self.keys_and_values(memory)
        queries = self.scaled_queries(x)
        logits = masked_logits(queries, keys, mask)
        (weights,) = self.attention_weights(logits)
        calls.append(weights)
        return forward(self, x, memory, mask)

    monkeypatch.setattr(Attention, "forward", recorded)
    tokens = torch.tensor([IDS])
    log_prob(model.eval(), tokens, full_lengths(tokens))
    weights = torch.stack(calls)
    actual = attention_maps(model, IDS, TOKENS).weight
    assert_equal_single(actual, weights)


@torch.no_grad()
def test_a_predicted_token_attends_to_the_source():
    model = tiny("seq2seq_dot_attention").eval()
    source = torch.tensor([[2, 0]])
    length = torch.tensor([2])
    given = (source, length)
    maps = attention_maps(model, IDS, TOKENS, given, ["x", "y"])
    # One layer, one head, three predictions, two tokens of the source.
    assert maps.weight.shape == (1, 1, 3, 2)
    assert maps.looking == ("1 a", "2 c", "3 b")
    assert maps.looked_at == ("1 x", "2 y")
    state = model.begin(1, *given)
    weights = maps.weight[0, 0]
    # Nothing is predicted after the last token.
    for actual, token in zip(weights, IDS, strict=False):
        logits = state.source[0] @ state.h[0]
        expected = torch.softmax(logits, dim=0)
        assert_equal_single(actual, expected)
        read = torch.tensor([token])
        _, state = model.advance(state, read)


@pytest.fixture
def segments():
    """A model that ends a segment at some tokens; untrained layers end one at every token."""
    model = tiny("hm_lstm", cell={"depth": 3}, length=12)
    # Large weights of both signs: a token decides.
    signs = torch.tensor([30.0, -30.0, 30.0, -30.0])
    with torch.no_grad():
        for layer in model.cell.layers[:-1]:
            layer.bias[-1] = 0
            layer.own[-1] *= signs
    return model


@torch.no_grad()
def test_boundaries_equal_those_in_the_state_after_each_token(segments):
    ids = IDS * 3
    result = boundaries(segments, ids, TOKENS * 3)
    cell = segments.cell
    read = torch.tensor([ids[:-1]])
    embedded = segments.embedding(read)
    inputs = normalise_sequence(embedded, segments.config.norm)
    start = torch.ones(1, cell.num_state_vectors * 4)
    state = cell.initial_state(start)
    expected = []
    for projected in cell.project(inputs).unbind(1):
        _, state = cell.step(projected, state)
        boundary = state[-1]
        expected.append(boundary[0])
    by_layer = torch.stack(expected, 1)
    assert result.ended.equal(by_layer)
    found = by_layer.flatten().tolist()
    assert set(found) == {0.0, 1.0}


def test_boundaries_have_the_names_of_layers_and_tokens(segments):
    result = boundaries(segments, IDS, TOKENS)
    assert segments.training
    assert result.layers == ("layer 1", "layer 2")
    assert result.tokens == ("0 <start>", "1 a", "2 c")


def test_other_rows_have_no_attention_maps():
    for name in ("gru", "slot_ngram", "hm_lstm", "seq2seq"):
        assert not isinstance(tiny(name), HasAttentionMaps)
