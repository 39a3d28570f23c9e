"""A sequence longer than the task's is scored, or refused in one line that says what to do."""

import pytest

from lmzoo.base.errors import UserError
from lmzoo.contract import Task
from lmzoo.laws.support import log_prob, next_log_prob
from tests.test_contract import CASES
from tests.tiny import batch, tiny


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_longer_sequence_is_scored_or_refused(case):
    name, fields = case
    model = tiny(name, **fields)
    tokens, lengths = batch(Task(vocab=model.task.vocab, length=model.task.length + 3))
    refusals = []
    for score in (lambda: log_prob(model, tokens, lengths), lambda: next_log_prob(model, tokens)):
        try:
            assert model.leaks or not score().isnan().any()
        except UserError as error:
            refusals.append(str(error))
    assert all("; use " in refusal and "\n" not in refusal for refusal in refusals)
    assert len(refusals) in (0, 2) or not model.causal
