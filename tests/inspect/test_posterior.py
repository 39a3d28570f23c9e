"""Posteriors and priors of every row that has a latent: shapes, sums, Bayes by enumeration."""

from typing import Any

import pytest
import torch
from torch import Tensor

from lmzoo.blocks.latent import ComponentModel
from lmzoo.contract import START, LanguageModel
from lmzoo.errors import UserError
from lmzoo.inspect.posterior import Posterior, as_json, largest, posterior, prior
from tests.laws.ask import log_prob, next_log_prob, same
from tests.tiny import CLOSE, batch, rows, tiny

Case = tuple[str, dict[str, Any]]

MODELS = {name: tiny(name) for name in rows()}
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
"""Rows in which P(z_t | s_<t) is the prior: words inform only what comes out of z_t."""
GATED = [name for name, model in MODELS.items() if isinstance(model, ComponentModel)]


def asked(model: LanguageModel, tokens: Tensor) -> Tensor:
    with torch.no_grad():
        lengths = torch.full((len(tokens),), tokens.shape[1])
        return model.eval().posterior(tokens, lengths)


def expected_last(model: LanguageModel, prefix: Tensor) -> Tensor:
    """Σ_v P(v | prefix) P(z | v, prefix), which is P(z | prefix): (B, K)."""
    vocab, count = model.task.vocab, len(prefix)
    words = torch.arange(vocab).repeat(count)[:, None]
    longer = torch.cat([prefix.repeat_interleave(vocab, 0), words], dim=1)
    found = asked(model, longer)[..., -1].unflatten(0, (count, vocab))
    return (next_log_prob(model, prefix).exp()[..., None] * found).sum(1)


@pytest.mark.parametrize("case", LATENT, ids=str)
def test_a_row_with_a_latent_tells_it_in_the_documented_shape(case: Case) -> None:
    name, fields = case
    model = tiny(name, **fields)
    tokens = ["<start>", "a", "b"]
    found = posterior(model, [START, 0, 2], tokens)
    assert found.tokens == ("1 a", "2 b")
    assert found.probability.shape == (len(found.values), 2)
    assert len(set(found.values)) == len(found.values)
    assert (found.probability >= 0).all()
    same(found.probability.sum(0), torch.ones(2), CLOSE, "posterior")
    before, log_prior = prior(model), model.prior()
    assert (before is None) == (log_prior is None)
    if before is not None:
        assert before.probability.shape[1] == len(before.values) == len(set(before.values))
        assert before.probability.shape[2] in (1, model.task.length - 1)
        total = before.probability.sum(1)
        same(total, torch.ones_like(total), CLOSE, "prior")
        full = posterior(model, [START, 0, 2, 1], ["<start>", "a", "b", "c"])
        assert len(full.values) == len(before.values)
    told = as_json(found)
    assert torch.tensor(told["probability"]).equal(found.probability)


@pytest.mark.parametrize("name", CONTEXT_FREE)
def test_the_prior_is_the_posterior_in_expectation(name: str) -> None:
    model = tiny(name)
    before = prior(model)
    assert before is not None
    prefix = batch(model.task)[0]
    for t in range(1, model.task.length):
        found = expected_last(model, prefix[:, :t])
        column = before.probability[0, :, t - 1 if before.by_position else 0]
        same(found, column[: found.shape[1]].expand_as(found), CLOSE, f"prior at {t}")
        assert (column[found.shape[1] :] == 0).all()


@pytest.mark.parametrize("name", GATED)
def test_the_gate_is_the_posterior_in_expectation(name: str) -> None:
    model = tiny(name)
    prefix = batch(model.task)[0]
    for t in range(1, model.task.length):
        weights = model.log_weights(prefix[:, :t])[:, -1].exp().detach()
        same(expected_last(model, prefix[:, :t]), weights, CLOSE, f"P(z | s_<{t})")


@pytest.mark.parametrize("starts", [0, 1, 3])
def test_a_recurrent_mixture_weighs_its_starts_by_all_they_have_said(starts: int) -> None:
    """P(z_t, s_<=t) = Σ_i ω_i Π_{u<t} P(s_u | s_<u, i) P(z_t, s_t | s_<t, i), start by start."""
    model = tiny("recurrent_lm", starts=starts).eval()
    tokens, _ = batch(model.task)
    lengths = torch.full((len(tokens),), model.task.length)
    joint = torch.zeros_like(asked(model, tokens))
    for i in range(max(1, starts)):
        one = tiny("recurrent_lm", starts=min(1, starts)).eval()
        state, weight = dict(model.state_dict()), 1.0
        if starts:
            state["starts.vectors"] = model.starts.vectors[i : i + 1].detach()
            weight = model.starts.log_weights()[i].exp().item()
            state.pop("starts.logits", None)
        one.load_state_dict(state)
        said = log_prob(one, tokens, lengths).cumsum(1).exp()[:, 1:]
        joint += weight * said[:, None] * asked(one, tokens)
    same(asked(model, tokens), joint / joint.sum(1, keepdim=True), CLOSE, "posterior over starts")


def test_only_a_mixture_emission_is_a_latent() -> None:
    assert tiny("gru_mixture").latent == "component"
    vector = tiny("gru_lm_sphere")
    assert vector.latent == ""
    with pytest.raises(UserError, match=r"^recurrent_lm has no discrete latent.*\w$"):
        posterior(vector, [START, 0], ["<start>", "a"])
    with pytest.raises(NotImplementedError):
        vector.posterior(*batch(vector.task))


@pytest.mark.parametrize("count", [1, 5])
def test_a_sentence_needs_a_place_for_each_token(count: int) -> None:
    with pytest.raises(UserError, match=f"1 to 3 tokens at a time, got {count - 1}$"):
        posterior(tiny("aggregate_markov"), [START] * count, ["a"] * count)


def test_the_largest_values_are_kept_in_their_order_and_the_rest_summed() -> None:
    table = torch.tensor([[0.2, 0.5], [0.1, 0.0], [0.1, 0.0], [0.6, 0.5]])
    found = largest(Posterior("component", ("a", "b", "c", "d"), ("1 x", "2 y"), table), 2)
    assert found.values == ("a", "d", "2 others")
    same(found.probability, torch.tensor([[0.2, 0.5], [0.6, 0.5], [0.2, 0.0]]), CLOSE, "kept")
    assert largest(found, 3) is found
