"""The forest plot as a picture: the data of the report, in colours that can be seen."""

import re
import xml.etree.ElementTree as ET
from importlib.resources import files

import numpy as np
import pytest
from scipy.spatial import distance

from lmzoo.lab.analysis.ranking import TABLE_KEYS
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.report.colours import (
    DASHES,
    GROUPS,
    MANY,
    PALETTE,
    WIDE_LABEL,
    label_lines,
)
from lmzoo.lab.analysis.report.figure import write_figure
from lmzoo.lab.analysis.report.forest import forest_picture, forest_rows
from lmzoo.lab.analysis.verdict_lines import MEANINGS
from lmzoo.lab.statistics.compared import SHOWN
from tests.cases import rows
from tests.lab.analysis.browser import browse
from tests.lab.analysis.recorded import PAGES, RECORDS, frame_of
from tests.lab.analysis.report.test_screens import CLIPPED

NAME = "gru_ablation-captions"


@pytest.fixture
def drawn(toy):
    """The rows of a forest plot by label."""
    toy.add_points(
        """
        full:  2.0  2.01   1.99
        near:  2.1  2.11   2.09
        blown: 2.1  300.0  2.1
        gone:  -    -      -
        some:  2.2  -      2.21
        """
    )
    frame = study_ranking(toy.write()).frame
    return {row["label"]: row for row in forest_rows(frame)}


def test_a_difference_stands_at_its_value(drawn):
    assert drawn["cut near"]["at"] == pytest.approx(0.1)


def test_a_difference_beyond_the_axis_is_an_arrow_with_its_number(drawn):
    blown = drawn["cut blown"]
    assert blown["arrows"]
    assert "at" not in blown
    # The mean of 2.1, 300 and 2.1, less 2.
    assert blown["note"] == "+99.4"


@pytest.mark.parametrize(
    ("label", "note"),
    [("cut some", "1 of 3 seeds diverged"), ("cut gone", "no value: 3 of 3 seeds diverged")],
)
def test_what_cannot_be_drawn_is_said(drawn, label, note):
    assert drawn[label]["note"] == note


@pytest.mark.parametrize("path", sorted(PAGES.glob("*-forest.svg")), ids=lambda path: path.stem)
def test_the_published_pictures_are_complete_and_follow_the_reader(path):
    text = path.read_text("utf-8")
    ET.fromstring(text)
    light, dark = re.findall(r":root \{.*?\}", text)
    of_both = names_in(light) & names_in(dark)
    assert names_in(light) >= set(map(variable, GROUPS.values()))
    assert of_both.issuperset(re.findall(r"var\(--([\w-]+)\)", text))
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"url\([^#]", text)


def names_in(block: str) -> set[str]:
    """Return the colours that a block of CSS defines."""
    return set(re.findall(r"--([\w-]+):", block))


def variable(group) -> str:
    """Return the name of the colour of a group of verdicts."""
    return group["colour"].removeprefix("var(--").removesuffix(")")


def text_of(lines) -> str:
    return " ".join(lines).replace("\xa0", " ")


PATHS = ("input_to_gate (0)", "gate_bias (2)", "state_to_candidate (4)", "candidate_bias (5)")
CUT = "cut " + " + ".join(PATHS)


def test_a_label_beside_a_narrow_chart_names_its_paths_by_numbers():
    assert text_of(label_lines(CUT)) == "cut (0) + (2) + (4) + (5)"


@pytest.mark.parametrize(
    ("label", "width"),
    [(CUT, [WIDE_LABEL]), ("a long label without any number of a path, of three lines", [])],
    ids=["wide", "without numbers"],
)
def test_a_label_is_whole_where_it_has_room_or_no_numbers(label, width):
    assert text_of(label_lines(label, *width)) == label


def test_narrow_pictures_show_all_names_in_the_font_of_the_reader(browser, tmp_path):
    """Words of verdicts are as whole as the names of points."""
    paper = tmp_path / "forest.svg"
    write_figure(RECORDS / f"{NAME}.parquet", paper, "3.3in", "token")
    part, *_ = frame_of(NAME).partition_by(TABLE_KEYS, maintain_order=True)
    pictures = [forest_picture(part, narrow=True), paper.read_text("utf-8")]
    body = "".join(f'<div class="chart">{svg}</div>' for svg in pictures)
    page = tmp_path / "page.html"
    page.write_text(f'<html data-drawn="yes"><meta charset="utf-8">{body}', "utf-8")
    with browse(page, 390, browser=browser) as tab:
        assert tab.locator("text=negligible").count() >= 2
        assert tab.evaluate(CLIPPED) == []


SEEN = 3.0
"""Least contrast of marks (WCAG 2.2)."""
BLIND = rows("lab/analysis/cases.toml", "blind")
XYZ = np.array(rows("lab/analysis/cases.toml", "xyz"))
"""Of red, green and blue light."""
WHITE = np.array([0.9505, 1, 1.089])


def linear(colour: str) -> np.ndarray:
    """Return the red, green and blue light of a colour #rrggbb."""
    parts = bytes.fromhex(colour.removeprefix("#"))
    rgb = np.array(list(parts)) / 255
    # The curve of sRGB: a line near black.
    dark = rgb / 12.92
    bright = ((rgb + 0.055) / 1.055) ** 2.4
    return np.where(rgb <= 0.04045, dark, bright)


LIGHT = np.array(list(map(linear, PALETTE)))


def lab(light: np.ndarray) -> np.ndarray:
    """Return CIE L*a*b*, in which a distance of 2 is seen."""
    xyz = np.clip(light, 0, 1) @ XYZ.T / WHITE
    dark = 7.787 * xyz + 16 / 116
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), dark).T
    lightness = 116 * y - 16
    red_green = 500 * (x - y)
    yellow_blue = 200 * (y - z)
    return np.stack([lightness, red_green, yellow_blue], 1)


@pytest.mark.parametrize("kind", BLIND)
def test_colours_of_points_are_apart_for_people_who_see_fewer(kind):
    seen = lab(LIGHT @ np.transpose(BLIND[kind]))
    assert distance.pdist(seen).min() > 15


def test_each_verdict_has_a_shape_and_fill_of_its_own():
    kinds = set()
    for group in GROUPS.values():
        is_empty = group["fill"] == "var(--bg)"
        kinds.add((group["shape"], is_empty))
    assert len(kinds) == len(GROUPS)
    for verdict in MEANINGS:
        assert SHOWN.get(verdict, verdict) in GROUPS


def test_colours_of_equal_dashes_differ_in_a_grey_print():
    grey = lab(LIGHT)[:, 0]
    solid = grey[: len(DASHES)]
    dashed = grey[len(DASHES) :]
    assert abs(solid - dashed).min() > 10


def luminance(colour: str) -> float:
    return float(linear(colour) @ XYZ[1])


def contrast(colour: str, other: str) -> float:
    low, high = sorted(map(luminance, (colour, other)))
    return (high + 0.05) / (low + 0.05)


CSS = files("lmzoo.lab.analysis.report").joinpath("page.css").read_text()
THEMES = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)


@pytest.mark.parametrize("block", THEMES, ids=range(len(THEMES)))
def test_the_colours_of_marks_can_be_seen(block):
    theme = dict(re.findall(r"--([\w-]+): (#\w+)", block))
    marks = [theme[variable(group)] for group in GROUPS.values()]
    for colour in marks + list(PALETTE):
        assert contrast(colour, theme["bg"]) >= SEEN, colour


def test_many_points_have_different_colours():
    assert len({*PALETTE}) == len(PALETTE) >= MANY
