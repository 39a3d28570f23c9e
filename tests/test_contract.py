"""Every model class obeys every law; the tests run for each newly registered class."""

import contextlib
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.cells.base import CELLS
from lmzoo.contract import MODELS
from lmzoo.laws import Law, density, every_model, extremes, laws_of
from lmzoo.laws.tiny import default_source, log_prob
from lmzoo.laws_of_training import laws_for, packing
from tests.tiny import batch, one_row_per_model, row_names, tiny

PINS = Path(__file__).with_name("pins.json")

Case = tuple[str, dict[str, Any]]
"""A row, and fields of its model that differ."""


TABLE = tomllib.loads(Path(__file__).with_name("contract_cases.toml").read_text(encoding="utf-8"))
CASES: list[Case] = [(name, {}) for name in one_row_per_model()]
CASES += TABLE["rows"]
OPTIONS: list[Case] = TABLE["options"]
PARTS: list[Case] = TABLE["parts"]

OPTION_LAWS = {
    density.law_causal,
    density.law_log_prob_equals_next_log_prob,
    density.law_advance_equals_next_log_prob,
    every_model.law_every_parameter_learns,
}


def starts_of(cell: str) -> int:
    """Return how many initial states a cell may have."""
    # Attention has no state.
    if cell == "attention":
        return 0
    return 2


CELL_CASES: list[Case] = [
    ("recurrent_lm", {"cell": cell, "starts": starts_of(cell)}) for cell in CELLS
]
"""Every cell; `tests/cells/test_every_cell.py` has the laws of a cell alone."""

CELL_LAWS = {
    density.law_advance_equals_next_log_prob,
    extremes.law_large_weights_agree,
    extremes.law_runs_in_half_precision,
    every_model.law_every_parameter_learns,
    every_model.law_state_has_the_declared_size,
    every_model.law_seed_decides_the_weights,
    every_model.law_config_rejects_wrong_values,
    every_model.law_computes_on_its_device,
}
"""The cheap laws that a cell can break in a model."""

PART_LAWS = CELL_LAWS | {density.law_causal, every_model.law_padding_is_ignored}
"""The cheap laws that a part can break; the others are about the code that all parts share."""

EXPENSIVE = {
    *laws_of(packing),
    every_model.law_overfits_one_sequence,
    every_model.law_unused_parameters_are_declared,
}
"""The laws that take most of the time: on one row of a family, and on these cells."""

CELLS_OF_KINDS = (
    *("rnn", "lstm", "gru", "mgu", "mgru"),  # with kernels
    *("gated_deltanet", "rg_lru", "mamba", "slstm", "block"),  # matrix, diagonal, scan, loop
    "hybrid",  # attention, too
)


def groups() -> Iterator[Any]:
    """Yield a row with other fields, and the laws that it must obey."""
    families = set()
    for case in CASES:
        row = zoo.row(case[0])
        laws = laws_of_case(case)
        yield parameter(case, laws - EXPENSIVE)
        if row.family not in families:
            yield parameter(case, laws & EXPENSIVE, "expensive")
        families.add(row.family)
    for case in OPTIONS:
        yield parameter(case, laws_of_case(case) & OPTION_LAWS)
    for case in PARTS:
        yield parameter(case, laws_of_case(case) & PART_LAWS, known=True)
    for case in CELL_CASES:
        yield parameter(case, laws_of_case(case) & CELL_LAWS, known=True)
    expensive = set(laws_of(packing)) | {every_model.law_unused_parameters_are_declared}
    for cell in CELLS_OF_KINDS:
        case = ("recurrent_lm", {"cell": cell, "starts": 2})
        yield parameter(case, expensive, "expensive", known=True)


def laws_of_case(case: Case) -> set[Law]:
    row = zoo.row(case[0])
    return set(laws_for(MODELS[row.model or ""]))


def parameter(case: Case, laws: set[Law], group: str = "", *, known: bool = False):
    """Return a parameter; the shapes of a `known` part are checked in its folder."""
    row, fields = case
    words = [row]
    words += [f"{key}={value}" for key, value in fields.items()]
    name = "-".join(words + [group])
    marks = ()
    if known:
        marks = pytest.mark.unchecked
    in_order = sorted(laws, key=lambda law: law.__name__)
    return pytest.param(case, in_order, id=name.removesuffix("-"), marks=marks)


@pytest.mark.parametrize(("case", "laws"), list(groups()))
def test_every_model_obeys_every_law(case, laws):
    name, fields = case
    failed = {}
    for law in laws:
        # A law draws the same numbers in whatever order laws run.
        torch.manual_seed(0)
        try:
            law(tiny(name, **fields))
        except AssertionError as error:
            failed[law.__name__] = str(error)
    assert failed == {}


def test_a_start_alone_has_no_score():
    for name in one_row_per_model():
        model = tiny(name)
        tokens, lengths = batch(model.task)
        starts = tokens[:, :1]
        ones = torch.ones_like(lengths)
        source = default_source(model, len(tokens))
        score = log_prob(model, starts, ones)
        objective = model.objective(starts, ones, *source)
        assert not score.any(), name
        assert not objective.any(), name


def test_a_norm_over_all_times_is_a_leak_that_is_reported():
    reported = []
    for name in row_names():
        with contextlib.suppress(UserError):  # the row has no such field, or refuses this value
            model = tiny(name, norm="time_std")
            if model.leaks:
                reported.append(name)
                assert "time_std" in model.leaks, name
                assert model.state_size is None, name  # each new token changes earlier states
            elif model.causal:  # the norm is that of single vectors
                density.law_causal(model)
    # Or the field has another name now.
    assert len(reported) > 10


def test_initial_weights_match_the_pins():
    """A pin: the number of parameters, and the loss of the initial weights (seed 0)."""
    pins = json.loads(PINS.read_text())
    measured = {}
    for name in row_names():
        model = tiny(name)
        assert model.score == zoo.row(name).score, name
        assert model.leaks == "", name
        tokens, lengths = batch(model.task)
        total = float(log_prob(model, tokens, lengths).sum())
        loss = -total / 5  # nats per sequence
        count = sum(p.numel() for p in model.parameters())
        measured[name] = {"parameters": count, "first_loss": round(loss, 4)}
    changed = {}
    for name, found in measured.items():
        # The last digit of a rounded number may differ on another machine.
        if found != pytest.approx(pins.get(name), abs=2e-4):
            changed[name] = found
    assert not changed, f"if this is intended, put into pins.json: {json.dumps(changed)}"
    assert pins.keys() <= measured.keys()
