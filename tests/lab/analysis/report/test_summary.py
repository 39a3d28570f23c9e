"""The first sentences of a study's page: they answer its question from the verdicts."""

import pytest

from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking import rank_points
from lmzoo.lab.analysis.ranking_table import provenance_table
from lmzoo.lab.analysis.report.summary import summary
from lmzoo.lab.analysis.verdict_lines import verdict_groups

NEAR = [3.0, 3.001, 3.002, 3.001]


def test_it_says_what_the_margin_is(toy):
    toy.add_point("full", NEAR)
    toy.add_point("free", [loss + 0.001 for loss in NEAR])
    folder = load_study(toy.write())
    text = " ".join(summary(folder, rank_points(folder.runs, folder.events, folder.study)))
    assert "All points are compared with the reference 'cut full'. The margin of 0.02 nats" in text
    assert "is a choice of the study: it is 2.0 % of the perplexity" in text


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
