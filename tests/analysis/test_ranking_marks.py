"""What a ranking counts, marks and refuses: no run disappears without a word."""

import math

import pytest

from lmzoo.errors import UserError
from lmzoo.store.records import RunFolder
from tests.analysis.synthetic import rank, row


def test_a_diverged_confirm_run_is_counted_and_marked_and_has_no_loss(made):
    made.point("full", [3.0, 3.1, 3.2])
    made.point("wild", [2.0, None, 2.2])
    runs = made.study["chosen"]["wild"]["runs"]
    found = row(rank(made), "wild")
    assert math.isclose(found["loss"], 2.1)
    assert (found["runs"], found["confirm"], found["confirm_diverged"]) == (2, 3, 1)
    assert (found["diverged"], found["missing"], found["marks"]) == (1, 0, ["diverged"])
    end = {"event": "end", "epoch": made.epochs, "status": "diverged", "reason": ""}
    RunFolder(made.path / runs[0]).append(end)  # whatever was tested before
    found = row(rank(made), "wild")
    assert (found["loss"], found["confirm_diverged"], found["low"]) == (2.2, 2, None)


def test_who_lost_a_seed_stands_behind_who_lost_none(made):
    made.point("full", [3.0, 3.1, 3.2])
    made.point("wild", [2.0, None, 2.2])
    made.point("lost", [1.9, None, None])
    made.point("worst", [9.0, 9.1, 9.2])
    made.point("none", [None, None, None])
    frame = rank(made)
    assert frame["point"].to_list() == ["full", "worst", "lost", "wild", "none"]
    assert frame["rank"].to_list() == [1, 2, 3, 4, None]
    assert math.isclose(row(frame, "wild")["loss"], 2.1)
    assert (row(frame, "wild")["rank_low"], row(frame, "full")["rank_high"]) == (3, 1)


def test_a_point_all_of_whose_runs_diverged_is_last_and_unranked(made):
    made.point("wild", [None, None])
    made.point("full", [3.0, 3.1])
    frame = rank(made)
    assert frame["point"].to_list() == ["full", "wild"]
    assert frame["rank"].to_list() == [1, None]
    assert row(frame, "wild")["loss"] is None
    assert row(frame, "full")["rank_high"] == 1


def test_a_run_that_has_not_ended_counts_once_it_is_tested(made):
    runs = made.point("full", [3.0, 3.2])
    path = made.records(runs[0])
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert math.isclose(row(rank(made), "full")["loss"], 3.1)


def test_tune_runs_are_counted_and_never_averaged(made):
    made.point("full", [3.0, 3.1])
    for seed, status in enumerate(["pruned", "pruned", "failed", "finished"]):
        made.run("full", 100 + seed, 1.0, status=status, test=True)
    made.run("full", 200, None)
    found = row(rank(made), "full")
    counts = [found[name] for name in ("tune", "pruned", "diverged", "failed", "runs")]
    assert counts == [5, 2, 1, 1, 2]
    assert math.isclose(found["loss"], 3.05)


def test_what_is_owed_is_marked(made):
    made.point("full", [3.0, 3.1])
    made.point("gate", [3.2, 3.3])
    made.study["chosen"]["gate"]["runs"].append("deleted")
    made.run("later", 0, 3.0)
    made.study["points"].append({"id": "later", "label": "later", "aliases": []})
    frame = rank(made)
    assert row(frame, "gate")["marks"] == ["missing"]
    assert row(frame, "gate")["missing"] == 1
    assert row(frame, "later")["marks"] == ["unconfirmed"]
    assert row(frame, "later")["rank"] is None


def test_marks_for_edges_and_leaks(made):
    made.point("full", [3.0, 3.1], edge=("lr",))
    made.point("leaky", [1.0, 1.1], leaks="divides by the future")
    frame = rank(made)
    assert row(frame, "full")["marks"] == ["edge"]
    assert row(frame, "full")["edge"] == ["lr"]
    assert row(frame, "leaky")["marks"] == ["leaks"]


def test_what_no_seed_changes_is_exact_marked_and_not_tested(made):
    made.point("full", [3.1, 3.1, 3.1])
    made.point("counts", [3.2, 3.2, 3.2])
    made.point("same", [3.1, 3.1, 3.1])
    made.point("net", [2.9, 3.0, 3.2])
    made.point("once", [3.3])
    frame = rank(made)
    for name, difference in (("counts", 3.2 - 3.1), ("same", 0.0)):
        found = row(frame, name)
        assert found["loss"] == found["low"] == found["high"]
        assert found["difference"] == found["difference_low"] == found["difference_high"]
        assert (found["difference"], found["p"], found["p_raw"]) == (difference, None, None)
    assert row(frame, "net")["p"] == row(frame, "net")["p_raw"]  # the only test there is
    marks = dict(frame.select("point", "marks").iter_rows())
    fixed = ["fixed"]
    assert marks == {"full": fixed, "counts": fixed, "same": fixed, "net": [], "once": []}


def test_errors_say_what_to_do(made):
    with pytest.raises(UserError, match="'toy' has confirmed no point yet; run its sweep again"):
        rank(made)
    made.run("full", 1, 3.0, stage="confirm", test=False)
    made.study["chosen"]["full"] = {"setting": {}, "runs": ["full-confirm-1"], "edge": []}
    made.study["points"].append({"id": "full", "label": "full", "aliases": []})
    with pytest.raises(UserError, match=r"'toy' has no test results yet; .* --at EPOCH"):
        rank(made)
    assert rank(made, at=3)["loss"].to_list() == [3.0]
    with pytest.raises(UserError, match="no metric 'bits'; known: token, sentence"):
        rank(made, metric="bits")


def test_the_studys_budget_is_ranked_and_others_are_not_mixed_in(made):
    made.study["budget"]["epochs"] = 6
    made.point("full", [3.0, 3.2])
    made.point("gate", [3.1, 3.3])
    for run, loss in (("full-confirm-1", 2.0), ("gate-confirm-1", 2.2), ("gate-confirm-2", 2.4)):
        test = {"event": "test", "epoch": 6, "token": loss, "sentence": loss}
        RunFolder(made.path / run).append(test)
    stale = made.run("full", 9, 1.0, stage="confirm")  # confirmed a setting no longer chosen
    RunFolder(made.path / stale).append({"event": "test", "epoch": 9, "token": 1.0})
    frame = rank(made)
    assert row(frame, "full")["epoch"] == 6
    assert (row(frame, "full")["loss"], row(frame, "full")["marks"]) == (2.0, ["missing"])
    assert math.isclose(row(frame, "gate")["loss"], 2.3)


def test_back_at_a_smaller_budget_what_came_behind_it_does_not_count(made):
    made.point("full", [3.0, 3.2])
    epoch = made.study["budget"]["epochs"]
    for event in ({"event": "test", "epoch": epoch + 3, "token": 2.0, "sentence": 2.0},
                  {"event": "end", "epoch": epoch + 3, "status": "diverged"}):  # fmt: skip
        RunFolder(made.path / "full-confirm-1").append(event)
    frame = rank(made)
    assert row(frame, "full")["epoch"] == epoch
    assert math.isclose(row(frame, "full")["loss"], 3.1)
    assert row(frame, "full")["marks"] == []


def test_a_budget_below_every_test_is_refused(made):
    made.point("full", [3.0, 3.2])
    tested = made.study["budget"]["epochs"]
    made.study["budget"]["epochs"] = tested - 1
    with pytest.raises(UserError, match=rf"tested at {tested} only; .* --epochs {tested}$"):
        rank(made)
