"""Every registered model obeys every law; the tests run for each newly registered model."""

import json
from pathlib import Path
from typing import Any

import pytest

from lmzoo import zoo
from lmzoo.cells.base import CELLS
from lmzoo.contract import MODELS, LanguageModel
from lmzoo.functional.normalise import Norm
from lmzoo.laws import Law
from lmzoo.laws_of_training import laws_for
from tests.laws.support import log_prob
from tests.tiny import batch, row_names, tiny

PINS = Path(__file__).with_name("pins.json")

PARTS: list[dict[str, Any]] = [
    *({"cell": cell, "starts": 2} for cell in CELLS),
    *({"norm": norm, "emission": "vector"} for norm in Norm if norm is not Norm.TIME_STD),
    {"norm": "l2"},
    {"norm": "time_std_causal"},
    {"cell": {"name": "mgu", "cuts": [4, 6]}},
    *({"cell": {"name": "mgru", "mutations": [4, 6, switch]}} for switch in (9, 10, 11)),
    {"cell": {"name": "mgru", "mutations": [4]}, "starts": 2},
    {"emission": {"name": "mixture", "scaled": False}, "starts": 1},
]
"""A selection of the combinations of parts of the recurrent model."""

CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in row_names()),
    *(("recurrent_lm", parts) for parts in PARTS),
    ("seq2seq_dot_attention", {"bidirectional": True}),
    ("transformer_encdec", {"norm": "pre", "positions": "learned"}),
    ("masked_lm", {"embedding_norm": True, "head": True}),
]


def case_id(case: tuple[str, dict[str, Any]]) -> str:
    return "-".join([case[0], *(f"{key}={value}" for key, value in case[1].items())])


@pytest.mark.parametrize(
    ("case", "law"),
    [
        pytest.param(case, law, id=f"{case_id(case)}-{law.__name__}")
        for case in CASES
        for law in laws_for(MODELS[zoo.row(case[0]).model])
    ],
)
def test_every_model_obeys_every_law(case: tuple[str, dict[str, Any]], law: Law) -> None:
    name, fields = case
    law(tiny(name, **fields))


@pytest.mark.parametrize("name", row_names())
def test_a_row_has_the_score_kind_of_its_model(name: str) -> None:
    model = tiny(name)
    assert model.score == zoo.row(name).score
    assert not model.leaks


def measure(model: LanguageModel) -> dict[str, float]:
    """Return a pin: the number of parameters, and the loss of the initial weights (seed 0)."""
    tokens, lengths = batch(model.task)
    loss = -log_prob(model, tokens, lengths).sum().item() / len(tokens)  # nats per sequence
    return {"parameters": sum(p.numel() for p in model.parameters()), "first_loss": round(loss, 4)}


def check_pin(name: str, pins: dict[str, dict[str, float]], measured: dict[str, float]) -> None:
    """Assert that the pin is correct; the error message has the correct line of `pins.json`."""
    pin = pins.get(name)
    correct = pin and pin["parameters"] == measured["parameters"]
    # The last digit of a rounded number may differ on another machine.
    correct = correct and abs(pin["first_loss"] - measured["first_loss"]) < 2e-4
    status = "has changed" if pin else "is missing"
    line = f'  "{name}": {json.dumps(measured)},'
    assert correct, f"the pin of {name} {status}; if this is intended, put into pins.json:\n{line}"


@pytest.mark.parametrize("name", row_names())
def test_initial_weights_match_the_pins(name: str) -> None:
    check_pin(name, json.loads(PINS.read_text()), measure(tiny(name)))


def test_every_pin_belongs_to_a_row() -> None:
    assert set(json.loads(PINS.read_text())) <= set(row_names())


@pytest.mark.parametrize("change", [{"parameters": 1}, {"first_loss": 9.0}, None])
def test_a_wrong_or_missing_pin_prints_the_correct_line(change: dict | None) -> None:
    measured = measure(tiny("rnn_lm"))
    pins = {} if change is None else {"rnn_lm": {**measured, **change}}
    with pytest.raises(AssertionError) as caught:
        check_pin("rnn_lm", pins, measured)
    line = str(caught.value).splitlines()[1]
    check_pin("rnn_lm", json.loads("{" + line.rstrip(",") + "}"), measured)
