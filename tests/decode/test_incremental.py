"""A prefix is read once: a token costs the same however many came before it."""

from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from lmzoo import zoo
from lmzoo.cells.base import CELLS
from lmzoo.contract import MODELS, LanguageModel
from tests.decode.work import numbers_by_step, vectors_by_step
from tests.laws.stepping import law_steps_agree
from tests.tiny import rows, tiny

STEPS = 6


def family(name: str) -> list[str]:
    """The rows of a family that read from left to right."""
    known = [row for row in rows() if zoo.row(row).family == name]
    return [row for row in known if MODELS[zoo.row(row).model].causal]


RECURRENT: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in family("recurrent")),
    *(("recurrent_lm", {"cell": cell, "starts": 2}) for cell in CELLS),
    ("recurrent_lm", {"norm": "time_std_causal"}),
    ("recurrent_lm", {"num_layers": 3, "starts": 2}),
]

ATTENTION: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in family("attention")),
    *(("transformer_decoder", {"positions": kind}) for kind in ("concat", "learned", "none")),
    ("star_transformer_causal", {"relay": False}),
    ("set_transformer_causal", {"points": 0}),
]


@pytest.mark.parametrize(("name", "fields"), RECURRENT)
def test_a_recurrence_pays_the_same_for_every_token(name: str, fields: dict[str, Any]) -> None:
    first, second, *later = numbers_by_step(tiny(name, length=STEPS + 1, **fields), STEPS)
    assert first <= second  # a running spread has nothing to compare with at first
    assert set(later) == {second}


def test_reading_the_prefix_again_would_be_seen() -> None:
    model = tiny("gru", length=STEPS + 1)
    again = {
        "begin": partial(LanguageModel.begin, model),
        "advance": partial(LanguageModel.advance, model),
    }
    paid = numbers_by_step(model, STEPS, **again)
    assert all(one < other for one, other in pairwise(paid))
    assert paid[-1] > 3 * numbers_by_step(model, STEPS)[-1]


@pytest.mark.parametrize(("name", "fields"), ATTENTION)
def test_attention_computes_no_key_twice(name: str, fields: dict[str, Any]) -> None:
    model = tiny(name, length=STEPS + 1, **fields)
    _, second, *later = vectors_by_step(model, STEPS)
    assert any("key" in name for name in second)
    assert all(step == second for step in later)
    # What is left to grow with the prefix is looking at it: one more key each time.
    paid = numbers_by_step(model, STEPS)[1:]
    growth = [other - one for one, other in pairwise(paid)]
    assert len(set(growth)) == 1


def test_a_decoder_sees_only_the_new_token() -> None:
    for step in vectors_by_step(tiny("gpt", length=STEPS + 1), STEPS):
        assert set(step.values()) == {2}  # two sequences


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        *ATTENTION[-5:],
        ("star_transformer_causal", {"layers": 3}),
        ("transformer_decoder", {"norm": "pre", "attention": {"pick": "sample"}}),
        ("recurrent_lm", {"norm": "time_std_causal", "starts": 2, "cell": "hm_lstm"}),
        ("recurrent_lm", {"num_layers": 3, "starts": 3, "cell": "lstm"}),
        ("recurrent_lm", {"cell": {"name": "mgru", "mutations": [10]}, "starts": 2}),
        *(("latent_ar", {"cell": cell}) for cell in ("hm_lstm", "grid_lstm", "mgru")),
    ],
)
def test_steps_agree_beyond_the_registered_rows(name: str, fields: dict[str, Any]) -> None:
    law_steps_agree(tiny(name, **fields))
