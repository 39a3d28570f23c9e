"""Every registered model obeys every law; a new one inherits them by being registered."""

import json
from pathlib import Path
from typing import Any

import pytest

from lmzoo import zoo
from lmzoo.cells.base import CELLS
from lmzoo.contract import MODELS, LanguageModel
from lmzoo.functional.normalise import Norm
from tests.laws import Law, laws_for
from tests.laws.ask import log_prob
from tests.tiny import batch, rows, tiny

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
"""The recurrent model is a product of parts; this is a spread of them."""

CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in rows()),
    *(("recurrent_lm", parts) for parts in PARTS),
    ("seq2seq_dot_attention", {"bidirectional": True}),
    ("transformer_encdec", {"norm": "pre", "positions": "learned"}),
]


def told(case: tuple[str, dict[str, Any]]) -> str:
    return "-".join([case[0], *(f"{key}={value}" for key, value in case[1].items())])


@pytest.mark.parametrize(
    ("case", "law"),
    [
        pytest.param(case, law, id=f"{told(case)}-{law.__name__}")
        for case in CASES
        for law in laws_for(MODELS[zoo.row(case[0]).model])
    ],
)
def test_every_model_obeys(case: tuple[str, dict[str, Any]], law: Law) -> None:
    name, fields = case
    law(tiny(name, **fields))


@pytest.mark.parametrize("name", rows())
def test_a_row_says_what_its_model_is(name: str) -> None:
    model = tiny(name)
    assert model.score == zoo.row(name).score
    assert not model.leaks


def measure(model: LanguageModel) -> dict[str, float]:
    """What a pin holds: the size, and the first loss at seed 0 in nats per sequence."""
    tokens, lengths = batch(model.task)
    first = -log_prob(model, tokens, lengths).sum().item() / len(tokens)
    return {"parameters": sum(p.numel() for p in model.parameters()), "first_loss": round(first, 4)}


def check_pin(name: str, pins: dict[str, dict[str, float]], found: dict[str, float]) -> None:
    """Raise AssertionError with the line to put into `pins.json` unless the pin is right."""
    pin = pins.get(name)
    kept = pin and pin["parameters"] == found["parameters"]
    # The last digit of a rounded number may fall either way on another machine.
    kept = kept and abs(pin["first_loss"] - found["first_loss"]) < 2e-4
    wrong = "has moved" if pin else "is missing"
    line = f'  "{name}": {json.dumps(found)},'
    assert kept, f"the pin of {name} {wrong}; if that is meant, tests/pins.json needs\n{line}"


@pytest.mark.parametrize("name", rows())
def test_pins_move_only_on_purpose(name: str) -> None:
    check_pin(name, json.loads(PINS.read_text()), measure(tiny(name)))


def test_every_pin_belongs_to_a_row() -> None:
    assert set(json.loads(PINS.read_text())) <= set(rows())


@pytest.mark.parametrize("spoil", [{"parameters": 1}, {"first_loss": 9.0}, None])
def test_a_wrong_or_missing_pin_prints_the_line_that_mends_it(spoil: dict | None) -> None:
    found = measure(tiny("rnn_lm"))
    pins = {} if spoil is None else {"rnn_lm": {**found, **spoil}}
    with pytest.raises(AssertionError) as caught:
        check_pin("rnn_lm", pins, found)
    line = str(caught.value).splitlines()[1]
    check_pin("rnn_lm", json.loads("{" + line.rstrip(",") + "}"), found)
