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
CASES: list[Case] = [*((name, {}) for name in one_row_per_model()), *TABLE["rows"]]
OPTIONS: list[Case] = TABLE["options"]
PARTS: list[Case] = TABLE["parts"]

OPTION_LAWS = {
    density.law_causal,
    density.law_log_prob_equals_next_log_prob,
    density.law_advance_equals_next_log_prob,
    every_model.law_every_parameter_learns,
}

CELL_CASES: list[Case] = [
    ("recurrent_lm", {"cell": cell, "starts": 2 * (cell != "attention")}) for cell in CELLS
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

PART_LAWS = {*CELL_LAWS, density.law_causal, every_model.law_padding_is_ignored}
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
        family = zoo.row(case[0]).family
        laws = laws_for(MODELS[zoo.row(case[0]).model or ""])
        yield parameter(case, [law for law in laws if law not in EXPENSIVE])
        if family not in families:
            yield parameter(case, [law for law in laws if law in EXPENSIVE], "expensive")
        families.add(family)
    for some, chosen in ((OPTIONS, OPTION_LAWS), (PARTS, PART_LAWS), (CELL_CASES, CELL_LAWS)):
        for case in some:
            laws = laws_for(MODELS[zoo.row(case[0]).model or ""])
            yield parameter(case, [law for law in laws if law in chosen], "", some is not OPTIONS)
    expensive = [*laws_of(packing), every_model.law_unused_parameters_are_declared]
    for cell in CELLS_OF_KINDS:
        case = ("recurrent_lm", {"cell": cell, "starts": 2})
        yield parameter(case, expensive, "expensive", known=True)


def parameter(case: Case, laws: list[Law], group: str = "", known: bool = False):  # noqa: FBT001, FBT002
    """Return a parameter; the shapes of a `known` part are checked in its folder."""
    name = "-".join([case[0], *(f"{key}={value}" for key, value in case[1].items()), group])
    if known:
        marks = pytest.mark.unchecked
    else:
        marks = ()
    return pytest.param(case, laws, id=name.removesuffix("-"), marks=marks)


@pytest.mark.parametrize(("case", "laws"), list(groups()))
def test_every_model_obeys_every_law(case, laws):
    name, fields = case
    failed = {}
    for law in laws:
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
        alone = tokens[:, :1], torch.ones_like(lengths)
        assert not log_prob(model, *alone).any(), name
        assert not model.objective(*alone, *default_source(model, len(tokens))).any(), name


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
    assert len(reported) > 10


def test_initial_weights_match_the_pins():
    """A pin: the number of parameters, and the loss of the initial weights (seed 0)."""
    pins = json.loads(PINS.read_text())
    measured = {}
    for name in row_names():
        model = tiny(name)
        assert (model.score, model.leaks) == (zoo.row(name).score, ""), name
        loss = -log_prob(model, *batch(model.task)).sum().item() / 5  # nats per sequence
        count = sum(p.numel() for p in model.parameters())
        measured[name] = {"parameters": count, "first_loss": round(loss, 4)}
    # The last digit of a rounded number may differ on another machine.
    changed = {n: own for n, own in measured.items() if own != pytest.approx(pins.get(n), abs=2e-4)}
    assert not changed, f"if this is intended, put into pins.json: {json.dumps(changed)}"
    assert set(pins) <= set(measured)
