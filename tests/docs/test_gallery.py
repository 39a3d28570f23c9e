"""The pictures of the gallery are what the records give, and a reader can see them anywhere."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/gallery.md"


@pytest.fixture(scope="module")
def drawn():
    """The pictures, drawn again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tools"))
        import gallery  # type: ignore[import-not-found]

        return dict(gallery.pictures())


def test_the_pictures_are_what_the_records_give(drawn):
    assert {path.name for path in drawn} == {"console.svg", "curves.svg", "settings.svg"}
    stale = [path.name for path, text in drawn.items() if path.read_text("utf-8") != text]
    assert not stale, "run `make results`"


def test_pictures_are_small_load_nothing_and_have_colours_for_dark_pages(drawn):
    for path, text in drawn.items():
        assert len(text.encode()) < 200_000, path
        assert not re.search(r"url\([^#]", text), path
        assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"], path
        assert "@media (prefers-color-scheme: dark)" in text, path
        assert ET.fromstring(text).find("{http://www.w3.org/2000/svg}title") is not None, path


def test_the_pictures_name_every_point_by_its_cuts(drawn):
    texts = {path.stem: re.sub(r"&#160;|\xa0", " ", text) for path, text in drawn.items()}
    for name in ("console", "curves"):
        assert "cut carry (6)" in texts[name]
        assert not re.search(r">\s*cut \d", texts[name])
    assert texts["settings"].count("<circle") > 60
    assert "reference" in texts["console"]  # three of five seeds are no look, so no verdict yet
