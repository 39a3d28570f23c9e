"""What a page says in words: the recipe."""

from pathlib import Path

from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.report.facts import recipe_section, spent_table
from tests.lab.analysis.recorded import folder_of
from tests.lab.analysis.toy_study import change_lines

WORDS = "reference-words"


def test_the_recipe_has_the_installation_one_commit_and_relative_paths():
    text = recipe_section(Path("/secret/place/words"), folder_of(WORDS))
    assert "secret" not in text
    assert "lmzoo report runs/reference-multi30k_en" in text
    assert "In a clone of the repository of lmzoo at commit b747778;" in text
    assert "commit 5a47297 and b747778" in text or "commit b747778 and 5a47297" in text


def test_stages_list_their_runs_and_the_devices_of_their_epochs(toy):
    toy.add_point("full", [2.0, 2.1])
    toy.add_run("full", 10, 3.0, setting={"lr": 0.001})
    devices = iter(["GPU B", "CPU A"])
    for path in sorted(toy.path.glob("*-confirm-*/records.ndjson")):
        change_lines(path, "epoch", device=next(devices))
    tune, confirm, whole = spent_table(load_study(toy.write())).rows
    assert (tune[0], tune[1], tune[-1]) == ("tune", "1", "not recorded")
    assert (confirm[0], confirm[1], confirm[3]) == ("confirm", "2", "6")
    assert confirm[-1] == "CPU A, GPU B"
    assert (whole[0], whole[1], whole[3]) == ("all", "3", "9")
