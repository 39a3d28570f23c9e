"""The script of the site: the rows of the atlas are filtered and sorted in the browser."""

import re

import markdown
import polars as pl
import pytest

from tests.docs.pages import ROOT
from tests.lab.analysis.browser import launched

pytestmark = pytest.mark.slow
ATLAS = pl.read_parquet(ROOT / "docs/results/atlas.parquet")
ROWS = "[...document.querySelector('article table').tBodies[0].rows]"


@pytest.fixture(scope="module")
def atlas(tmp_path_factory):
    text = (ROOT / "docs/results/atlas.md").read_text(encoding="utf-8")
    body = markdown.markdown(text, extensions=["tables", "md_in_html"])
    script = (ROOT / "docs/assets/site.js").read_text(encoding="utf-8")
    page = tmp_path_factory.mktemp("site") / "atlas.html"
    html = f"<meta charset=utf-8><article>{body}</article><script>{script}</script>"
    page.write_text(html, encoding="utf-8")
    with launched() as browser:
        opened = browser.new_page()
        opened.goto(page.as_uri())
        yield opened
        browser.close()


def column(page, number):
    return page.evaluate(f"{ROWS}.map((row) => row.cells[{number}].textContent)")


def test_words_of_the_field_hide_the_other_rows(atlas):
    atlas.fill("#rows", "mamba captions Worse")
    shown = atlas.evaluate(f"{ROWS}.filter((row) => !row.hidden).map((row) => row.textContent)")
    assert 0 < len(shown) < ATLAS.height
    assert all({"mamba", "captions", "worse"} <= {*re.findall("[a-z]+", text)} for text in shown)
    atlas.fill("#rows", "")
    assert atlas.evaluate(f"{ROWS}.filter((row) => !row.hidden).length") == ATLAS.height


def test_a_heading_sorts_numbers_as_numbers_and_words_as_words(atlas):
    button = atlas.get_by_role("button", name="difference")
    sign = str.maketrans("−", "-")
    for reverse in (False, True):
        button.click()
        numbers = [float(t.translate(sign).split()[0]) for t in column(atlas, 5) if t != "—"]
        assert numbers == sorted(numbers, reverse=reverse)
        assert len(numbers) == ATLAS["difference"].count()
    assert column(atlas, 5)[-1] == "—"
    atlas.get_by_role("button", name="corpus").click()
    names = column(atlas, 3)
    assert names == sorted(names, key=lambda name: name.replace("_", " "))
