"""No row that claims a probability knows anything of independent uniform tokens (C3)."""

import math

import pytest
import torch

from lmzoo import zoo
from lmzoo.config import to_dict
from lmzoo.contract import START, LanguageModel, Score, Task
from lmzoo.data.vocabulary import SPECIALS
from lmzoo.experiments.iid_floor import measure
from tests.laws.ask import log_prob
from tests.tiny import TINY, rows, shrink

SYMBOLS, LENGTH, FRESH = 4, 6, 2000
SIZES = {**TINY, "width": 8, "components": 8}
"""Of all rows: with fewer components there is no room for what looking ahead would tell."""
EXACT = [name for name in rows() if zoo.row(name).score == Score.EXACT]


def trained(name: str, **fields: object) -> LanguageModel:
    """The small row after thirty steps, each on fresh tokens."""
    small = shrink(to_dict(zoo.config(name)), SIZES)
    config = zoo.config(name, **zoo.overlay(small, fields))
    model = zoo.build(config, Task(vocab=SYMBOLS + len(SPECIALS), length=LENGTH))
    measure(model, symbols=SYMBOLS, steps=30, batch=50, lr=0.03)
    return model


def above(model: LanguageModel) -> float:
    """How many standard errors the loss of fresh sequences lies above log V each token."""
    generator = torch.Generator().manual_seed(11)
    tokens = torch.randint(len(SPECIALS), model.task.vocab, (FRESH, LENGTH), generator=generator)
    tokens[:, 0] = START
    each = -log_prob(model, tokens, torch.full((FRESH,), LENGTH)).sum(1) / (LENGTH - 1)
    error = each.std() / math.sqrt(FRESH) + 1e-6  # a model that learnt to be uniform has none
    return ((each.mean() - math.log(SYMBOLS)) / error).item()


@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_no_row_knows_what_cannot_be_known(name: str) -> None:
    assert above(trained(name)) > -4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DLM23", "DLM26", "DLM46"])
def test_rows_that_look_ahead_do(name: str) -> None:
    """So thirty steps are enough to tell."""
    assert above(trained(name, norm="time_std")) < -20
