"""Contrastive objectives against enumeration."""

import itertools

import pytest
import torch
from torch import Tensor

from lmzoo.functional.noise_contrastive import contrastive_objective, expected_contrastive_objective
from tests.laws.support import assert_close
from tests.tiny import FINE

V = 7


def distribution(seed: int, sharp: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(sharp * torch.randn(V, generator=generator, dtype=torch.float64), 0)


DATA, MODEL, NOISE = distribution(0), distribution(1, 0.5), distribution(2, 0.5)


def j(c: Tensor, k: int, data: Tensor = DATA) -> Tensor:
    """Return J by the function under test."""
    return expected_contrastive_objective(c - (k * NOISE).log(), data, NOISE, k)


def gradient(c: Tensor, k: int) -> Tensor:
    c = c.clone().requires_grad_()
    return torch.autograd.grad(j(c, k), c)[0]


@pytest.mark.parametrize("k", [1, 2, 10])
def test_the_expected_objective_is_the_published_sum(k: int) -> None:
    u, kq = 1.7 * MODEL, k * NOISE
    expected = (DATA * (u / (kq + u)).log() + kq * (kq / (kq + u)).log()).sum()
    assert_close(j(u.log(), k), expected, FINE, "J")


@pytest.mark.parametrize("k", [1, 2, 10])
def test_the_gradient_is_weighted_per_word(k: int) -> None:
    u, kq = 1.7 * MODEL, k * NOISE
    assert_close(gradient(u.log(), k), kq / (kq + u) * (DATA - u), FINE, "gradient")


@pytest.mark.parametrize("k", [1, 2, 10, 1000])
def test_the_data_distribution_is_the_optimum_for_every_k(k: int) -> None:
    assert gradient(DATA.log(), k).abs().max() < FINE
    assert gradient((1.1 * DATA).log(), k).abs().min() > 1e-5
    for other in (MODEL, NOISE, 1.1 * DATA):
        assert j(other.log(), k) < j(DATA.log(), k)


def test_the_gradient_tends_to_the_likelihood_gradient_as_k_grows() -> None:
    """The relative error is (1/k) u/q at first order, so ten times k gives a tenth of it."""
    likelihood = DATA - MODEL  # of a normalised table: Σ_w (p̃ − p) ∇c

    def error(k: int) -> float:
        return ((gradient(MODEL.log(), k) - likelihood).norm() / likelihood.norm()).item()

    errors = [error(k) for k in (10, 100, 1000, 10_000)]
    assert errors[0] < 0.5
    for large, small in itertools.pairwise(errors):
        assert 7 < large / small < 11
    first_order = (MODEL / NOISE * likelihood).norm() / likelihood.norm()
    assert errors[-1] * 10_000 == pytest.approx(first_order.item(), rel=1e-2)


@pytest.mark.parametrize("k", [1, 2])
def test_the_mean_of_the_sampled_objective_is_the_expected_objective(k: int) -> None:
    """Enumerate all draws of a data word and k noise words with their probabilities."""
    scores = (1.7 * MODEL).log() - (k * NOISE).log()
    words = torch.cartesian_prod(*[torch.arange(V)] * (k + 1))
    weights = DATA[words[:, 0]] * NOISE[words[:, 1:]].prod(1)
    sampled = contrastive_objective(scores[words[:, 0]], scores[words[:, 1:]])
    expected = expected_contrastive_objective(scores, DATA, NOISE, k)
    assert_close((weights * sampled).sum(), expected, FINE, "mean")


def test_unnormalised_likelihood_is_unbounded_but_the_objective_is_not() -> None:
    likelihoods, contrasts = [], []
    for shift in (0.0, 10.0, 100.0):
        c = DATA.log() + shift
        likelihoods.append((DATA * c).sum().item())
        contrasts.append(j(c, 5).item())
    assert likelihoods[1] - likelihoods[0] == pytest.approx(10)
    assert likelihoods[2] - likelihoods[0] == pytest.approx(100)
    assert 0 > contrasts[0] > contrasts[1] > contrasts[2]


@pytest.mark.parametrize("k", [1, 5])
def test_the_optimum_of_negative_sampling_is_the_shifted_ratio(k: int) -> None:
    c = (DATA / (k * NOISE)).log().requires_grad_()
    found = torch.autograd.grad(expected_contrastive_objective(c, DATA, NOISE, k), c)[0]
    assert found.abs().max() < FINE
