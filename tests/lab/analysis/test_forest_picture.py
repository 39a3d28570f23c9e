"""The forest plot as a picture: the data of the report, in colours that can be seen."""

import re
import xml.etree.ElementTree as ET
from importlib.resources import files

import numpy as np
import pytest

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
from tests.lab.analysis.browser import browse
from tests.lab.analysis.recorded import PAGES, RECORDS, frame_of
from tests.lab.analysis.report.test_screens import CLIPPED

NAME = "gru_ablation-captions"


def test_what_cannot_be_drawn_is_said(toy):
    toy.add_points(full=[2.0, 2.01, 1.99], near=[2.1, 2.11, 2.09], blown=[2.1, 300.0, 2.1])
    toy.add_points(gone=[None, None, None], some=[2.2, None, 2.21])
    rows = {row["label"]: row for row in forest_rows(study_ranking(toy.write()).frame)}
    assert rows["cut blown"]["arrows"]
    assert "at" not in rows["cut blown"]
    assert rows["cut blown"]["note"] == "+99.4"
    assert rows["cut near"]["at"] == pytest.approx(0.1)
    assert rows["cut some"]["note"] == "1 of 3 seeds diverged"
    assert rows["cut gone"]["note"] == "no value: 3 of 3 seeds diverged"


def test_the_published_pictures_are_complete_and_follow_the_reader():
    for path in PAGES.glob("*-forest.svg"):
        text = path.read_text("utf-8")
        ET.fromstring(text)
        blocks = re.findall(r":root \{.*?\}", text)
        light, dark = (set(re.findall(r"--([\w-]+):", block)) for block in blocks)
        assert {own["colour"][6:-1] for own in GROUPS.values()} <= light
        assert set(re.findall(r"var\(--([\w-]+)\)", text)) <= light & dark
        assert "prefers-color-scheme: dark" in text
        assert not re.search(r"url\([^#]", text)


def test_a_label_beside_a_narrow_chart_has_two_lines_where_numbers_can_name_its_paths():
    paths = ("input_to_gate (0)", "gate_bias (2)", "state_to_candidate (4)", "candidate_bias (5)")
    label = "cut " + " + ".join(paths)
    narrow, wide = label_lines(label), label_lines(label, WIDE_LABEL)
    assert " ".join(narrow).replace("\xa0", " ") == "cut (0) + (2) + (4) + (5)"
    assert " ".join(wide).replace("\xa0", " ") == label
    other = "a long label without any number of a path, of more than two lines"
    assert " ".join(label_lines(other)) == other


def test_narrow_pictures_show_all_names_in_the_font_of_the_reader(browser, tmp_path):
    """Words of verdicts are as whole as the names of points."""
    name, paper, page = NAME, tmp_path / "forest.svg", tmp_path / "page.html"
    write_figure(RECORDS / f"{name}.parquet", paper, "3.3in", "token")
    part = frame_of(name).partition_by(TABLE_KEYS, maintain_order=True)[0]
    pictures = [forest_picture(part, narrow=True), paper.read_text("utf-8")]
    body = "".join(f'<div class="chart">{svg}</div>' for svg in pictures)
    page.write_text(f'<html data-drawn="yes"><meta charset="utf-8">{body}', "utf-8")
    with browse(page, 390, browser=browser) as tab:
        assert tab.locator("text=negligible").count() >= 2
        assert tab.evaluate(CLIPPED) == []


SEEN = 3.0
"""Least contrast of marks (WCAG 2.2)."""


BLIND = {
    "no red": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "no green": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "no blue": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
"""What people see of red, green and blue light (Machado et al. 2009)."""
LIGHT = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]


def linear(*colours: str) -> np.ndarray:
    rgb = np.array([[int(own[i : i + 2], 16) for i in (1, 3, 5)] for own in colours]) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(light: np.ndarray) -> np.ndarray:
    """Return CIE L*a*b*, in which a distance of 2 is seen."""
    x, y, z = (np.clip(light, 0, 1) @ np.transpose(LIGHT) / [0.9505, 1, 1.089]).T
    fx, fy, fz = (np.where(v > 0.008856, np.cbrt(v), 7.787 * v + 16 / 116) for v in (x, y, z))
    return np.stack([116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)], 1)


@pytest.mark.parametrize("kind", BLIND)
def test_colours_of_points_are_apart_for_people_who_see_fewer(kind):
    own = lab(linear(*PALETTE) @ np.transpose(BLIND[kind]))
    distances = np.linalg.norm(own[:, None] - own[None], axis=-1)
    assert distances[np.triu_indices(len(own), 1)].min() > 15


def test_a_grey_print_can_be_read():
    """Each verdict has a shape and fill of its own; colours of equal dashes differ in grey."""
    kinds = {(own["shape"], own["fill"] == "var(--bg)") for own in GROUPS.values()}
    assert len(kinds) == len(GROUPS)
    assert {SHOWN.get(verdict, verdict) for verdict in MEANINGS} <= GROUPS.keys()
    grey = lab(linear(*PALETTE))[:, 0]
    assert abs(grey[: len(DASHES)] - grey[len(DASHES) :]).min() > 10


def contrast(*colours: str) -> float:
    """Return the contrast of two colours, by their relative luminance."""
    low, high = sorted(linear(*colours) @ LIGHT[1])
    return (high + 0.05) / (low + 0.05)


def test_the_colours_of_marks_can_be_seen():
    css = files("lmzoo.lab.analysis.report").joinpath("page.css").read_text()
    for block in re.findall(r":root \{(.*?)\}", css, re.DOTALL):
        theme = dict(re.findall(r"--([\w-]+): (#\w+)", block))
        own = [theme[group["colour"][6:-1]] for group in GROUPS.values()]
        for colour in (*own, *PALETTE):
            assert contrast(colour, theme["bg"]) >= SEEN, colour
    assert len({*PALETTE}) == len(PALETTE) >= MANY
