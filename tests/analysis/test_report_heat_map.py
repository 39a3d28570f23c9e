"""The page of a factorial holds its heat map, drawn; that of another study holds none."""

import re

import pytest

from lmzoo.cli import report
from tests.analysis import factorial
from tests.analysis.browser import look


def loss(cuts, seed):
    """Cutting the gate's two inputs costs more together than each alone."""
    gate = {"input_to_gate", "state_to_gate"}
    return 3 + 0.5 * len(cuts) + 0.25 * (gate <= set(cuts)) + seed * (1 + 0.001 * len(cuts))


@pytest.fixture
def bare(monkeypatch):
    """The page without its curves, which take a second."""
    monkeypatch.setattr(report, "curves", lambda *_: {})


def interactions(made) -> str:
    """The section, or nothing."""
    text = report.render_report(made.write(), ask=False)
    found = re.search(r'<section id="interactions">.*?</section>', text, re.DOTALL)
    return found.group() if found else ""


def test_a_browser_lays_out_the_drawn_map(made):
    factorial.study(made, factorial.full(2).tolist(), loss)
    made.run("wild type", 9, 3.0, model={"name": "m", "cell": {"name": "mgu", "cuts": []}})
    text = report.render_report(made.path, ask=False)
    ids = re.findall(r'\bid="([^"]*)"', text)
    assert len(ids) == len(set(ids))  # a legend's colours are looked up in the whole page
    place = made.path / "report.html"
    place.write_text(text, encoding="utf-8")
    seen = look(place)
    assert (seen.asked, seen.complaints) == ([], [])
    shown = seen.text.split("Interactions\n")[-1].split("Audit\n")[0]
    for words in ("token loss, means over 3 seeds", "+0.63", "+0.25", "state_to_gate"):
        assert words in shown
    box = seen.figures[-1]
    assert (box["width"] > 200, box["height"] > 150) == (True, True)


@pytest.mark.usefixtures("bare")
def test_the_map_is_of_the_metric_asked_for(made):
    factorial.study(made, factorial.full(2).tolist(), loss)
    text = report.render_report(made.path, metric="sentence", ask=False)
    assert "sentence loss, means over 3 seeds" in text
    assert text.count(">+0.13<") == 2
    assert ">+0.25<" not in text


@pytest.mark.usefixtures("bare")
def test_a_file_that_someone_left_is_shown_instead(made):
    factorial.study(made, factorial.full(2).tolist(), loss)
    (made.path / "epistasis.svg").write_text("<svg/>")
    body = interactions(made)
    assert 'src="data:image/svg+xml;base64,' in body
    assert "means over 3 seeds" not in body


@pytest.mark.usefixtures("bare")
def test_mutants_that_lack_a_seed_are_counted(made):
    factorial.study(made, factorial.full(2).tolist(), loss)
    torn = {"name": "m", "cell": {"name": "mgu", "cuts": ["write"]}}
    made.point("torn", [3.0, None, 3.1], model=torn)
    assert "mgu: mutants left out, as a seed is missing: 1 " in interactions(made)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    "patterns",
    [
        pytest.param([[0, 0]], id="a wild type alone"),
        pytest.param([[0, 0], [1, 1]], id="no two that differ in one switch"),
    ],
)
def test_what_has_no_effects_has_no_map(made, patterns):
    factorial.study(made, patterns, loss)
    assert interactions(made) == ""


@pytest.mark.usefixtures("bare")
def test_one_seed_and_no_effect_are_drawn_as_well(made):
    factorial.study(made, factorial.full(1).tolist(), lambda cuts, seed: 3.0, seeds=1)
    assert "+0.00 ·" in interactions(made)
