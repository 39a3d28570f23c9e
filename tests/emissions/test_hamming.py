"""The Hamming emission with agreements by inner products (S1)."""

import pytest
import torch
from torch import Tensor

from lmzoo.base.errors import UserError
from lmzoo.emissions.base import EMISSIONS
from lmzoo.emissions.distances import Aggregate, HammingEmission
from tests.emissions.support import contexts, make
from tests.laws.support import assert_close
from tests.tiny import FINE

M, D = 3, 2


INNER_PRODUCTS = [kind for kind in Aggregate if kind is not Aggregate.CODE_L1]
"""Aggregates of inner products; `test_hamming_codes.py` tests the distance of codes."""


def build(aggregate: str, **fields: object) -> HammingEmission:
    return make("hamming", aggregate=aggregate, **{"groups": M, "size": D, **fields})


def reference_logit(emission: HammingEmission, y: Tensor, embedding: Tensor) -> Tensor:
    """Return the logit of one token in one context."""
    q, code = emission.context(y), emission.codes(embedding)
    a = torch.stack([q[D * m : D * m + D] @ code[D * m : D * m + D] for m in range(M)])
    a = a if emission.bias is None else a + emission.bias
    aggregates = {"sigmoid_l1": a.sigmoid().sum(), "min": a.min(), "sum": a.sum()}
    return emission.log_scale.exp() * aggregates[emission.config.aggregate]


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("aggregate", INNER_PRODUCTS)
def test_it_computes_its_definition(aggregate: Aggregate, *, biased: bool) -> None:
    if biased and aggregate is Aggregate.SUM:
        with pytest.raises(UserError, match="biased=True"):
            build(aggregate, biased=True)
        return
    emission = build(aggregate, biased=biased)
    if biased:
        with torch.no_grad():
            emission.bias.copy_(torch.tensor([0.5, -1.0, 2.0]))
    y, _, table = contexts(batch=1, steps=2)
    logits = torch.stack(
        [torch.stack([reference_logit(emission, c, e) for e in table]) for c in y[0]]
    )
    assert_close(emission.dense(y[0], table), torch.log_softmax(logits, -1), FINE, "dense")


def test_aggregate_min_is_the_smallest_agreement() -> None:
    emission = build("min")
    y, _, table = contexts()
    a = emission.agreements(y, table)
    assert emission.log_scale == 0
    assert_close(emission.logits(y, table), a.sort(-1).values[..., 0], FINE, "logits")


def test_zero_groups_are_an_error() -> None:
    with pytest.raises(UserError, match="groups"):
        EMISSIONS.parse({"name": "hamming", "groups": 0})
