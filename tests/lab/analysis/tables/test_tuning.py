"""Tuning curves of a study: what k runs find, and from where on the order stays."""

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.tables.tuning import study_tuning
from lmzoo.lab.analysis.text.render import render

RUNS = {"full": [3.0, 2.0, 2.0], "late": [1.0, 4.0, 4.0], "worse": [5.0, 6.0, 7.0]}


@pytest.fixture
def tuned(toy):
    """`full` is the reference; `late` is above it on average, and has the best run of all."""
    for point, losses in RUNS.items():
        for index, loss in enumerate(losses):
            toy.add_run(point, index, loss, setting={"lr": 10.0**-index})
        toy.study_json["points"].append({"id": point, "label": point, "aliases": []})
    return toy


def test_the_table_says_what_runs_find_and_where_the_order_changes(tuned):
    report = study_tuning(tuned.write())
    frame = report.frame
    first, last = (frame.filter(k=k).sort("label") for k in (1, 3))
    assert first["loss"].to_list() == pytest.approx([7 / 3, 3.0, 6.0], abs=0.01)
    assert (last["loss"] < first["loss"]).all()
    settled = dict(zip(last["label"], last["settled"], strict=True))
    assert settled == {"full": None, "late": 3, "worse": 1}
    assert dict(zip(last["label"], last["above"], strict=True))["worse"] == pytest.approx(1)
    assert "changes with the number of runs: late" in report.legend[-1]
    assert "nan" not in render(report, "table", width=200)


def test_a_study_without_a_loss_is_refused(toy):
    toy.add_run("full", 0, None, setting={"lr": 0.1})
    toy.study_json["points"].append({"id": "full", "label": "full", "aliases": []})
    with pytest.raises(UserError, match="no tune run has a loss"):
        study_tuning(toy.write())
