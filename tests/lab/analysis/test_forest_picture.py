"""The forest plot as a picture: the data of the report, in colours that can be seen."""

import re
import xml.etree.ElementTree as ET
from collections import Counter
from importlib.resources import files

import numpy as np
import pytest

from lmzoo.lab.analysis.ranking import TABLE_KEYS
from lmzoo.lab.analysis.report.colours import (
    BASELINE,
    COLOURS,
    MANY,
    PALETTE,
    WIDE_LABEL,
    label_lines,
)
from lmzoo.lab.analysis.report.figure import write_figure
from lmzoo.lab.analysis.report.forest import forest_picture, forest_rows
from tests.lab.analysis.browser import browse
from tests.lab.analysis.recorded import PAGES, RECORDS, frame_of
from tests.lab.analysis.report.test_screens import CLIPPED

NAMES = ("gru_ablation-captions", "reference-words", "recall-mqar")


@pytest.mark.parametrize("name", NAMES)
def test_every_point_has_the_colour_of_its_verdict(name):
    part = frame_of(name).partition_by(TABLE_KEYS, maintain_order=True)[0]
    svg = forest_picture(part)
    (symbols,) = re.findall(r'<g class="mark-symbol role-mark.*?</g>', svg)
    marks = re.findall(r'fill="(var\(--[\w-]+\))"', symbols)
    far = re.search(r"not shown: ([^<\"]*)", svg)  # baselines far from the other points
    expected = Counter(COLOURS[row["group"]] for row in forest_rows(part))
    expected[COLOURS[BASELINE]] -= len(re.findall(r" [+−]\d", far[1])) if far else 0
    assert Counter(marks) == +expected
    assert f"±{part['margin'].item(0):g} nats" in svg


def test_the_published_pictures_are_complete_and_follow_the_reader():
    for path in PAGES.glob("*-forest.svg"):
        text = path.read_text("utf-8")
        ET.fromstring(text)
        blocks = re.findall(r":root \{.*?\}", text)
        light, dark = (set(re.findall(r"--([\w-]+):", block)) for block in blocks)
        assert {name[6:-1] for name in COLOURS.values()} <= light
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
    """The first file of records has six verdicts, "worse (size open)" among them."""
    name, paper, page = NAMES[0], tmp_path / "forest.svg", tmp_path / "page.html"
    write_figure(RECORDS / f"{name}.parquet", paper, 1, "token")
    part = frame_of(name).partition_by(TABLE_KEYS, maintain_order=True)[0]
    pictures = [forest_picture(part, narrow=True), paper.read_text("utf-8")]
    body = "".join(f'<div class="chart">{svg}</div>' for svg in pictures)
    page.write_text(f'<html data-drawn="yes"><meta charset="utf-8">{body}', "utf-8")
    with browse(page, 390, browser=browser) as tab:
        assert tab.locator("text=worse (size open)").count() == 2
        assert tab.evaluate(CLIPPED) == []


SEEN = 3.0
"""Least contrast of marks (WCAG 2.2)."""


def contrast(*colours: str) -> float:
    """Return the contrast of two colours, by their relative luminance."""
    rgb = np.array([[int(own[i : i + 2], 16) for i in (1, 3, 5)] for own in colours]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    low, high = sorted(linear @ [0.2126, 0.7152, 0.0722])
    return (high + 0.05) / (low + 0.05)


def test_the_colours_of_marks_can_be_seen():
    css = files("lmzoo.lab.analysis.report").joinpath("page.css").read_text()
    for block in re.findall(r":root \{(.*?)\}", css, re.DOTALL):
        theme = dict(re.findall(r"--([\w-]+): (#\w+)", block))
        own = [theme[re.sub(r"var\(--(.*)\)", r"\1", name)] for name in COLOURS.values()]
        for colour in (*own, *PALETTE):
            assert contrast(colour, theme["bg"]) >= SEEN, colour
    assert len({*PALETTE}) == len(PALETTE) >= MANY


def test_a_contrast_is_that_of_the_standard():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
