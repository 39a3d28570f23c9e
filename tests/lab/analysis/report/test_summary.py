"""The first sentences of a study's page: they answer its question from the verdicts."""

import pytest

from lmzoo.lab.analysis.records.load import load_study
from lmzoo.lab.analysis.report.summary import summary
from lmzoo.lab.analysis.tables.ranking import rank_points
from lmzoo.lab.analysis.tables.ranking_table import provenance_table
from lmzoo.lab.analysis.text.verdict_lines import verdict_groups

NEAR = [3.0, 3.001, 3.002, 3.001]


def sentences(toy) -> str:
    folder = load_study(toy.write())
    ranked = rank_points(folder.runs, folder.events, folder.study)
    return " ".join(summary(folder, ranked, verdict_groups(ranked)))


def test_it_counts_the_verdicts_and_names_the_best_point(toy):
    toy.add_point("full", NEAR)
    toy.add_point("free", [loss + 0.001 for loss in NEAR])
    toy.add_point("costly", [loss + 0.3 for loss in NEAR])
    text = sentences(toy)
    assert text.startswith("No point is shown to be better than 'cut full', and 1 is shown to be ")
    assert "different from it by less than 0.02 nats" in text
    assert "lowest loss of the points compared has 'cut free': 3.002, which is 0.001 above" in text
    assert "Of the 2 points compared with it, none is better, 1 is negligible, 1 is worse" in text
    assert "0.02 nats is a choice of the study: it is 2.0 % of the perplexity" in text


def test_a_better_point_comes_first(toy):
    toy.add_point("full", NEAR)
    toy.add_point("winner", [loss - 0.3 for loss in NEAR])
    text = sentences(toy)
    assert text.startswith("1 point is shown to be better than 'cut full', and none is shown")
    assert "'cut winner': 2.701, which is 0.300 below 'cut full'" in text


@pytest.mark.parametrize(
    ("tuned", "words"), [(0.1, "more tuning runs (--samples)"), (0.0, "1,000 seeds")]
)
def test_what_no_number_of_seeds_decides_says_what_would(toy, tuned, words):
    """Either the choice of the setting, or the spread of the seeds, is too uncertain."""
    spread = 0.01 if tuned else 1.0
    toy.add_point("full", [3.0, 3.0 + spread, 3.0 - spread, 3.0])
    toy.add_point("edge", [3.0 - spread, 3.0 + spread, 3.0, 3.0])
    for seed in (0, 9):
        toy.add_run("edge", seed, 3.0)
    toy.study_json["chosen"]["edge"]["tuning_sd"] = tuned
    folder = load_study(toy.write())
    ranked = rank_points(folder.runs, folder.events, folder.study)
    (group,) = verdict_groups(ranked)
    assert group.verdict == "undecided"
    assert words in group.head


def test_columns_that_are_equal_in_all_rows_are_a_part_of_the_title(toy):
    for name in ("full", "part"):
        toy.add_point(name, NEAR)
    few = provenance(toy)
    assert (few.title, "seeds" in few.header) == ("how each setting was found", True)
    toy.add_point("other", NEAR, parameters=7)
    table = provenance(toy)
    assert table.title.endswith("at every point: seeds 4, setting chosen lr=0.003, model.width=32")
    assert table.header == ("rank", "point", "parameters")


def provenance(toy):
    folder = load_study(toy.write())
    return provenance_table(rank_points(folder.runs, folder.events, folder.study))
