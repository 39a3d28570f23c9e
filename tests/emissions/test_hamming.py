"""The emission that counts mismatches (S1)."""

import pytest
import torch
from torch import Tensor

from lmzoo.emissions.base import EMISSIONS
from lmzoo.emissions.hamming import Aggregate, HammingEmission
from lmzoo.errors import UserError
from lmzoo.functional.normalise import Norm
from tests.emissions.heads import VOCAB, WIDTH, contexts, make
from tests.laws.ask import same
from tests.tiny import FINE, SAME

M, D = 3, 2


AGREEMENTS = [one for one in Aggregate if one is not Aggregate.CODE_L1]
"""Those that compare by inner products; distances of codes have `test_hamming_codes.py`."""


def head(aggregate: str, **fields: object) -> HammingEmission:
    return make("hamming", aggregate=aggregate, **{"groups": M, "size": D, **fields})


def stretched(one: HammingEmission, by: float, scale: float) -> HammingEmission:
    """Every agreement multiplied by `by`, β by `scale`."""
    with torch.no_grad():
        one.context.weight.mul_(by)
        one.context.bias.mul_(by)
        one.log_scale.add_(torch.tensor(scale).log())
    return one


def by_hand(one: HammingEmission, y: Tensor, word: Tensor) -> Tensor:
    """The logit of one word in one context."""
    q, code = one.context(y), one.codes(word)
    a = torch.stack([q[D * m : D * m + D] @ code[D * m : D * m + D] for m in range(M)])
    a = a if one.bias is None else a + one.bias
    whole = {"sigmoid_l1": a.sigmoid().sum(), "min": a.min(), "sum": a.sum()}
    return one.log_scale.exp() * whole[one.config.aggregate]


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("aggregate", AGREEMENTS)
def test_it_is_its_definition(aggregate: Aggregate, *, biased: bool) -> None:
    if biased and aggregate is Aggregate.SUM:
        with pytest.raises(UserError, match="biased=True"):
            head(aggregate, biased=True)
        return
    one = head(aggregate, biased=biased)
    if biased:
        with torch.no_grad():
            one.bias.copy_(torch.tensor([0.5, -1.0, 2.0]))
    y, _, table = contexts(batch=1, steps=2)
    logits = torch.stack([torch.stack([by_hand(one, c, w) for w in table]) for c in y[0]])
    same(one.dense(y[0], table), torch.log_softmax(logits, -1), FINE, "dense")


def test_sum_is_the_tied_softmax_on_flat_codes() -> None:
    one = head("sum")
    y, targets, table = contexts()
    plain = make("vector", Norm.NONE)
    expected = plain.log_prob(one.context(y), targets, one.codes(table))
    same(one.log_prob(y, targets, table), expected, FINE, "scores")


def test_faint_agreements_are_added_up() -> None:
    """a → εa, β → 4β/ε: the error falls as ε², the logistic having no even terms but ½."""
    y, _, table = contexts()
    total = head("sum").dense(y, table)
    apart = []
    for faint in (0.1, 0.01):
        # The head's own β is 4 already.
        one = stretched(head("sigmoid_l1"), faint, 1 / faint)
        apart.append((one.dense(y, table) - total).abs().max().item())
    assert apart[1] < 1e-3
    assert apart[0] / apart[1] == pytest.approx(100, rel=0.1)


def test_strong_agreements_are_counted_and_one_mismatch_costs_beta() -> None:
    one = stretched(head("sigmoid_l1"), 1e6, 1.0)
    y, _, table = contexts(batch=6, steps=6)
    agreements = one.agreements(y, table)
    assert agreements.abs().min() > 50
    matched = (agreements > 0).sum(-1)
    same(one.logits(y, table), 4.0 * matched.double(), SAME, "logits")
    assert set(range(M + 1)) >= set(matched.flatten().tolist()) > {0}


def test_the_energy_lies_between_zero_and_m() -> None:
    one = head("sigmoid_l1")
    y, _, table = contexts()
    for by in (1.0, 30.0, 1e3):
        energy = M - stretched(one, by, 1.0).logits(y, table) / one.log_scale.exp()
        assert energy.min() >= -FINE
        assert energy.max() <= M + FINE


@pytest.mark.parametrize("aggregate", Aggregate)
def test_only_the_sum_is_bound_by_its_rank(aggregate: Aggregate) -> None:
    """Two groups of size one: rank 2, unless a nonlinearity stands between."""
    one = head(aggregate, groups=2, size=1)
    generator = torch.Generator().manual_seed(5)
    y, table = (torch.randn(n, WIDTH, generator=generator).double() for n in (50, 4 * VOCAB))
    logits = stretched(one, 5.0, 1.0).logits(y, table)
    rank = int(torch.linalg.matrix_rank(logits, rtol=1e-6))
    assert rank == 2 if aggregate is Aggregate.SUM else rank > 6


@pytest.mark.parametrize(("groups", "size", "rank"), [(1, 2, 2), (2, 2, 4), (4, 3, WIDTH)])
def test_a_sum_has_no_more_ranks_than_the_embeddings_have(
    groups: int, size: int, rank: int
) -> None:
    """Codes are read off the embeddings: min(E, M d)."""
    one = head("sum", groups=groups, size=size)
    generator = torch.Generator().manual_seed(5)
    y, table = (torch.randn(n, WIDTH, generator=generator).double() for n in (50, 4 * VOCAB))
    assert int(torch.linalg.matrix_rank(one.logits(y, table), rtol=1e-6)) == rank


def test_the_worst_group_decides_alone() -> None:
    one = head("min")
    y, _, table = contexts()
    a = one.agreements(y, table)
    assert one.log_scale == 0
    same(one.logits(y, table), a.sort(-1).values[..., 0], FINE, "logits")


def test_a_word_cannot_buy_back_a_mismatch() -> None:
    """Making one agreement ever larger: bounded by β where they are counted, not where added."""
    for aggregate, bounded in (("sigmoid_l1", True), ("min", True), ("sum", False)):
        one = head(aggregate, groups=2, size=1)
        with torch.no_grad():
            one.context.weight.zero_()
            one.context.bias.copy_(torch.tensor([1.0, 1.0]))
            one.codes.weight.copy_(torch.eye(2, WIDTH))
        table = torch.zeros(2, WIDTH, dtype=torch.float64)
        table[0, :2] = torch.tensor([1e6, -1.0])  # one great match, one mismatch
        table[1, :2] = torch.tensor([1.0, 1.0])  # two plain matches
        better = one.logits(torch.zeros(1, WIDTH).double(), table)[0]
        assert bool(better[1] > better[0]) is bounded, aggregate


def test_its_sizes_are_refused_where_they_are_none() -> None:
    with pytest.raises(UserError, match="groups"):
        EMISSIONS.read({"name": "hamming", "groups": 0})
