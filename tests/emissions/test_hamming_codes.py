"""The Hamming emission with aggregate=code_l1, a distance of codes (S1)."""

import itertools
import math

import pytest
import torch

from lmzoo.base.errors import UserError
from lmzoo.emissions.base import EMISSIONS
from lmzoo.emissions.distances import HammingEmission
from tests.emissions.support import VOCAB, contexts, make
from tests.laws.support import assert_close
from tests.tiny import FINE

M = 3


def build() -> HammingEmission:
    return make("hamming", aggregate="code_l1", groups=M, size=1)


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
