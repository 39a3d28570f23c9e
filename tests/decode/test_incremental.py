"""A prefix and a source are read once: a token costs the same however many came before it."""

import re
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch

from lmzoo import zoo
from lmzoo.cells.base import CELLS
from lmzoo.contract import MODELS, START, LanguageModel
from lmzoo.kernels.cpu import blas
from tests.decode.work import numbers_by_step, source_of, vectors_by_step
from tests.laws.stepping import law_steps_agree
from tests.tiny import rows, tiny

STEPS = 6


GROWING = [
    *(name for name in rows() if zoo.row(name).family == "attention"),
    "transformer_encdec",
]
"""Rows that carry a key and a value of each token."""


def carries(name: str) -> bool:
    """Whether the row's model reads token by token in a way of its own."""
    model = zoo.row(name).model
    return model is not None and MODELS[model].advance is not LanguageModel.advance


STATEFUL = [name for name in rows() if carries(name) and name not in GROWING]

READ_ANEW = {"count", "ngram", "latent-markov", "autoencoder"}
"""Families whose states are a few tokens to look back at, or the code of a whole prefix."""

RECURRENT: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in STATEFUL),
    *(("recurrent_lm", {"cell": cell, "starts": 2}) for cell in CELLS),
    ("recurrent_lm", {"norm": "time_std_causal"}),
    ("recurrent_lm", {"num_layers": 3, "starts": 2}),
    ("gru_vae", {"norm": "time_std_causal", "cell": "lstm"}),
    ("seq2seq_dot_attention", {"bidirectional": True}),
]

ATTENTION: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in GROWING),
    ("transformer_encdec", {"norm": "pre", "positions": "learned"}),
    *(("transformer_decoder", {"positions": kind}) for kind in ("concat", "learned", "none")),
    ("star_transformer_causal", {"relay": False}),
    ("set_transformer_causal", {"points": 0}),
]

SOURCE_READERS = {
    "seq2seq": "source_embedding|encoder",
    "seq2seq_dot_attention": "source_embedding|encoder|backward_encoder|fold",
    "transformer_encdec": r"source_|body\.encoder|body\.decoder\.\d+\.attention\.(key|value)",
}
"""The parameters that meet the source and no target, by how their names begin."""


@pytest.fixture(autouse=True)
def by_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written is counted in operations of torch, which compiled sweeps are none of."""
    monkeypatch.setattr(blas, "FOUND", False)


def test_a_row_carries_the_state_that_it_lists() -> None:
    listed = [name for name in rows() if tiny(name).state_size is not None]
    assert [name for name in listed if zoo.row(name).family not in READ_ANEW] == STATEFUL


@pytest.mark.parametrize(("name", "fields"), RECURRENT)
def test_a_recurrence_pays_the_same_for_every_token(name: str, fields: dict[str, Any]) -> None:
    model = tiny(name, length=STEPS + 1, **fields)
    first, second, *later = numbers_by_step(model, STEPS, *source_of(model))
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
    given = source_of(model)
    _, second, *later = vectors_by_step(model, STEPS, *given)
    assert any("key" in name for name in second)
    assert all(step == second for step in later)
    # What is left to grow with the prefix is looking at it: one more key each time.
    paid = numbers_by_step(model, STEPS, *given)[1:]
    growth = [other - one for one, other in pairwise(paid)]
    assert len(set(growth)) == 1


@pytest.mark.parametrize("name", ["gpt", "transformer_encdec"])
def test_a_decoder_sees_only_the_new_token(name: str) -> None:
    model = tiny(name, length=STEPS + 1)
    for step in vectors_by_step(model, STEPS, *source_of(model)):
        assert set(step.values()) == {2}  # two sequences


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        *((name, {}) for name in SOURCE_READERS),
        ("seq2seq", {"cell": "lstm"}),
        ("seq2seq_dot_attention", {"bidirectional": True}),
        ("transformer_encdec", {"norm": "pre", "positions": "learned"}),
    ],
)
def test_a_source_is_read_before_the_first_token_and_never_again(
    name: str, fields: dict[str, Any]
) -> None:
    """Its reader is spoilt once it has read: only who reads again can see that."""
    model = tiny(name, **fields)
    given, token = source_of(model.eval()), torch.tensor([START, START])
    carried, plain = model.begin(2, *given), LanguageModel.begin(model, 2, *given)
    _, second = model.advance(carried, token)
    expected = [model.advance(one, token)[0] for one in (carried, second)]
    for parameter, values in model.named_parameters():
        if re.match(SOURCE_READERS[name], parameter):
            values.fill_(torch.nan)
    assert LanguageModel.advance(model, plain, token)[0].isnan().all()
    for one, dense in zip((carried, second), expected, strict=True):
        assert model.advance(one, token)[0].equal(dense)


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
