"""A sequence longer than the task's is scored, or refused in one line that says what to do."""

import pytest
import torch

from lmzoo.contract import Task
from lmzoo.errors import UserError
from tests.laws.support import log_prob, next_log_prob
from tests.test_contract import CASES, case_id
from tests.tiny import batch, tiny


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_a_longer_sequence_is_scored_or_refused(case):
    name, fields = case
    model = tiny(name, **fields)
    task = model.task
    longer = Task(vocab=task.vocab, length=task.length + 3)
    tokens, lengths = batch(longer)
    refusal = ""
    try:
        scores = [log_prob(model, tokens, lengths)]
        if model.causal and not model.leaks:
            scores.append(next_log_prob(model, tokens))
    except UserError as error:
        refusal, scores = str(error), []
    assert "; use " in refusal or scores
    assert "\n" not in refusal
    assert all(not torch.isnan(score).any() for score in scores)
