"""The ranking on a phone: the answer of each row is visible without scrolling."""

from pathlib import Path

from lmzoo.lab.analysis.report import page, render_report
from tests.lab.analysis.browser import browse

RECORDS = Path(__file__).parents[4] / "docs/results/records/reference-words.parquet"
WIDTH = 390
RIGHT_EDGES = """() => {
  const table = document.querySelector("table.sortable");
  const names = [...table.querySelectorAll("thead th")].map(x => x.textContent.trim());
  const rows = [...table.querySelectorAll("tbody tr")];
  const edge = name => Math.max(
    ...rows.map(row => row.children[names.indexOf(name)].getBoundingClientRect().right));
  return ["point", "verdict", "difference"].map(edge);
}"""


def test_verdict_and_difference_are_on_the_screen(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "curve_charts", lambda *_, **__: {})
    path = tmp_path / "report.html"
    path.write_text(render_report(RECORDS), encoding="utf-8")
    with browse(path, width=WIDTH) as tab:
        point, verdict, difference = tab.evaluate(RIGHT_EDGES)
    assert point < verdict < difference <= WIDTH
