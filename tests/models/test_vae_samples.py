"""Samples of VAEs from their prior, and the numbers of their report."""

import pytest
import torch
from torch import Tensor

from lmzoo.contract import MODELS, START
from lmzoo.models.vae import VAE
from tests.models.equivalence import small
from tests.tiny import batch

NAMES = [name for name in MODELS if issubclass(MODELS[name], VAE)]
DRAWS = 4000


def first_scores(model: VAE, state: object, count: int) -> Tensor:
    scores, _ = model.advance(state, torch.full((count,), START))
    return scores.exp()


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_each_sample_has_its_own_draw_of_the_prior(name: str) -> None:
    """The mean over samples is the mixture over many draws; with a shared draw it is not."""
    model, many = small(name), small(name, samples=DRAWS)
    many.load_state_dict(model.state_dict())
    generator = torch.Generator().manual_seed(0)
    drawn = first_scores(model, model.begin_samples(DRAWS, generator=generator), DRAWS)
    error = drawn.std(0) / DRAWS**0.5
    assert (drawn.std(0) > 0).all()
    expected = many.next_log_prob(torch.tensor([[START]])).exp()[0]
    assert ((drawn.mean(0) - expected).abs() < 5 * error + 1e-6).all()
    again = torch.Generator().manual_seed(0)
    assert drawn.equal(first_scores(model, model.begin_samples(DRAWS, generator=again), DRAWS))


@pytest.mark.parametrize("name", NAMES)
def test_a_vae_generates_unless_it_leaks(name: str) -> None:
    model = small(name)
    assert model.generates
    assert not model.causal
    assert not small(name, norm="time_std").generates


@torch.no_grad()
def test_a_report_states_the_standard_deviation_and_a_tighter_bound() -> None:
    model = small("gru_vae")
    model.z.log_beta.fill_(1.0)
    tokens, lengths = batch(model.task)
    facts = model.report(tokens, lengths)
    assert facts["posterior standard deviation"] == pytest.approx(1 / torch.e, rel=1e-5)
    elbo = -model.eval().log_prob(tokens, lengths).sum(1).mean().item()
    assert facts["bound of 64 samples"] < elbo
