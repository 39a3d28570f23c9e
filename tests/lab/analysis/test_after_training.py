"""What cuts cost trained models: means over seeds, in the table and in the chart."""

import json

import polars as pl
import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.after_training import costs, format_cost, read_lines
from lmzoo.lab.analysis.frames import rank
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.report.two_costs import two_costs_chart
from lmzoo.lab.statistics.intervals import mean_interval
from lmzoo.lab.store.records import ABLATIONS, record_line

LOST = [0.5, 0.7, 0.9]
CUT = {"name": "m", "cuts": ["carry"]}


@pytest.fixture
def ablated(toy):
    """A study whose reference lost `LOST` by the cut of the point `part`, and 0.2 less repaired."""
    runs = toy.add_point("full", [2.0, 2.1, 2.3])
    toy.add_points("part: 2.1 2.2 2.5", model=CUT)
    lines = []
    for run, lost in zip(runs, LOST, strict=True):
        lines += [
            line_of(run, "nothing", 0, 2.0),
            line_of(run, "nothing", 7, 1.9),
            # The cut was measured twice.
            line_of(run, "carry", 0, 9.0),
            line_of(run, "carry", 0, 2.0 + lost),
            line_of(run, "carry", 7, 1.7 + lost),
        ]
    # The writer was killed in its last line.
    lines.append("{torn")
    (toy.path / ABLATIONS).write_text("\n".join(lines))
    return toy


def line_of(run, cut, steps, loss):
    """Return the line of a cut of a trained run, which was trained for so many steps more."""
    way = "zero"
    if steps:
        way = "trained"
    line = {"run": run, "cut": cut, "way": way, "steps": steps, "loss": loss}
    facts = {"why": "", "epoch": 3, "model": json.dumps(CUT)}
    return record_line(line | facts)


INTERVAL = tuple(map(float, mean_interval(LOST)))


@pytest.fixture
def known(ablated):
    """The costs of cuts."""
    return costs(read_lines(ablated.path))


def test_costs_are_paired_by_run_and_the_last_line_counts(known):
    of_cut = known.filter(way="zero")
    assert of_cut.select("mean", "low", "high").row(0) == pytest.approx(INTERVAL)
    assert of_cut["seeds"].item() == 3


def test_a_repaired_cut_is_compared_with_a_run_that_was_trained_as_long(known):
    repaired = known.filter(way="trained")
    mean, _, _ = INTERVAL
    # Training lowers the loss of the whole model by 0.1, that of the cut one by 0.3.
    assert repaired["mean"].item() == pytest.approx(mean - 0.2)


def test_a_ranking_has_the_cost_beside_the_difference(ablated):
    part = rank(ablated.path, after_training=True).filter(point="part")
    names = ("after_training", "after_training_low", "after_training_high")
    assert part.select(names).row(0) == pytest.approx(INTERVAL)


def test_a_ranking_has_no_cost_that_was_not_asked_for(ablated):
    assert rank(ablated.path)["after_training"].null_count() == 2


def test_costs_that_were_not_measured_are_asked_for(ablated):
    (ablated.path / ABLATIONS).unlink()
    with pytest.raises(UserError, match="run lmzoo ablate"):
        rank(ablated.path, after_training=True)


def test_the_chart_has_a_point_with_both_costs(ablated):
    chart = two_costs_chart(load_study(ablated.path), rank(ablated.path))
    spec = json.dumps(chart)
    assert '"name": "part"' in spec
    assert f'"after_training": {INTERVAL[0]:.1f}' in spec


def add_cut_model(toy, loss):
    """Add the reference, whose trained models have this loss without the carry."""
    for run in toy.add_point("full", [2.0, 2.1, 2.3]):
        lines = [line_of(run, "nothing", 0, 2.0), line_of(run, "carry", 0, loss)]
        with (toy.path / ABLATIONS).open("a") as file:
            file.write("\n".join(lines) + "\n")


def test_a_model_that_exploded_hides_no_other_in_the_chart(toy):
    add_cut_model(toy, 2.7e13)
    toy.add_points("part: 2.1 2.2 2.5", model=CUT)
    spec = json.dumps(two_costs_chart(load_study(toy.path), rank(toy.path)))
    assert '"name": "part 2.7e+13"' in spec
    assert '"after_training": 1000.0' in spec
    assert "a cost above 1,000 nats is drawn at 1,000" in spec
    assert "e+13," not in spec


def test_the_chart_names_the_cuts_without_which_no_model_solves_the_task(toy):
    add_cut_model(toy, 2.7)
    toy.add_points("part: 2.1 2.2 2.5\nfatal (7): 2.1 2.2 2.6", model=CUT)
    # Its runs are all unsolved: there is no mean of others.
    is_fatal = pl.col("label") == "cut fatal (7)"
    ranked = rank(toy.path)
    ranked = ranked.with_columns(difference=pl.when(~is_fatal).then("difference"))
    spec = json.dumps(two_costs_chart(load_study(toy.path), ranked))
    assert "most models without the part fail: fatal (7)" in spec


def test_a_cost_that_exploded_has_two_digits_in_a_table():
    assert format_cost(2.7e13, -1e12, 5.5e13) == "+2.7e+13 ±2.8e+13"
    assert format_cost(5.603, 5.203, 6.003) == "+5.603 ±0.400"


def test_without_costs_there_is_no_chart(ablated):
    (ablated.path / ABLATIONS).unlink()
    assert two_costs_chart(load_study(ablated.path), rank(ablated.path)) is None
