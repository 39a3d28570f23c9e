"""The page in a real browser, from phone to wide screen, light and dark."""

import functools
from importlib.resources import files

import pytest

from lmzoo.lab.analysis.report import render_report
from tests.lab.analysis.browser import browse as browse_page
from tests.lab.analysis.browser import launched
from tests.lab.analysis.recorded import page_of

SCREENS = [(390, "light"), (768, "dark"), (1440, "light")]
"""The width decides what overflows, the scheme what is hard to read."""
CLIPPED = """() => [...document.querySelectorAll(".chart svg")].flatMap((svg) => {
  const outer = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter((text) => {
    const box = text.getBoundingClientRect();
    return text.textContent.includes("…") || (box.width && (box.left < outer.left - 1
      || box.right > outer.right + 1 || box.top < outer.top - 1 || box.bottom > outer.bottom + 1));
  }).map((text) => text.textContent);
})"""
"""Labels of charts that leave their chart or are shortened."""
UNREADABLE = """() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const luminance = (colour) => {
    const [r, g, b] = parts(colour).map((x) => x / 255)
      .map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if ((parts(colour)[3] ?? 1) > 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const out = [];
  for (const element of document.body.querySelectorAll("*")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !element.getClientRects().length || element.closest("script, style")) continue;
    const style = getComputedStyle(element);
    const colour = element.ownerSVGElement ? style.fill : style.color;
    const [low, high] = [luminance(colour), luminance(behind(element))].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05);
    window.texts = (window.texts ?? 0) + 1;
    if (ratio < 4.5) out.push(`${element.textContent}: ${ratio.toFixed(2)}`);
  }
  return out;
}"""
"""Texts with a contrast below 4.5 to their background."""

POINT = ".mark-symbol.role-mark path"


@pytest.fixture(scope="module")
def browse():
    with launched() as browser:
        yield functools.partial(browse_page, browser=browser)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("pages") / "records.html"
    path.write_text(page_of("gru_ablation-captions"), encoding="utf-8")
    return path


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_nothing_overflows_is_clipped_or_hard_to_read(browse, page, width, scheme):
    with browse(page, width, scheme, opened=True) as tab:
        assert tab.evaluate("document.documentElement.scrollWidth") == width
        assert tab.evaluate(CLIPPED) == []
        assert tab.evaluate(UNREADABLE) == []
        assert tab.evaluate("window.texts") > 50


def test_a_long_name_leaves_room_for_the_verdict_on_a_phone(browse, toy):
    toy.add_points("full: 2.0 2.01 2.02")
    toy.add_point("x" * 80, [3.0, 3.01, 3.02])
    path = toy.path / "report.html"
    path.write_text(render_report(toy.path), encoding="utf-8")
    with browse(path, 390) as tab:
        box = tab.locator("td.worse").first.bounding_box()
        assert box["x"] + box["width"] < 390


def test_the_page_is_short_and_its_curves_have_names(browse, page):
    with browse(page, 1440) as tab:
        assert tab.evaluate("document.documentElement.scrollHeight") < 5000
        names = tab.locator("#learning-curves .mark-text text").all_text_contents()
        assert {"wild type", "cut carry (6)", "Kneser-Ney 5-gram"} < {*names}
        tab.locator("nav a", has_text="The search").click()
        tab.locator("#the-search .chart svg").wait_for()
    with browse(page, 390) as tab:
        assert tab.locator("#learning-curves .mark-text.role-mark text").count() == 0


@pytest.mark.parametrize(("width", "height", "rows"), [(1440, 900, 12), (390, 844, 6)])
def test_the_first_screen_has_the_answer_and_the_forest_plot(browse, page, width, height, rows):
    with browse(page, width) as tab:
        box = "x => { const b = x.getBoundingClientRect(); return [b.top, b.bottom]; }"
        answer = tab.locator("p.lead").evaluate(box)
        marks = tab.locator(".chart").first.locator(POINT).evaluate_all(f"all => all.map({box})")
        assert answer[1] < marks[0][0]
        assert sum(bottom < height for _, bottom in marks) >= rows


def test_each_chart_can_be_saved(browse, page):
    with browse(page, 1440, opened=True) as tab:
        links = tab.locator("figcaption a", has_text="save as SVG")
        assert links.count() == tab.locator(".chart").count() > 3
        with tab.expect_download() as saved:
            links.first.click()
        assert saved.value.path().read_text("utf-8").startswith("<svg")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(browse, page, scheme):
    pytest.importorskip("axe_playwright_python", reason="needs axe-playwright-python")
    script = files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
    with browse(page, 390, scheme, opened=True) as tab:
        tab.evaluate(script)
        found = tab.evaluate("axe.run().then((result) => result.violations)")
        assert [(rule["id"], rule["nodes"][0]["html"]) for rule in found] == []
