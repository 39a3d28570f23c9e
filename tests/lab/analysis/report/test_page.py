"""A study's page: complete, escaped, and self-contained in a browser without a network."""

import base64
import gzip
import json
import re
from html import escape

import polars as pl
import pytest

from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.render import TextTable, render
from lmzoo.lab.analysis.report import render_report
from lmzoo.lab.analysis.report.html import equation, html_table
from tests.lab.analysis.browser import browse
from tests.lab.analysis.recorded import page_of, report_of

MAIN = "gru_ablation-captions"
SECTIONS = ("Ranking", "Learning curves", "The search")


@pytest.fixture
def study(toy):
    toy.study_json["question"] = "Is a < b & 'c' <script>alert(1)</script>?"
    toy.study_json["data"] = {"warnings": ["9 of 10 lines are cut"]}
    toy.add_points("full: 2.0 2.1 2.3", parameters=100)
    toy.add_points("part: 2.5 - 2.7", leaks="sees <itself>")
    toy.add_run("full", 10, 3.0, setting={"lr": 0.001})
    return toy.write()


def unpacked(found: str) -> str:
    return gzip.decompress(base64.b64decode(found)).decode()


def specs(text: str) -> list[dict]:
    found = re.findall(r'role="img"[^>]*></div><script type="text/plain">(.*?)</script>', text)
    return [json.loads(unpacked(spec)) for spec in found]


def markup(text: str) -> str:
    return re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)


def stored(text: str) -> str:
    data = re.search(r'class="file"[^>]*>[^<]*</a><script type="text/plain">(.*?)</script>', text)
    assert data is not None
    return unpacked(data[1])


def test_the_page_has_every_section_and_loads_nothing(study):
    text = render_report(study)
    for part in (*SECTIONS, "Reproduce"):
        assert f">{part}</h2>" in text
    assert len(text) < 1_000_000
    # The charts of the study.
    assert len(specs(text)) == 5
    page = markup(text)
    assert "Is a &lt; b &amp; &#39;c&#39; &lt;script&gt;" in page
    assert "cut part: sees &lt;itself&gt;" in page
    assert page.count("WARNING: 9 of 10 lines are cut") == 1
    links = re.findall(r'(?:src|href|xlink:href)="([^"]*)"', page)
    assert all(link.startswith(("#", "data:")) for link in links)
    assert not re.search(r"url\((?!#|&quot;#)", page)


def test_without_the_extra_the_page_has_all_but_the_charts(study, no_charts):
    text = render_report(study)
    assert specs(text) == []
    assert "The page has no charts: the extra `figures` of lmzoo draws them." in markup(text)
    assert "vegaEmbed =" not in text
    assert stored(text) == render(study_ranking(study), "csv")


def test_the_page_has_the_cells_and_the_file_of_the_ranking():
    text = page_of(MAIN)
    ranked = report_of(MAIN)
    assert stored(text) == render(ranked, "csv")
    for table in ranked.tables:
        for row in table.rows:
            for name, cell in zip(table.header, row, strict=True):
                assert f">{escape(cell)}<" in text, name


def test_every_chart_has_a_tooltip(study):
    for text in (page_of(MAIN), render_report(study)):
        for spec in specs(text):
            assert '"tooltip"' in json.dumps(spec), spec["description"]


def test_the_table_shows_what_each_cut_replaces():
    page = markup(page_of(MAIN))
    replaced = "carry (6): (1 − f<sub>t</sub>) ⊙ h<sub>t-1</sub> → 0"
    assert f'cut carry (6)<span class="equation">{replaced}</span></td>' in page
    labels = report_of(MAIN).frame.filter(~pl.col("reference"), pl.col("parameters") > 0)
    assert all(lines for lines in labels["equations"].to_list())


def test_an_equation_has_subscripts_and_no_markup_of_its_own():
    found = equation("a_b (1): h_{t-1} W_hh <b>")
    assert found == "a_b (1): h<sub>t-1</sub> W<sub>hh</sub> &lt;b&gt;"


def test_only_a_verdict_has_the_colour_of_a_verdict():
    names = ("point", "verdict")
    row = ("worse off", "worse (size open)")
    page = html_table(TextTable("t", names, [row], frozenset(names)))
    assert '<td class="text point">worse off' in page
    assert '<td class="text worse">worse (size open)' in page


def test_the_marked_settings_of_the_search_are_those_of_the_table():
    (search,) = [spec for spec in specs(page_of(MAIN)) if "every setting" in spec["description"]]
    chosen = {}
    for rows in search["datasets"].values():
        for row in rows:
            if row.get("chosen"):
                chosen[row["label"]] = {"recipe.lr": row["value"]}
    # A model of counts, without parameters, has no rate.
    ranked = report_of(MAIN).frame.filter(pl.col("parameters") > 0)
    settings = map(json.loads, ranked["setting"])
    assert chosen == dict(zip(ranked["label"], settings, strict=True))


def test_a_browser_shows_sorts_and_filters_the_page_without_requests(browser, study):
    path = study / "report.html"
    path.write_text(render_report(study), encoding="utf-8")
    with browse(path, browser=browser, opened=True) as tab:
        assert tab.requests == [path.resolve().as_uri()]
        assert tab.messages == []
        assert "<script>alert(1)</script>" in tab.title()
        assert tab.evaluate("document.documentElement.scrollWidth") <= 1100
        boxes = tab.eval_on_selector_all(".chart svg", "all => all.map(x => x.clientHeight)")
        assert len(boxes) == 5
        assert min(boxes) > 40

        def labels() -> list[str]:
            rows = "table.sortable >> nth=0 >> tbody tr:visible td.point"
            return tab.locator(rows).all_inner_texts()

        charts = tab.eval_on_selector_all(".chart", "all => all.map(x => x.ariaLabel)")
        assert "learning curves" in charts
        assert len(set(charts)) == 5
        before = labels()
        heading = tab.locator("table.sortable >> nth=0 >> th", has_text="point")
        for _ in range(2):
            heading.locator("button").click()
        assert heading.get_attribute("aria-sort") == "descending"
        assert labels() == sorted(before, reverse=True) != before
        tab.locator("input[type=search] >> nth=0").fill("part")
        assert labels() == ["cut part"]
