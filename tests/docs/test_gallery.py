"""The pictures of the gallery are what the records give, and a reader can see them anywhere."""

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """The pictures, drawn again: path -> text and whether the file has this text."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tools"))
        import gallery  # type: ignore[import-not-found]
        import results  # type: ignore[import-not-found]

        folder = gallery.FOLDER
        patch.setattr(gallery, "FOLDER", tmp_path_factory.mktemp("gallery"))
        patch.setattr(sys, "argv", ["gallery.py"])
        gallery.main()
        found = {}
        for new in gallery.FOLDER.iterdir():
            path = folder / new.name
            text = new.read_text("utf-8")
            found[path] = text, results._equal(path, text)
        return found


def test_the_pictures_are_what_the_records_give(drawn):
    assert {path.name for path in drawn} == {"console.svg", "curves.svg", "tuning.svg"}
    for path, (_, is_equal) in drawn.items():
        assert is_equal, f"{path.name}: run `make results`"


def test_pictures_are_small_load_nothing_have_colours_for_dark_pages_and_name_every_cut(drawn):
    for path, (text, _) in drawn.items():
        assert len(text.encode()) < 200_000, path
        assert not re.search(r"url\([^#]", text), path
        addresses = re.findall(r"https?://[^\"]+", text)
        for one in addresses:
            assert one.startswith("http://www.w3.org/"), path
        assert "@media (prefers-color-scheme: dark)" in text, path
        assert ET.fromstring(text).find("{http://www.w3.org/2000/svg}title") is not None, path
        shown = re.sub(r"&#160;|\xa0", " ", text)
        assert path.stem == "tuning" or "cut carry (6)" in shown
        assert not re.search(r">\s*cut \d", shown)
