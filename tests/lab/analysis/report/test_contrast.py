"""Every text of a page has a contrast of at least 4.5 to its background, light and dark."""

import functools
import re
from importlib.resources import files

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmzoo.lab.analysis.report.colours import GROUPS, PAGE_COLOURS, PRINTED, REFERENCE
from lmzoo.lab.analysis.report.heat_map import heat_maps

LEAST = 4.5
RULE = re.compile(r"luminance\(scale\('color', datum\['\w+'\]\)\) > ([\d.]+)")
TEXTS = ("fg", "muted", "link", "worse", "better", "negligible", "undecided", "baseline")
Colour = tuple[float, float, float]


def themes() -> list[dict[str, str]]:
    """Return the CSS variables of the page, light and dark."""
    css = files("lmzoo.lab.analysis.report").joinpath("page.css").read_text()
    light, dark = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    return [dict(re.findall(r"--([\w-]+): (#\w+)", text)) for text in (light, dark)]


def rgb(colour: str) -> Colour:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return red, green, blue


def luminance(colour: Colour) -> float:
    """Relative luminance of WCAG 2.2."""
    linear = [
        x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4
        for x in (part / 255 for part in colour)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: Colour, second: Colour) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@functools.cache
def square_and_number(*, page: bool) -> tuple[dict, dict]:
    """Return the encodings of colour of the squares and the numbers of a heat map."""
    effects = pl.DataFrame(
        {
            "cell": ["mgu"] * 3, "first": ["a", "b", "a"], "second": [None, None, "b"],
            "effect": [0.4, -0.1, 0.02], "effect_low": [0.3, -0.2, -0.1],
            "effect_high": [0.5, 0.0, 0.1], "count": [4, 4, 2],
        }
    )  # fmt: skip
    maps = heat_maps([effects], "effects", page=page).to_dict()["vconcat"][0]
    return tuple(layer["encoding"]["color"] for layer in maps["layer"])  # type: ignore[return-value]


def at(scale: dict, share: float, variables: dict[str, str]) -> Colour:
    """Return the colour of a linear scale in RGB at a share of its domain."""
    names = (re.sub(r"var\(--([\w-]+)\)", lambda m: variables[m[1]], x) for x in scale["range"])
    colours = [rgb(name) for name in names]
    place = share * (len(colours) - 1)
    i = min(int(place), len(colours) - 2)
    first, second = colours[i], colours[i + 1]
    parts = (x + (place - i) * (y - x) for x, y in zip(first, second, strict=True))
    return tuple(round(part) for part in parts)  # type: ignore[return-value]


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize("page", [True, False])
@given(share=st.floats(0, 1))
def test_the_number_of_a_square_is_readable(page, theme, share):
    square, number = square_and_number(page=page)
    assert square["scale"]["interpolate"] == "rgb"
    condition = number["condition"]
    rule = RULE.fullmatch(condition["test"])
    assert rule is not None, condition["test"]
    colour = at(square["scale"], share, themes()[theme])
    light = luminance(colour) > float(rule[1])
    text = condition["value"] if light else number["value"]
    assert contrast(rgb(text), colour) >= LEAST


@pytest.mark.parametrize("theme", [0, 1])
def test_the_colours_of_texts_are_readable(theme):
    variables = themes()[theme]
    for name in TEXTS:
        for ground in ("bg", "soft"):
            assert contrast(rgb(variables[name]), rgb(variables[ground])) >= LEAST, (name, ground)


def test_a_page_in_the_light_has_the_colours_of_pictures():
    names = ["fg" if group == REFERENCE else group for group in GROUPS]
    assert [themes()[0][name] for name in names] == [*PRINTED]
    assert [f"var(--{name})" for name in names] == [PAGE_COLOURS[group] for group in GROUPS]


def test_a_contrast_is_that_of_the_standard():
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert contrast((119, 119, 119), (255, 255, 255)) == pytest.approx(4.48, abs=0.01)
