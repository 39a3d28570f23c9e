"""`audit`, `budget` and `horizon` as a user types them."""

import json

import pytest

from lmzoo import zoo
from lmzoo.audit.causality import audit_verdict
from lmzoo.contract import MODELS
from lmzoo.data.open import open_corpus
from lmzoo.train.recipe import Recipe
from lmzoo.train.run import run_config


def test_an_honest_row_passes(lmzoo):
    code, out, _ = lmzoo("audit", "DLM46", "rnn_vae", "--json")
    first, second = json.loads(out)
    assert code == 0
    assert (first["name"], first["faults"], first["total"]) == ("mutable_mgu_mixture", [], None)
    assert second["future"] is None  # a bound makes no claim token by token
    assert first["mates"] == second["mates"] == 0.0


def test_a_leaking_setting_fails_and_says_why(lmzoo, monkeypatch):
    monkeypatch.setenv("COLUMNS", "150")
    code, out, _ = lmzoo("audit", "DLM46", "--set", "model.norm=time_std")
    assert code == 1
    assert "model.norm=time_std" in out
    assert "1 that should pass and do not" in out


def test_the_floor_is_trained_for_when_asked(lmzoo):
    code, out, _ = lmzoo(
        "audit", "DLM46", "seq2seq", "--iid", "1", "--set", "model.width=4", "--json"
    )
    plain, conditional = json.loads(out)
    assert code == 0
    assert plain["iid"]["steps"] == 1
    assert plain["iid"]["loss"] >= plain["iid"]["floor"]
    assert conditional["iid"] is None


@pytest.mark.parametrize("arguments", [(), ("DLM46", "--all")])
def test_rows_or_all_but_one_of_them(lmzoo, arguments):
    code, _, err = lmzoo("audit", *arguments)
    assert code == 2
    assert err == "error: audit wants the names of rows, or --all\n"


def test_what_all_means_is_every_row_and_every_published_leak(lmzoo, monkeypatch):
    few = ["gpt", "mutable_mgu_mixture"]
    monkeypatch.setattr(zoo, "names", lambda: few)
    code, out, _ = lmzoo("audit", "--all", "--json")
    cases = [(case["name"], case["variant"], bool(case["faults"])) for case in json.loads(out)]
    assert code == 0
    assert cases == [
        ("gpt", "", False),
        ("mutable_mgu_mixture", "", False),
        ("mutable_mgu_mixture", "published", True),
    ]


@pytest.mark.parametrize(("quiet", "lines"), [(0.0, 3), (1e9, 0)])
def test_where_there_is_no_terminal_a_line_tells_how_far_it_is(lmzoo, monkeypatch, quiet, lines):
    monkeypatch.setattr(zoo, "names", lambda: ["gpt", "mutable_mgu_mixture"])
    monkeypatch.setattr("lmzoo.cli.audit.QUIET", quiet)
    _, out, err = lmzoo("audit", "--all", "--json")
    told = [f"audited {done} of 3 configurations" for done in range(3)]
    assert err.splitlines() == told[:lines]
    assert len(json.loads(out)) == 3


def test_a_run_is_marked_by_measurement_not_by_declaration(monkeypatch):
    spec = {"name": "iid", "train": 4, "valid": 2, "test": 2}
    corpus, config = open_corpus(spec), zoo.config("DLM46", norm="time_std", width=6)
    honest = run_config(zoo.config("DLM46", width=6), Recipe(), corpus, spec, 0)
    assert honest["leaks"] == ""
    cls = MODELS["recurrent_lm"]
    monkeypatch.setattr(cls, "leaks", "")  # a model that does not own up
    found = run_config(config, Recipe(), corpus, spec, 0)
    assert "with a later token" in found["leaks"]
    assert found["leaks"] == audit_verdict(config)


def test_the_budget_of_noise(lmzoo):
    code, out, _ = lmzoo("budget", "iid", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["gain"] == pytest.approx(found["unigram"] - found["floor"])
    assert lmzoo("budget", "iid")[1].count("nats") == 1


def test_the_horizon_of_rows(lmzoo):
    code, out, _ = lmzoo("horizon", "lstm_lm", "gru", "--set", "model.width=8", "--json")
    found = json.loads(out)
    assert code == 0
    assert set(found) == {"lstm_lm", "gru"}
    assert len(found["gru"]) == len(found["lstm_lm"]) > 5


def test_a_row_without_a_state_has_no_horizon(lmzoo):
    code, _, err = lmzoo("horizon", "gpt")
    assert code == 2
    assert err.startswith("error: transformer_decoder carries no state")
