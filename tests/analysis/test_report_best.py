"""Which row of a table the page questions and draws from: it neither leaks nor counts."""

import re
from pathlib import Path

import pytest

from lmzoo.analysis.subprocess_cli import Answer
from lmzoo.cli import report

COUNT = {"name": "ngram_count", "order": 5}


@pytest.fixture
def asked(monkeypatch):
    """What the page asks of the library: runs it draws from, models it audits."""
    found = []

    def sample(run, *, data_dir=None):
        found.append(run.name)
        return Answer("python -m lmzoo sample", "a dog", ok=True)

    def audit(config):
        found.append(config["run"])
        return Answer("python -m lmzoo audit", "no answer", ok=False), None

    monkeypatch.setattr(report, "samples", sample)
    monkeypatch.setattr(report, "audit", audit)
    monkeypatch.setattr(report, "curves", lambda *_: {})  # they take a second
    return found


def section(made, name: str) -> str:
    """The text of one section of the page."""
    text = report.render_report(Path(made.write()))
    body = text.split(f"<h2>{name}</h2>")[1].split("</section>")[0]
    return re.sub(r"<[^>]*>", "", body)


def test_the_first_is_questioned_without_a_word_of_why(made, asked):
    made.point("full", [2.0, 2.1])
    made.point("part", [1.0, 1.1], leaks="sees itself", score="reconstruction")
    made.point("count", [3.0, 3.0], model=COUNT)
    assert "the best, cut full, questioned anew:" in section(made, "Audit")
    assert set(asked) == {"full-confirm-1"}
    assert "cut full, token loss 2.0500:" in section(made, "Samples")


def test_a_winner_that_leaks_is_passed_over(made, asked):
    made.point("part", [1.0, 1.1], leaks="sees itself")
    made.point("full", [2.0, 2.1])
    said = "cut full (rank 2, behind cut part, which leaks)"
    assert f"{said}, token loss 2.0500:" in section(made, "Samples")
    assert f"the best, {said}, questioned anew:" in section(made, "Audit")
    assert set(asked) == {"full-confirm-1"}


def test_a_winner_that_counts_is_passed_over(made, asked):
    made.point("part", [1.5, 1.6], leaks="sees itself")
    made.point("count", [1.0, 1.0], model=COUNT)
    made.point("full", [2.0, 2.1])
    made.point("worse", [2.5, 2.6])
    said = "cut full (rank 3, behind cut count, which counts, and cut part, which leaks)"
    assert f"{said}, token loss 2.0500:" in section(made, "Samples")
    assert set(asked) == {"full-confirm-1"}


def test_each_table_has_its_own(made, asked):
    made.point("full", [2.0, 2.1])
    made.point("count", [1.0, 1.0], model=COUNT)
    made.point("noisy", [1.5, 1.6], score="bound")
    section(made, "Audit")
    assert set(asked) == {"full-confirm-1", "noisy-confirm-1"}


def test_where_every_row_leaks_or_counts_the_page_says_so(made, asked):
    made.point("part", [1.0, 1.1], leaks="sees itself")
    made.point("count", [2.0, 2.0], model=COUNT)
    made.point("full", [None, None])  # diverged, so it is not ranked
    for name in ("Audit", "Samples"):
        text = section(made, name)
        assert text.count("no row to question or to draw from") == 1
        assert "vocabulary 30, length 20: no row" in text
    assert asked == []
