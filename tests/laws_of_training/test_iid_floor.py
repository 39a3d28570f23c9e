"""Only a leaking model scores below the entropy of independent tokens."""

import math

import pytest
import torch

from lmzoo import zoo
from lmzoo.base.config import to_dict
from lmzoo.contract import START, LanguageModel, Score, Task
from lmzoo.data.vocabulary import SPECIALS
from lmzoo.laws.support import log_prob
from lmzoo.laws_of_training.iid_floor import MARGIN, IidFloor, iid_floor, measure_iid_floor
from tests.tiny import TINY_SIZES, row_names, shrink

SMALL = {"symbols": 4, "length": 6, "steps": 60, "batch": 50, "lr": 0.03}


def test_the_published_normaliser_is_below_the_floor_and_rms_is_not() -> None:
    valid = iid_floor(zoo.config("DLM46", width=8), **SMALL)
    leaking = iid_floor(zoo.config("DLM46", width=8, norm="time_std"), **SMALL)
    assert valid.fault == ""
    assert valid.floor - MARGIN < valid.loss < valid.floor + 0.1
    assert leaking.loss < leaking.floor - 0.1
    assert "log V" not in leaking.fault
    assert f"{leaking.loss:.3f}" in leaking.fault
    assert leaking.loss > leaking.oracle


def test_a_closed_form_model_is_fitted_and_above_the_floor() -> None:
    result = iid_floor(zoo.config("ngram_count"), **SMALL)
    assert result.floor == math.log(4)
    assert math.log(4) <= result.loss < math.log(4) + 0.1


def test_a_loss_below_the_margin_is_a_fault() -> None:
    def fault(loss: float) -> str:
        return IidFloor(loss=loss, floor=1.0, oracle=0.5, steps=1).fault

    assert fault(1.0 - MARGIN) == ""
    assert fault(1.0 - MARGIN - 1e-9) != ""


def test_the_result_depends_on_the_seed_only() -> None:
    config = zoo.config("rnn_lm", width=4)
    small = {**SMALL, "steps": 3}
    assert iid_floor(config, **small) == iid_floor(config, **small)
    assert iid_floor(config, **small) != iid_floor(config, **small, seed=1)


SYMBOLS, LENGTH, FRESH = 4, 6, 2000
SIZES = {**TINY_SIZES, "width": 8, "components": 8}
"""With fewer components, a leaking row has too little capacity to use the leak."""
EXACT = [name for name in row_names() if zoo.row(name).score == Score.EXACT]


def trained(name: str, **fields: object) -> LanguageModel:
    """Return a small model of the row after thirty training steps, each on new tokens."""
    small = shrink(to_dict(zoo.config(name)), SIZES)
    config = zoo.config(name, **zoo.overlay(small, fields))
    model = zoo.build(config, Task(vocab=SYMBOLS + len(SPECIALS), length=LENGTH))
    measure_iid_floor(model, symbols=SYMBOLS, steps=30, batch=50, lr=0.03)
    return model


def standard_errors_above_floor(model: LanguageModel) -> float:
    """Return (loss − log V) / standard error on new sequences, with the loss per token."""
    generator = torch.Generator().manual_seed(11)
    tokens = torch.randint(len(SPECIALS), model.task.vocab, (FRESH, LENGTH), generator=generator)
    tokens[:, 0] = START
    losses = -log_prob(model, tokens, torch.full((FRESH,), LENGTH)).sum(1) / (LENGTH - 1)
    error = losses.std() / math.sqrt(FRESH) + 1e-6  # zero for an exactly uniform model
    return ((losses.mean() - math.log(SYMBOLS)) / error).item()


@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_no_row_is_below_the_floor(name: str) -> None:
    assert standard_errors_above_floor(trained(name)) > -4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DLM23", "DLM26", "DLM46"])
def test_leaking_rows_are_below_the_floor(name: str) -> None:
    """Thirty steps are enough to detect a leak."""
    assert standard_errors_above_floor(trained(name, norm="time_std")) < -20
