"""The Hamming emission (S1)."""

import pytest
import torch
from torch import Tensor

from lmzoo.base.errors import UserError
from lmzoo.emissions.base import EMISSIONS
from lmzoo.emissions.distances import Aggregate, Codes, HammingEmission
from lmzoo.functional.normalise import Norm
from tests.emissions.support import contexts, make
from tests.tiny import assert_equal_double

M = 3
D = 2


def build(aggregate: str, **fields: object) -> HammingEmission:
    size = D
    if aggregate == Aggregate.CODE_L1:
        size = 1
    return make("hamming", aggregate=aggregate, **{"groups": M, "size": size, **fields})


def reference_logit(emission: HammingEmission, y: Tensor, code: Tensor) -> Tensor:
    """Return the logit of one token in one context."""
    q = emission.context(y)
    if emission.config.aggregate == Aggregate.CODE_L1:
        return -emission.log_scale.exp() * (q.sigmoid() - code.sigmoid()).abs().sum()
    a = torch.stack([q[D * m : D * m + D] @ code[D * m : D * m + D] for m in range(M)])
    if emission.bias is not None:
        a = a + emission.bias
    aggregates = {"sigmoid_l1": a.sigmoid().sum(), "min": a.min(), "sum": a.sum()}
    return emission.log_scale.exp() * aggregates[emission.config.aggregate]


@pytest.mark.parametrize("codes", Codes)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("aggregate", Aggregate)
def test_the_hamming_emission_computes_its_definition(aggregate, codes, biased):
    if biased and aggregate in (Aggregate.SUM, Aggregate.CODE_L1):
        with pytest.raises(UserError, match="biased=True"):
            build(aggregate, biased=True)
        return
    emission = build(aggregate, biased=biased, codes=codes)
    if biased:
        with torch.no_grad():
            emission.bias.copy_(torch.tensor([0.5, -1.0, 2.0]))
    y, _, table = contexts(batch=1, steps=2)
    if codes is not Codes.FREE:
        own = table @ emission.codes.weight.T
    else:
        own = emission.free
    logits = torch.stack(
        [torch.stack([reference_logit(emission, c, e) for e in own]) for c in y[0]]
    )
    assert_equal_double(emission.dense(y[0], table), torch.log_softmax(logits, -1))


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"groups": 0}, "groups"), ({"aggregate": "code_l1", "size": 2}, "size=2: aggregate=code_l1")],
)
def test_invalid_options_are_errors(fields, message):
    with pytest.raises(UserError, match=message):
        EMISSIONS.parse({"name": "hamming", **fields})


@pytest.mark.parametrize(("codes", "rank"), [("linear", 4), ("free", 6)])
def test_free_codes_are_not_in_the_span_of_the_embeddings(codes, rank):
    """With E = 4 and M d = 6."""
    emission = build("sum", codes=codes)
    assert int(torch.linalg.matrix_rank(emission.token_codes(contexts()[2]))) == rank


def test_free_codes_need_a_model_that_names_its_tokens():
    emission = EMISSIONS.build(EMISSIONS.parse({"name": "hamming", "codes": "free"}), 4, Norm.RMS)
    with pytest.raises(UserError, match="codes=free"):
        emission.dense(torch.ones(1, 4), torch.ones(7, 4))
