"""What a page says in words: how to read it, the data, the recipe, the terms."""

from pathlib import Path

import pytest

from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking import rank_points
from lmzoo.lab.analysis.report.facts import data_section
from lmzoo.lab.analysis.report.page import terms
from lmzoo.lab.analysis.report.recipe import recipe_section, spent_table
from lmzoo.lab.analysis.report.summary import summary
from tests.lab.analysis.recorded import folder_of, frame_of
from tests.lab.analysis.toy_study import change_lines

WORDS = "reference-words"


def test_the_summary_has_the_margin_and_absolute_losses(toy):
    text = " ".join(summary(folder_of(WORDS), frame_of(WORDS)))
    assert "'wild type' has 3.653, a perplexity of 38.59" in text
    assert "For comparison: Kneser-Ney 5-gram 3.822; unigram count 5.632." in text
    toy.add_point("full", [3.0, 3.001, 3.002])
    toy.add_point("free", [3.001, 3.002, 3.003])
    folder = load_study(toy.write())
    text = " ".join(summary(folder, rank_points(folder.runs, folder.events, folder.study)))
    assert "All points are compared with the reference 'cut full'. The margin of 0.02 nats" in text
    assert "is a choice of the study: it is 2.0 % of the perplexity" in text


def test_the_rule_of_the_choice_is_said(toy):
    text = " ".join(summary(folder_of(WORDS), frame_of(WORDS)))
    assert "The learning rate (recipe.lr) of each point is chosen from 5 tuning runs" in text
    assert "a curve that is fitted over the runs of all points" in text
    toy.add_point("full", [2.0, 2.1])
    folder = load_study(toy.write())
    text = " ".join(summary(folder, rank_points(folder.runs, folder.events, folder.study)))
    assert "The lr and model.width and recipe.clip of each point is chosen from 2" in text
    assert text.endswith("the one with the lowest validation loss.")


def test_the_data_are_described_by_the_corpus():
    text = data_section(folder_of(WORDS), frame_of(WORDS))
    assert "English captions of photographs, written by people" in text
    assert "are cut, not dropped" in text
    assert "12,648 tokens of 1,000 sequences" in text


def test_the_recipe_has_the_installation_one_commit_and_relative_paths():
    text = recipe_section(Path("/secret/place/words"), folder_of(WORDS))
    assert "secret" not in text
    assert "lmzoo report runs/reference-multi30k_en" in text
    assert "In a clone of the repository of lmzoo at commit b747778;" in text
    assert "93 runs at b747778 and 87 runs at 5a47297" in text
    for cell in ("adam", "0.01, chosen by tuning", "cosine", "1, 2, 3, 4, 5"):
        assert f">{cell}</td>" in text


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


@pytest.mark.parametrize(
    ("word", "used"), [("point", True), ("seed", True), ("pack", False), ("bound", False)]
)
def test_only_terms_of_the_page_are_listed(word, used):
    text = terms("<p>Each point has a <b>seed</b>.</p><script>pack</script>")
    assert (f"<dt>{word}</dt>" in text) is used
