"""The marks of charts can be seen, light and dark; `test_screens.py` has the texts of pages."""

import re
from importlib.resources import files

import pytest

from lmzoo.lab.analysis.report.colours import COLOURS, MANY, PALETTE

SEEN = 3.0
"""Least contrast of marks (WCAG 2.2)."""
Colour = tuple[float, float, float]


def themes() -> list[dict[str, str]]:
    css = files("lmzoo.lab.analysis.report").joinpath("page.css").read_text()
    light, dark = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    return [dict(re.findall(r"--([\w-]+): (#\w+)", text)) for text in (light, dark)]


def rgb(colour: str) -> Colour:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return red, green, blue


def luminance(colour: Colour) -> float:
    linear = [
        x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4
        for x in (part / 255 for part in colour)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: Colour, second: Colour) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def test_the_colours_of_marks_can_be_seen():
    for theme in themes():
        own = [theme[re.sub(r"var\(--(.*)\)", r"\1", name)] for name in COLOURS.values()]
        for colour in (*own, *PALETTE):
            assert contrast(rgb(colour), rgb(theme["bg"])) >= SEEN, colour
    assert len({*PALETTE}) == len(PALETTE) >= MANY


def test_a_contrast_is_that_of_the_standard():
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert contrast((119, 119, 119), (255, 255, 255)) == pytest.approx(4.48, abs=0.01)
