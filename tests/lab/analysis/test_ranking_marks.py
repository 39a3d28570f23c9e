"""What a ranking counts, marks and refuses: every run is counted."""

import math

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.store.records import RunFolder
from tests.lab.analysis.toy_study import rank, row


def test_a_diverged_confirm_run_is_counted(toy):
    toy.add_points(full=[3.0, 3.1, 3.2], wild=[2.0, None, 2.2])
    runs = toy.study_json["chosen"]["wild"]["runs"]
    result = row(rank(toy), "wild")
    assert math.isclose(result["loss"], 2.1)
    assert (result["runs"], result["confirm"], result["confirm_diverged"]) == (2, 3, 1)
    assert (result["diverged"], result["missing"], result["marks"]) == (1, 0, [])
    end = {"event": "end", "epoch": toy.epochs, "status": "diverged", "reason": ""}
    RunFolder(toy.path / runs[0]).append(end)  # after its test
    result = row(rank(toy), "wild")
    assert (result["loss"], result["confirm_diverged"], result["low"]) == (2.2, 2, None)


def test_points_with_a_diverged_run_rank_below_all_others(toy):
    toy.add_points(full=[3.0, 3.1, 3.2], wild=[2.0, None, 2.2], worse=[1.9, None, None])
    toy.add_points(worst=[9.0, 9.1, 9.2], none=[None, None, None])
    frame = rank(toy)
    assert frame["point"].to_list() == ["full", "worst", "worse", "wild", "none"]
    assert frame["rank"].to_list() == [1, 2, 3, 4, None]
    assert math.isclose(row(frame, "wild")["loss"], 2.1)
    assert row(frame, "none")["loss"] is None
    assert (row(frame, "wild")["rank_low"], row(frame, "full")["rank_high"]) == (3, 1)


def test_a_run_counts_after_its_test_even_if_it_has_not_ended(toy):
    runs = toy.add_point("full", [3.0, 3.2])
    path = toy.records_path(runs[0])
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert math.isclose(row(rank(toy), "full")["loss"], 3.1)


def test_tune_runs_are_counted_and_never_averaged(toy):
    toy.add_point("full", [3.0, 3.1])
    for seed, status in enumerate(["pruned", "pruned", "failed", "finished"]):
        toy.add_run("full", 100 + seed, 1.0, status=status, test=True)
    toy.add_run("full", 200, None)
    result = row(rank(toy), "full")
    counts = [result[name] for name in ("tune", "pruned", "diverged", "failed", "runs")]
    assert counts == [5, 2, 1, 1, 2]
    assert math.isclose(result["loss"], 3.05)


def test_missing_runs_and_unconfirmed_points_are_marked(toy):
    toy.add_points(full=[3.0, 3.1], gate=[3.2, 3.3])
    toy.study_json["chosen"]["gate"]["runs"].append("deleted")
    toy.add_run("later", 0, 3.0)
    toy.study_json["points"].append({"id": "later", "label": "later", "aliases": []})
    frame = rank(toy)
    assert row(frame, "gate")["marks"] == ["missing"]
    assert row(frame, "gate")["missing"] == 1
    assert row(frame, "later")["marks"] == ["unconfirmed"]
    assert row(frame, "later")["rank"] is None


def test_a_loss_that_is_the_same_for_all_seeds_has_no_interval(toy):
    exact = 3.10031416  # with all decimals; rounded numbers are not exact
    toy.add_points(full=[exact] * 3, counts=[3.2, 3.2, 3.2], same=[exact] * 3, net=[2.9, 3.0, 3.2])
    toy.add_point("once", [3.3])
    frame = rank(toy)
    for name, difference in (("counts", 3.2 - exact), ("same", 0.0)):
        result = row(frame, name)
        assert result["loss"] == result["low"] == result["high"]
        assert result["difference"] == pytest.approx(difference)
    assert row(frame, "same")["p"] == 1.0
    marks = dict(frame.select("point", "marks").iter_rows())
    fixed = ["fixed"]
    assert marks == {"full": fixed, "counts": fixed, "same": fixed, "net": [], "once": []}


def test_errors_name_the_next_step(toy):
    with pytest.raises(UserError, match="'toy' has no confirmed point yet; run its sweep again"):
        rank(toy)
    toy.add_run("full", 1, 3.0, stage="confirm", test=False)
    toy.study_json["chosen"]["full"] = {"setting": {}, "runs": ["full-confirm-1"], "edge": []}
    toy.study_json["points"].append({"id": "full", "label": "full", "aliases": []})
    with pytest.raises(UserError, match=r"'toy' has no test results yet; .* --at EPOCH"):
        rank(toy)
    assert rank(toy, at=3)["loss"].to_list() == [3.0]
    with pytest.raises(UserError, match="no metric 'bits'; known: token, sentence"):
        rank(toy, metric="bits")


def test_only_tests_at_the_studys_budget_are_ranked(toy):
    toy.study_json["budget"]["epochs"] = 6
    toy.add_points(full=[3.0, 3.2], gate=[3.1, 3.3])
    for run, loss in (("full-confirm-1", 2.0), ("gate-confirm-1", 2.2), ("gate-confirm-2", 2.4)):
        test = {"event": "test", "epoch": 6, "token": loss, "sentence": loss}
        RunFolder(toy.path / run).append(test)
    stale = toy.add_run("full", 9, 1.0, stage="confirm")  # of a setting that is not chosen
    RunFolder(toy.path / stale).append({"event": "test", "epoch": 9, "token": 1.0})
    frame = rank(toy)
    assert row(frame, "full")["epoch"] == 6
    assert (row(frame, "full")["loss"], row(frame, "full")["marks"]) == (2.0, ["missing"])
    assert math.isclose(row(frame, "gate")["loss"], 2.3)


def test_events_after_a_smaller_budget_do_not_count(toy):
    toy.add_point("full", [3.0, 3.2])
    epoch = toy.study_json["budget"]["epochs"]
    for event in ({"event": "test", "epoch": epoch + 3, "token": 2.0, "sentence": 2.0},
                  {"event": "end", "epoch": epoch + 3, "status": "diverged"}):  # fmt: skip
        RunFolder(toy.path / "full-confirm-1").append(event)
    frame = rank(toy)
    assert row(frame, "full")["epoch"] == epoch
    assert math.isclose(row(frame, "full")["loss"], 3.1)
    assert row(frame, "full")["marks"] == []


def test_a_budget_below_every_test_is_refused(toy):
    toy.add_point("full", [3.0, 3.2])
    tested = toy.study_json["budget"]["epochs"]
    toy.study_json["budget"]["epochs"] = tested - 1
    said = rf"test results are at epochs {tested} only; .* --epochs {tested}$"
    with pytest.raises(UserError, match=said):
        rank(toy)
