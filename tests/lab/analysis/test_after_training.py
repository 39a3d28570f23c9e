"""What cuts cost trained models: means over seeds, in the table and in the chart."""

import json

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.after_training import costs, read_lines
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
            line_of(run, "nothing", "zero", 2.0),
            line_of(run, "nothing", "trained", 1.9),
            line_of(run, "carry", "zero", 9.0),
            line_of(run, "carry", "zero", 2.0 + lost),
            line_of(run, "carry", "trained", 1.7 + lost),
        ]
    (toy.path / ABLATIONS).write_text("\n".join(lines) + "\n{torn")
    return toy


def line_of(run, cut, way, loss):
    """Return the line of a cut of a trained run."""
    steps = {"zero": 0, "trained": 7}[way]
    line = {"run": run, "cut": cut, "way": way, "steps": steps, "loss": loss, "why": ""}
    return record_line(line | {"epoch": 3, "model": json.dumps(CUT)})


INTERVAL = [float(end) for end in mean_interval(LOST)]


@pytest.fixture
def known(ablated):
    """The costs by the way in which a cut was made."""
    return {row["way"]: row for row in costs(read_lines(ablated.path)).to_dicts()}


def test_costs_are_paired_by_run_and_the_last_line_counts(known):
    of_cut = known["zero"]
    assert [of_cut["mean"], of_cut["low"], of_cut["high"]] == pytest.approx(INTERVAL)
    assert of_cut["seeds"] == 3


def test_a_repaired_cut_is_compared_with_a_run_that_was_trained_as_long(known):
    assert known["trained"]["mean"] == pytest.approx(INTERVAL[0] - 0.2)


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
    spec = json.dumps(two_costs_chart(load_study(ablated.path), rank(ablated.path)))
    assert '"name": "part"' in spec
    assert f'"after_training": {INTERVAL[0]:.1f}' in spec


def test_without_costs_there_is_no_chart(ablated):
    (ablated.path / ABLATIONS).unlink()
    assert two_costs_chart(load_study(ablated.path), rank(ablated.path)) is None
