"""The Hamming emission with aggregate=code_l1, a distance of codes (S1)."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from lmzoo.base.errors import UserError
from lmzoo.emissions.base import EMISSIONS
from lmzoo.emissions.hamming import HammingEmission
from tests.emissions.support import VOCAB, WIDTH, contexts, make
from tests.laws.support import assert_close
from tests.tiny import FINE, SAME

M = 3


def build() -> HammingEmission:
    return make("hamming", aggregate="code_l1", groups=M, size=1)


def distances(emission: HammingEmission, y: Tensor, table: Tensor) -> Tensor:
    """Return the distances of contexts and tokens, -logits / β."""
    return -emission.logits(y, table) / emission.log_scale.exp()


@torch.no_grad()
def build_scaled(by: float) -> HammingEmission:
    """Build an emission and multiply its codes by `by`."""
    emission = build()
    for weight in (emission.context.weight, emission.context.bias, emission.codes.weight):
        weight.mul_(by)
    return emission


def test_it_computes_its_definition() -> None:
    emission, (y, targets, table) = build(), contexts()
    logits = torch.zeros(*targets.shape, VOCAB, dtype=torch.float64)
    for b, t, v in itertools.product(*map(range, logits.shape)):
        q, code = emission.context(y[b, t]), emission.codes(table[v])
        distance = sum(abs(q[m].sigmoid() - code[m].sigmoid()) for m in range(M))
        logits[b, t, v] = -emission.log_scale.exp() * distance
    assert_close(emission.dense(y, table), torch.log_softmax(logits, -1), FINE, "dense")
    expected = torch.log_softmax(logits, -1).gather(-1, targets[..., None])[..., 0]
    assert_close(emission.log_prob(y, targets, table), expected, FINE, "scores")
    assert_close(
        emission.dense(y, table).exp().sum(-1), torch.ones_like(y[..., 0]), FINE, "sum over tokens"
    )


def test_saturated_codes_are_bits_and_each_differing_bit_costs_beta() -> None:
    emission, (y, _, table) = build_scaled(1e9), contexts(batch=6, steps=6)
    context_bits, token_bits = emission.context(y) > 0, emission.codes(table) > 0
    differ = (context_bits[..., None, :] != token_bits).sum(-1)
    assert_close(emission.logits(y, table), -4.0 * differ.double(), SAME, "logits")
    assert set(differ.flatten().tolist()) == set(range(M + 1))


@pytest.mark.parametrize("by", [1.0, 30.0, 1e3])
def test_it_is_a_distance_between_zero_and_m(by: float) -> None:
    emission, (y, _, table) = build_scaled(by), contexts()
    result = distances(emission, y, table)
    assert result.min() >= 0
    assert result.max() <= M + FINE
    # The triangle inequality: distances to two tokens differ by at most that of their codes.
    codes = emission.codes(table).sigmoid()
    between = (codes[:, None] - codes).abs().sum(-1)
    assert ((result[..., None] - result[..., None, :]).abs() <= between + FINE).all()


def test_the_distance_of_equal_codes_is_zero() -> None:
    emission = build()
    with torch.no_grad():
        emission.context.weight.copy_(emission.codes.weight)
        emission.context.bias.zero_()
    table = contexts()[2]
    result = distances(emission, table, table)
    assert_close(result.diagonal(), torch.zeros(VOCAB).double(), FINE, "own distance")
    assert_close(result, result.T, FINE, "symmetry")
    assert (result + torch.eye(VOCAB) > 0).all()


def test_small_codes_have_a_quarter_of_their_l1_distance() -> None:
    """σ(εq) − σ(εc) → ε(q − c)/4, and the error falls as ε²."""
    emission, (y, _, table) = build(), contexts()
    l1 = (emission.context(y)[..., None, :] - emission.codes(table)).abs().sum(-1) / 4
    errors = []
    for epsilon in (0.1, 0.01):
        result = distances(build_scaled(epsilon), y, table) / epsilon
        errors.append((result - l1).abs().max().item())
    assert errors[0] / errors[1] == pytest.approx(100, rel=0.1)


def test_logits_have_high_rank() -> None:
    emission = make("hamming", aggregate="code_l1", groups=2, size=1)
    generator = torch.Generator().manual_seed(5)
    y, table = (torch.randn(n, WIDTH, generator=generator).double() for n in (50, 4 * VOCAB))
    assert int(torch.linalg.matrix_rank(emission.logits(y, table), rtol=1e-6)) > 6


def test_every_parameter_has_a_gradient() -> None:
    emission, (y, targets, table) = build(), contexts()
    emission.log_prob(y, targets, table).sum().backward()
    for name, weight in emission.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.abs().max() > 1e-6, name
    with torch.no_grad():
        assert emission.log_scale.item() == pytest.approx(math.log(4))


@pytest.mark.parametrize(
    ("fields", "message"), [({"size": 2}, "size=2"), ({"size": 1, "biased": True}, "biased=True")]
)
def test_invalid_options_are_errors(fields: dict, message: str) -> None:
    with pytest.raises(UserError, match=f"{message}: aggregate=code_l1"):
        EMISSIONS.parse({"name": "hamming", "aggregate": "code_l1", **fields})
