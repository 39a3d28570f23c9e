"""The marks of charts can be seen, light and dark; `test_screens.py` has the texts of pages."""

import re
from importlib.resources import files

import numpy as np
import pytest

from lmzoo.lab.analysis.report.colours import COLOURS, MANY, PALETTE

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
