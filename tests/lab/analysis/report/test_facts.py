"""What a page says in words: the recipe."""

from pathlib import Path

from lmzoo.lab.analysis.report.facts import recipe_section
from tests.lab.analysis.recorded import folder_of

WORDS = "reference-words"


def test_the_recipe_has_the_installation_one_commit_and_relative_paths():
    text = recipe_section(Path("/secret/place/words"), folder_of(WORDS))
    assert "secret" not in text
    assert "lmzoo report runs/reference-multi30k_en" in text
    assert "In a clone of the repository of lmzoo at commit b747778;" in text
    assert "commit 5a47297 and b747778" in text or "commit b747778 and 5a47297" in text
