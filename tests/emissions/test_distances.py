"""The Hamming emission (S1)."""

import pytest
import torch

from lmzoo.base.errors import UserError
from lmzoo.emissions.base import EMISSIONS
from lmzoo.emissions.distances import Aggregate, Codes
from lmzoo.functional.normalise import Norm
from tests.cases import parametrize
from tests.emissions.support import contexts, make
from tests.tiny import assert_equal_double

M = 3
D = 2


def build(aggregate, **fields):
    # The codes of CODE_L1 have one number a group.
    size = D
    if aggregate == Aggregate.CODE_L1:
        size = 1
    options = {"groups": M, "size": size} | fields
    return make("hamming", aggregate=aggregate, **options)


def reference_logit(emission, y, code):
    """Return the logit of one token in one context."""
    aggregate = emission.config.aggregate
    scale = emission.log_scale.exp()
    q = emission.context(y)
    if aggregate == Aggregate.CODE_L1:
        # Sigmoids of codes are soft bits.
        difference = q.sigmoid() - code.sigmoid()
        return -scale * difference.abs().sum()
    by_group = q.view(M, D) * code.view(M, D)
    a = by_group.sum(1)
    if emission.bias is not None:
        a = a + emission.bias
    if aggregate == Aggregate.SIGMOID_L1:
        return scale * a.sigmoid().sum()
    if aggregate == Aggregate.MIN:
        return scale * a.min()
    return scale * a.sum()


EACH_CODES = parametrize("codes", Codes)
UNBIASED = (Aggregate.SUM, Aggregate.CODE_L1)
BIASED = [each for each in Aggregate if each not in UNBIASED]


def assert_computes_its_definition(emission):
    y, _, table = contexts(batch=1, steps=2)
    # Free codes are weights, others are maps of the embeddings.
    codes = emission.free
    if emission.config.codes is not Codes.FREE:
        codes = table @ emission.codes.weight.T
    logits = []
    for context in y[0]:
        for code in codes:
            logits.append(reference_logit(emission, context, code))
    by_context = torch.stack(logits).view(2, -1)
    expected = by_context.log_softmax(-1)
    actual = emission.dense(y[0], table)
    assert_equal_double(actual, expected)


@EACH_CODES
@parametrize("aggregate", Aggregate)
def test_the_hamming_emission_computes_its_definition(aggregate, codes):
    assert_computes_its_definition(build(aggregate, codes=codes))


@EACH_CODES
@parametrize("aggregate", BIASED)
def test_the_hamming_emission_with_biases_computes_its_definition(aggregate, codes):
    emission = build(aggregate, biased=True, codes=codes)
    biases = torch.tensor([0.5, -1.0, 2.0])
    with torch.no_grad():
        emission.bias.copy_(biases)
    assert_computes_its_definition(emission)


@parametrize("aggregate", UNBIASED)
def test_a_bias_that_has_no_effect_is_refused(aggregate):
    with pytest.raises(UserError, match="biased=True"):
        build(aggregate, biased=True)


INVALID = [
    ({"groups": 0}, "groups"),
    ({"aggregate": "code_l1", "size": 2}, "size=2: aggregate=code_l1"),
]


@parametrize(("fields", "message"), INVALID)
def test_invalid_options_are_errors(fields, message):
    with pytest.raises(UserError, match=message):
        EMISSIONS.parse({"name": "hamming"} | fields)


RANKS = {"linear": 4, "free": 6}


@parametrize(("codes", "rank"), RANKS.items())
def test_free_codes_are_not_in_the_span_of_the_embeddings(codes, rank):
    """With E = 4 and M d = 6."""
    _, _, table = contexts()
    emission = build("sum", codes=codes)
    drawn = emission.token_codes(table)
    # A map of E numbers has a rank of E at most.
    assert torch.linalg.matrix_rank(drawn) == rank


def test_free_codes_need_a_model_that_names_its_tokens():
    config = EMISSIONS.parse({"name": "hamming", "codes": "free"})
    emission = EMISSIONS.build(config, 4, Norm.RMS)
    y = torch.ones(1, 4)
    table = torch.ones(7, 4)
    with pytest.raises(UserError, match="codes=free"):
        emission.dense(y, table)
