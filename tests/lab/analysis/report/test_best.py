"""The best model of a table, which the page audits and samples: no leak, no count model."""

import re
from pathlib import Path

import pytest

from lmzoo.lab.analysis.report import best, page
from lmzoo.lab.analysis.report.best import CommandResult

COUNT = {"name": "ngram_count", "order": 5}


@pytest.fixture
def used_runs(monkeypatch):
    """The runs that the page samples from or audits."""
    runs = []

    def sample(run, *, data_dir=None):
        runs.append(run.name)
        return CommandResult("python -m lmzoo sample", "a dog", ok=True)

    def audit(config, _):
        runs.append(config["run"])
        return CommandResult("python -m lmzoo audit", "no output", ok=False), None

    monkeypatch.setattr(best, "draw_samples", sample)
    monkeypatch.setattr(best, "audit_model", audit)
    monkeypatch.setattr(page, "curve_charts", lambda *_, **__: {})  # they take a second
    return runs


def section(toy, name: str) -> str:
    """Return the text of one section of the page."""
    text = page.render_report(Path(toy.write()))
    body = text.split(f">{name}</h2>")[1].split("</section>")[0]
    return re.sub(r"<[^>]*>", "", body)


def test_the_first_row_is_used_without_a_reason(toy, used_runs):
    toy.add_point("full", [2.0, 2.1])
    toy.add_point("part", [1.0, 1.1], leaks="sees itself", score="reconstruction")
    toy.add_point("count", [3.0, 3.0], model=COUNT)
    assert "best model, cut full, audited again:" in section(toy, "Audit")
    assert set(used_runs) == {"full-confirm-1"}
    assert "cut full, token loss 2.0500:" in section(toy, "Samples")


def test_a_first_row_that_leaks_is_skipped(toy, used_runs):
    toy.add_point("part", [1.0, 1.1], leaks="sees itself")
    toy.add_point("full", [2.0, 2.1])
    text = "cut full (rank 2, behind cut part (leaks))"
    assert f"{text}, token loss 2.0500:" in section(toy, "Samples")
    assert f"best model, {text}, audited again:" in section(toy, "Audit")
    assert set(used_runs) == {"full-confirm-1"}


def test_a_first_row_that_is_a_count_model_is_skipped(toy, used_runs):
    toy.add_point("part", [1.5, 1.6], leaks="sees itself")
    toy.add_point("count", [1.0, 1.0], model=COUNT)
    toy.add_point("full", [2.0, 2.1])
    toy.add_point("worse", [2.5, 2.6])
    text = "cut full (rank 3, behind cut count (a count model), cut part (leaks))"
    assert f"{text}, token loss 2.0500:" in section(toy, "Samples")
    assert set(used_runs) == {"full-confirm-1"}


def test_each_table_has_its_own_best_model(toy, used_runs):
    toy.add_point("full", [2.0, 2.1])
    toy.add_point("count", [1.0, 1.0], model=COUNT)
    toy.add_point("noisy", [1.5, 1.6], score="bound")
    section(toy, "Audit")
    assert set(used_runs) == {"full-confirm-1", "noisy-confirm-1"}


def test_a_table_without_a_best_model_says_so(toy, used_runs):
    toy.add_point("part", [1.0, 1.1], leaks="sees itself")
    toy.add_point("count", [2.0, 2.0], model=COUNT)
    toy.add_point("full", [None, None])  # diverged, so it is not ranked
    for name in ("Audit", "Samples"):
        text = section(toy, name)
        assert text.count("no model to audit or sample") == 1
        assert "sequences of up to 20 tokens: no model" in text
    assert used_runs == []
