"""Hamming emission whose words and contexts are codes of numbers: aggregate=code_l1 (S1)."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from lmzoo.emissions.base import EMISSIONS
from lmzoo.emissions.hamming import HammingEmission
from lmzoo.errors import UserError
from tests.emissions.heads import VOCAB, WIDTH, contexts, make
from tests.laws.ask import same
from tests.tiny import FINE, SAME

M = 3


def head() -> HammingEmission:
    return make("hamming", aggregate="code_l1", groups=M, size=1)


def energy(one: HammingEmission, y: Tensor, table: Tensor) -> Tensor:
    return -one.logits(y, table) / one.log_scale.exp()


@torch.no_grad()
def stretched(by: float) -> HammingEmission:
    one = head()
    for weight in (one.context.weight, one.context.bias, one.codes.weight):
        weight.mul_(by)
    return one


def test_it_is_its_definition() -> None:
    one, (y, targets, table) = head(), contexts()
    logits = torch.zeros(*targets.shape, VOCAB, dtype=torch.float64)
    for b, t, v in itertools.product(*map(range, logits.shape)):
        q, code = one.context(y[b, t]), one.codes(table[v])
        apart = sum(abs(q[m].sigmoid() - code[m].sigmoid()) for m in range(M))
        logits[b, t, v] = -one.log_scale.exp() * apart
    same(one.dense(y, table), torch.log_softmax(logits, -1), FINE, "dense")
    chosen = torch.log_softmax(logits, -1).gather(-1, targets[..., None])[..., 0]
    same(one.log_prob(y, targets, table), chosen, FINE, "scores")
    same(one.dense(y, table).exp().sum(-1), torch.ones_like(y[..., 0]), FINE, "sum over words")


def test_saturated_codes_are_bits_and_each_that_differs_costs_beta() -> None:
    one, (y, _, table) = stretched(1e9), contexts(batch=6, steps=6)
    bits, words = one.context(y) > 0, one.codes(table) > 0
    differ = (bits[..., None, :] != words).sum(-1)
    same(one.logits(y, table), -4.0 * differ.double(), SAME, "logits")
    assert set(differ.flatten().tolist()) == set(range(M + 1))


@pytest.mark.parametrize("by", [1.0, 30.0, 1e3])
def test_the_energy_is_a_distance_between_zero_and_m(by: float) -> None:
    one, (y, _, table) = stretched(by), contexts()
    found = energy(one, y, table)
    assert found.min() >= 0
    assert found.max() <= M + FINE
    # No context tells two words further apart than their codes are.
    codes = one.codes(table).sigmoid()
    between = (codes[:, None] - codes).abs().sum(-1)
    assert ((found[..., None] - found[..., None, :]).abs() <= between + FINE).all()


def test_a_context_that_is_the_words_code_is_at_no_distance() -> None:
    one = head()
    with torch.no_grad():
        one.context.weight.copy_(one.codes.weight)
        one.context.bias.zero_()
    table = contexts()[2]
    found = energy(one, table, table)
    same(found.diagonal(), torch.zeros(VOCAB).double(), FINE, "own distance")
    same(found, found.T, FINE, "both ways")
    assert (found + torch.eye(VOCAB) > 0).all()


def test_faint_codes_are_at_a_quarter_of_their_distance() -> None:
    """σ(εq) − σ(εc) → ε(q − c)/4, and the error falls as ε²."""
    plain, (y, _, table) = head(), contexts()
    distance = (plain.context(y)[..., None, :] - plain.codes(table)).abs().sum(-1) / 4
    apart = []
    for faint in (0.1, 0.01):
        apart.append((energy(stretched(faint), y, table) / faint - distance).abs().max().item())
    assert apart[0] / apart[1] == pytest.approx(100, rel=0.1)


def test_its_logits_are_bound_by_no_rank() -> None:
    one = make("hamming", aggregate="code_l1", groups=2, size=1)
    generator = torch.Generator().manual_seed(5)
    y, table = (torch.randn(n, WIDTH, generator=generator).double() for n in (50, 4 * VOCAB))
    assert int(torch.linalg.matrix_rank(one.logits(y, table), rtol=1e-6)) > 6


def test_every_weight_learns() -> None:
    one, (y, targets, table) = head(), contexts()
    one.log_prob(y, targets, table).sum().backward()
    for name, weight in one.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.abs().max() > 1e-6, name
    with torch.no_grad():
        assert one.log_scale.item() == pytest.approx(math.log(4))


@pytest.mark.parametrize(
    ("fields", "said"), [({"size": 2}, "size=2"), ({"size": 1, "biased": True}, "biased=True")]
)
def test_what_it_has_not_is_refused(fields: dict, said: str) -> None:
    with pytest.raises(UserError, match=f"{said}: aggregate=code_l1"):
        EMISSIONS.read({"name": "hamming", "aggregate": "code_l1", **fields})
