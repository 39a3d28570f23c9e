"""A ranking shows accuracies beside the losses of a task, and nothing of the kind elsewhere."""

import pytest

from lmzoo.lab.analysis.comparison import compare_points, comparison_report
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.render import render
from tests.lab.analysis.toy_study import change_lines, rank, row


def add_point(toy, name, shares, **config):
    """Add a point with these test accuracies; those of validation are half of them."""
    for run, share in zip(
        toy.add_point(name, [0.5, 0.6][: len(shares)], **config), shares, strict=True
    ):
        path = toy.records_path(run)
        change_lines(path, "test", accuracy=share, sequence_accuracy=share / 4)
        change_lines(path, "epoch", valid_accuracy=share / 2, valid_sequence_accuracy=0.0)
        toy.write_test_losses(run, [0.4, 0.6], [1, 1])


def test_accuracies_are_means_over_seeds_with_the_worst_and_the_best(toy):
    add_point(toy, "full", [0.5, 0.9], ceiling=0.95)
    found = row(rank(toy), "full")
    assert found["accuracy"] == pytest.approx(0.7)
    assert (found["accuracy_low"], found["accuracy_high"]) == (0.5, 0.9)
    assert found["sequence_accuracy"] == pytest.approx(0.175)
    assert found["ceiling"] == 0.95
    earlier = row(rank(toy, at=2), "full")
    assert earlier["accuracy"] == pytest.approx(0.35)
    assert earlier["sequence_accuracy"] == 0


def test_the_tables_show_accuracies_and_the_ceiling(toy):
    add_point(toy, "full", [0.5, 0.9], ceiling=0.95)
    add_point(toy, "gate", [1.0, 1.0], ceiling=0.95)
    toy.write()
    text = render(study_ranking(toy.path), "md")
    assert "70.0 % (50.0–90.0)" in text
    assert "| 100.0 % |" in text
    assert "no model can exceed 95.0%" in text
    folder = load_study(toy.path)
    compared = render(comparison_report(folder, compare_points(folder)), "md")
    assert "70.0 % (50.0–90.0)" in compared
