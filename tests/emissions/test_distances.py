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
    # The codes of CODE_L1 have one number a group.
    size = D
    if aggregate == Aggregate.CODE_L1:
        size = 1
    options = {"groups": M, "size": size} | fields
    return make("hamming", aggregate=aggregate, **options)


def reference_logit(emission: HammingEmission, y: Tensor, code: Tensor) -> Tensor:
    """Return the logit of one token in one context."""
    aggregate = emission.config.aggregate
    scale = emission.log_scale.exp()
    q = emission.context(y)
    if aggregate == Aggregate.CODE_L1:
        distance = (q.sigmoid() - code.sigmoid()).abs().sum()
        return -scale * distance
    a = (q.view(M, D) * code.view(M, D)).sum(1)
    if emission.bias is not None:
        a = a + emission.bias
    if aggregate == Aggregate.SIGMOID_L1:
        return scale * a.sigmoid().sum()
    if aggregate == Aggregate.MIN:
        return scale * a.min()
    return scale * a.sum()


UNBIASED = (Aggregate.SUM, Aggregate.CODE_L1)
EACH_AGGREGATE = pytest.mark.parametrize("aggregate", Aggregate)


def assert_computes_its_definition(emission: HammingEmission):
    y, _, table = contexts(batch=1, steps=2)
    codes = emission.free
    if emission.config.codes is not Codes.FREE:
        codes = table @ emission.codes.weight.T
    logits = []
    for context in y[0]:
        logits.append(torch.stack([reference_logit(emission, context, code) for code in codes]))
    expected = torch.stack(logits).log_softmax(-1)
    assert_equal_double(emission.dense(y[0], table), expected)


@pytest.mark.parametrize("codes", Codes)
@EACH_AGGREGATE
def test_the_hamming_emission_computes_its_definition(aggregate, codes):
    assert_computes_its_definition(build(aggregate, codes=codes))


@pytest.mark.parametrize("codes", Codes)
@pytest.mark.parametrize("aggregate", [each for each in Aggregate if each not in UNBIASED])
def test_the_hamming_emission_with_biases_computes_its_definition(aggregate, codes):
    emission = build(aggregate, biased=True, codes=codes)
    with torch.no_grad():
        emission.bias.copy_(torch.tensor([0.5, -1.0, 2.0]))
    assert_computes_its_definition(emission)


@pytest.mark.parametrize("aggregate", UNBIASED)
def test_a_bias_that_has_no_effect_is_refused(aggregate):
    with pytest.raises(UserError, match="biased=True"):
        build(aggregate, biased=True)


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
    _, _, table = contexts()
    drawn = build("sum", codes=codes).token_codes(table)
    assert int(torch.linalg.matrix_rank(drawn)) == rank


def test_free_codes_need_a_model_that_names_its_tokens():
    config = EMISSIONS.parse({"name": "hamming", "codes": "free"})
    emission = EMISSIONS.build(config, 4, Norm.RMS)
    with pytest.raises(UserError, match="codes=free"):
        emission.dense(torch.ones(1, 4), torch.ones(7, 4))
