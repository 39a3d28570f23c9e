"""The command that a ranking proposes can be pasted: the study that it runs has what it names."""

import dataclasses
import shlex

import pytest

from lmzoo.lab.analysis.ranking import FIVE_GRAM
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.cli.report import report
from tests.lab.analysis.report.test_reproduce import PLAIN, study_of


def falling(toy):
    toy.add_points(
        """
        full: 3.0  3.1  3.2
        gate: 3.1  3.2  3.3
        """
    )


def at_an_edge(toy):
    toy.add_points("full: 3.0 3.01 3.02")
    toy.add_points("gate: 3.0 3.01 3.02", edge=("lr",))


def at_a_bound(toy):
    at_an_edge(toy)
    toy.study_json["search"] = {"recipe.lr": {"low": 0.001, "high": 0.003, "log": True}}
    gate = toy.study_json["chosen"]["gate"]
    gate["setting"] = {"recipe.lr": 0.003}
    gate["edge"] = ["recipe.lr"]


def with_a_missing_run(toy):
    toy.add_points(
        """
        full: 3.0  3.01  3.02
        gate: 3.0  3.01  3.02
        """
    )
    toy.records_path("gate-confirm-3").unlink()


def undecided(toy):
    toy.add_points(
        """
        full: 3.0  3.5  3.2  3.9
        gate: 3.6  3.0  3.9  3.1
        """
    )


@pytest.fixture
def next_study(toy, monkeypatch):
    """Return a function that returns the study of the next command."""

    def run(margin):
        toy.study_json |= {"script": ["python", "sweeps/toy.py"], "given": [], "margin": margin}
        python, script, *options = shlex.split(study_ranking(toy.write()).next_command)
        assert python == "python"
        assert script == "sweeps/toy.py"
        return study_of(PLAIN, options, monkeypatch)

    return run


def test_curves_that_still_fall_need_more_epochs(toy, next_study):
    falling(toy)
    # Four times as many: at most two doublings.
    assert next_study(0.02).epochs == 12


def test_a_value_at_the_edge_of_what_was_tried_needs_more_samples(toy, next_study):
    at_an_edge(toy)
    # Twice as many.
    assert next_study(0.5).samples == 4


def test_a_value_at_a_bound_needs_a_wider_range(toy, next_study):
    at_a_bound(toy)
    rates = next_study(0.5).search["recipe.lr"]
    assert rates.low == pytest.approx(0.001)
    # Four times the old bound, at which the best value was.
    assert rates.high == pytest.approx(0.012)


def test_a_missing_run_needs_the_same_study_again(toy, next_study):
    with_a_missing_run(toy)
    again = next_study(0.5)
    assert dataclasses.replace(again, script=()) == PLAIN


def test_an_undecided_point_needs_more_seeds(toy, next_study):
    undecided(toy)
    study = next_study(0.3)
    assert study.max_seeds > study.seeds


def test_without_a_script_the_page_is_next_and_the_command_writes_it(toy, no_charts):
    toy.add_points(
        """
        full: 3.0  3.01  3.02
        gate: 3.5  3.51  3.52
        """
    )
    *words, study = shlex.split(study_ranking(toy.path).next_command)
    assert words == ["lmzoo", "report"]
    report(study)
    assert (toy.path / "report.html").exists()


def test_a_value_at_a_bound_and_one_inside_are_said_apart(toy):
    at_a_bound(toy)
    toy.add_points("carry: 3.0 3.01 3.02", edge=("recipe.lr",))
    toy.study_json["chosen"]["carry"]["setting"] = {"recipe.lr": 0.002}
    edges = [text for text in study_ranking(toy.write()).warnings if text.startswith("edge")]
    assert [text.split(": ")[1] for text in edges] == ["cut gate", "cut carry"]
    assert "--search-space recipe.lr=0.001:0.012" in edges[0]
    assert edges[1].endswith("try more (--samples 4)")


def test_one_epoch_that_loses_to_counts_asks_for_epochs_and_not_for_seeds(toy):
    toy.epochs = 1
    toy.study_json["budget"]["epochs"] = 1
    toy.add_points(
        """
        full: 3.0  3.01  3.02
        gate: 3.0  3.02  3.01
        """
    )
    toy.add_points("counts: 2.5 2.5 2.5", model=FIVE_GRAM, parameters=0)
    toy.add_points("unigram: 4.0 4.0 4.0", parameters=0)
    toy.study_json |= {"script": ["python", "s.py"], "given": ["--epochs", "1"]}
    report = study_ranking(toy.write())
    assert "lose to the Kneser-Ney 5-gram" in report.warnings[0], report.warnings
    assert report.next_command == "python s.py --epochs 4"
