"""The page of a factorial study has a heat map; the page of another study has none."""

import re

import pytest

from lmzoo.lab.analysis.report import page, render_report
from tests.lab.analysis.browser import open_page
from tests.lab.analysis.factorial import add_mutants, full

SINGLES = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]]


def loss(cuts, seed):
    """The cuts of the gate's two inputs have an interaction of 0.25."""
    gate = {"input_to_gate", "state_to_gate"}
    return 3 + 0.5 * len(cuts) + 0.25 * (gate <= set(cuts)) + seed * (1 + 0.001 * len(cuts))


@pytest.fixture(autouse=True)
def _no_curves(monkeypatch):
    """The page without its curves, which take a second."""
    monkeypatch.setattr(page, "_curves", lambda *_: [])


def interactions(toy, **options) -> str:
    """Return the section, or an empty string."""
    text = render_report(toy.write(), **options)
    result = re.search(r'<section id="interactions".*?</section>', text, re.DOTALL)
    return result.group() if result else ""


def test_a_browser_shows_the_heat_map(browser, toy):
    add_mutants(toy, full(2).tolist(), loss)
    path = toy.path / "report.html"
    path.write_text(render_report(toy.path), encoding="utf-8")
    loaded = open_page(path, browser)
    assert (loaded.requests, loaded.messages) == ([], [])
    shown = loaded.text.split("Interactions\n")[-1].split("Audit\n")[0]
    for part in ("Means over 3 seeds of the token loss", "+0.63", "+0.25", "state_to_gate"):
        assert part in shown
    box = loaded.figures[-1]
    assert (box["width"] > 200, box["height"] > 150) == (True, True)


def test_the_heat_map_is_of_the_selected_metric_and_counts_what_lacks_a_seed(toy):
    add_mutants(toy, full(2).tolist(), loss)
    cell = {"name": "m", "cell": {"name": "mgu", "cuts": ["write"]}}
    toy.add_point("partial", [3.0, None, 3.1], model=cell)
    text = interactions(toy, metric="sentence")
    assert "Means over 3 seeds of the sentence loss" in text
    assert "mgu: mutants left out because a seed is missing: 1 " in text
    assert text.count('"text": "+0.13"') == 2
    assert '"text": "+0.25"' not in text


@pytest.mark.parametrize(
    "patterns",
    [
        pytest.param([[0, 0]], id="a wild type alone"),
        pytest.param(full(1).tolist(), id="one switch"),
        pytest.param([[0, 0], [1, 1]], id="no two that differ in one switch"),
        pytest.param(SINGLES, id="few of the interactions"),
    ],
)
def test_a_study_without_interactions_has_no_heat_map(toy, patterns):
    add_mutants(toy, patterns, loss)
    assert interactions(toy) == ""


def test_an_effect_of_zero_with_one_seed_is_shown(toy):
    add_mutants(toy, full(2).tolist(), lambda cuts, seed: 3.0, seeds=1)
    assert '"(+0.00)"' in interactions(toy)
