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
    toy.add_point("part", [2.1, 2.2, 2.5], model=CUT)
    lines = []
    for run, lost in zip(runs, LOST, strict=True):
        for cut, way, steps, loss in (
            ("nothing", "zero", 0, 2.0),
            ("nothing", "trained", 7, 1.9),
            ("carry", "zero", 0, 9.0),
            ("carry", "zero", 0, 2.0 + lost),
            ("carry", "trained", 7, 1.7 + lost),
        ):
            line = {"run": run, "cut": cut, "way": way, "steps": steps, "loss": loss, "why": ""}
            lines.append(record_line({**line, "epoch": 3, "model": json.dumps(CUT)}))
    (toy.path / ABLATIONS).write_text("\n".join(lines) + "\n{torn")
    return toy


def test_costs_are_paired_by_run_and_the_last_line_counts(ablated):
    known = {row["way"]: row for row in costs(read_lines(ablated.path)).iter_rows(named=True)}
    expected = [float(x) for x in mean_interval(LOST)]
    assert [known["zero"][name] for name in ("mean", "low", "high")] == pytest.approx(expected)
    assert known["trained"]["mean"] == pytest.approx(expected[0] - 0.2)
    assert known["zero"]["seeds"] == 3


def test_a_ranking_has_the_cost_beside_the_difference(ablated):
    own = rank(ablated.path, after_training=True).filter(point="part")
    found = own.select("after_training", "after_training_low", "after_training_high").row(0)
    assert found == pytest.approx([float(x) for x in mean_interval(LOST)])
    assert rank(ablated.path)["after_training"].null_count() == 2
    (ablated.path / ABLATIONS).unlink()
    with pytest.raises(UserError, match="run lmzoo ablate"):
        rank(ablated.path, after_training=True)


def test_the_chart_has_a_point_with_both_costs_and_the_diagonal(ablated):
    folder = load_study(ablated.path)
    ranked = rank(ablated.path)
    spec = json.dumps(two_costs_chart(folder, ranked))
    assert '"name": "part"' in spec
    assert f'"after_training": {sum(LOST) / 3:.3f}'[:22] in spec
    (ablated.path / ABLATIONS).unlink()
    assert two_costs_chart(folder, ranked) is None
