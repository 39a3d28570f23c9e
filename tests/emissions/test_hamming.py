"""The Hamming emission with agreements by inner products (S1)."""

import pytest
import torch
from torch import Tensor

from lmzoo.base.errors import UserError
from lmzoo.emissions.base import EMISSIONS
from lmzoo.emissions.hamming import Aggregate, HammingEmission
from lmzoo.functional.normalise import Norm
from tests.emissions.support import VOCAB, WIDTH, contexts, make
from tests.laws.support import assert_close
from tests.tiny import FINE, SAME

M, D = 3, 2


INNER_PRODUCTS = [kind for kind in Aggregate if kind is not Aggregate.CODE_L1]
"""Aggregates of inner products; `test_hamming_codes.py` tests the distance of codes."""


def build(aggregate: str, **fields: object) -> HammingEmission:
    return make("hamming", aggregate=aggregate, **{"groups": M, "size": D, **fields})


def rescale(emission: HammingEmission, by: float, scale: float) -> HammingEmission:
    """Multiply every agreement by `by` and β by `scale`, in place."""
    with torch.no_grad():
        emission.context.weight.mul_(by)
        emission.context.bias.mul_(by)
        emission.log_scale.add_(torch.tensor(scale).log())
    return emission


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


def test_aggregate_sum_is_a_tied_softmax_of_codes() -> None:
    emission = build("sum")
    y, targets, table = contexts()
    vector = make("vector", Norm.NONE)
    expected = vector.log_prob(emission.context(y), targets, emission.codes(table))
    assert_close(emission.log_prob(y, targets, table), expected, FINE, "scores")


def test_for_small_agreements_sigmoid_l1_approaches_the_sum() -> None:
    """With a → εa and β → 4β/ε the error falls as ε²: σ(a) − ½ is odd."""
    y, _, table = contexts()
    total = build("sum").dense(y, table)
    errors = []
    for epsilon in (0.1, 0.01):
        # β starts at 4.
        emission = rescale(build("sigmoid_l1"), epsilon, 1 / epsilon)
        errors.append((emission.dense(y, table) - total).abs().max().item())
    assert errors[1] < 1e-3
    assert errors[0] / errors[1] == pytest.approx(100, rel=0.1)


def test_for_large_agreements_each_mismatch_costs_beta() -> None:
    emission = rescale(build("sigmoid_l1"), 1e6, 1.0)
    y, _, table = contexts(batch=6, steps=6)
    agreements = emission.agreements(y, table)
    assert agreements.abs().min() > 50
    matches = (agreements > 0).sum(-1)
    assert_close(emission.logits(y, table), 4.0 * matches.double(), SAME, "logits")
    assert set(range(M + 1)) >= set(matches.flatten().tolist()) > {0}


def test_the_soft_count_of_mismatches_is_between_zero_and_m() -> None:
    emission = build("sigmoid_l1")
    y, _, table = contexts()
    for by in (1.0, 30.0, 1e3):
        mismatches = M - rescale(emission, by, 1.0).logits(y, table) / emission.log_scale.exp()
        assert mismatches.min() >= -FINE
        assert mismatches.max() <= M + FINE


@pytest.mark.parametrize("aggregate", Aggregate)
def test_only_the_sum_has_low_rank_logits(aggregate: Aggregate) -> None:
    """Two groups of size 1 give rank 2, unless the aggregate is nonlinear."""
    emission = build(aggregate, groups=2, size=1)
    generator = torch.Generator().manual_seed(5)
    y, table = (torch.randn(n, WIDTH, generator=generator).double() for n in (50, 4 * VOCAB))
    logits = rescale(emission, 5.0, 1.0).logits(y, table)
    rank = int(torch.linalg.matrix_rank(logits, rtol=1e-6))
    assert rank == 2 if aggregate is Aggregate.SUM else rank > 6


@pytest.mark.parametrize(("groups", "size", "rank"), [(1, 2, 2), (2, 2, 4), (4, 3, WIDTH)])
def test_the_rank_of_the_sum_is_at_most_the_embedding_width(
    groups: int, size: int, rank: int
) -> None:
    """The rank is min(E, M d)."""
    emission = build("sum", groups=groups, size=size)
    generator = torch.Generator().manual_seed(5)
    y, table = (torch.randn(n, WIDTH, generator=generator).double() for n in (50, 4 * VOCAB))
    assert int(torch.linalg.matrix_rank(emission.logits(y, table), rtol=1e-6)) == rank


def test_aggregate_min_is_the_smallest_agreement() -> None:
    emission = build("min")
    y, _, table = contexts()
    a = emission.agreements(y, table)
    assert emission.log_scale == 0
    assert_close(emission.logits(y, table), a.sort(-1).values[..., 0], FINE, "logits")


def test_a_large_agreement_cannot_compensate_for_a_mismatch() -> None:
    """Except with aggregate=sum."""
    for aggregate, robust in (("sigmoid_l1", True), ("min", True), ("sum", False)):
        emission = build(aggregate, groups=2, size=1)
        with torch.no_grad():
            emission.context.weight.zero_()
            emission.context.bias.copy_(torch.tensor([1.0, 1.0]))
            emission.codes.weight.copy_(torch.eye(2, WIDTH))
        table = torch.zeros(2, WIDTH, dtype=torch.float64)
        table[0, :2] = torch.tensor([1e6, -1.0])  # a large agreement and a mismatch
        table[1, :2] = torch.tensor([1.0, 1.0])  # two agreements
        logits = emission.logits(torch.zeros(1, WIDTH).double(), table)[0]
        assert bool(logits[1] > logits[0]) is robust, aggregate


def test_zero_groups_are_an_error() -> None:
    with pytest.raises(UserError, match="groups"):
        EMISSIONS.parse({"name": "hamming", "groups": 0})
