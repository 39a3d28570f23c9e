"""The console's table fits the screen, its numbers add up, and its verdicts are the ranking's."""

import dataclasses
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console as RichConsole

from lmzoo import Point
from lmzoo.lab.statistics.compared import compared
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.point_planner import MOST_AGAIN
from lmzoo.lab.study.study_store import StudyStore
from lmzoo.lab.sweep.fleet.fleet import Fleet
from lmzoo.lab.sweep.fleet.packing import Packer
from lmzoo.lab.sweep.screen.console import Console, choose, counts, so_far
from lmzoo.trainables.resolve import resolve

from .fake_fleet import drive


@pytest.fixture(scope="module")
def many(corpus, corpus_fields, sentences, tmp_path_factory):
    """The planner of 92 points."""
    from tests.toy_study import toy_study

    points = (Point(f"width {i}", "DLM46", {"width": 3 + i}) for i in range(92))
    fields = {k: v for k, v in toy_study(sentences).fields.items() if k != "model.width"}
    study = dataclasses.replace(
        toy_study(sentences), points=tuple(points), fields=fields, samples=1
    )
    resolved = [p for p in resolve(study, corpus, corpus_fields) if not p.baseline]
    store = StudyStore(tmp_path_factory.mktemp("many"))
    yield Planner(study, resolved, store)
    store.close()


def _fleet(planner, console):
    fleet = Fleet(planner, Packer(planner.points[0].point.corpus, None), [console])
    console.fleet, console.workers = fleet, lambda: 1
    return fleet


def _screen(console, width, height):
    screen = RichConsole(file=io.StringIO(), width=width, height=height)
    console.stderr = screen
    screen.print(console.panel())
    return screen.file.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (160, 50), (40, 10)])
def test_the_panel_fits_the_screen(many, width, height):
    console = Console(as_json=False)
    console.waiting = lambda: "waiting for 4 GPUs, " * 9
    _fleet(many, console)
    lines = _screen(console, width, height)
    assert len(lines) <= height - 1
    assert max(map(len, lines)) <= width
    if width >= 80:
        shown = sum("width" in line for line in lines)
        rest = next(line for line in lines if line.startswith("..."))
        assert rest.startswith(f"... {92 - shown} more")


@settings(max_examples=30)
@given(st.integers(2, 95), st.lists(st.integers(0, 91), unique=True))
def test_points_that_changed_last_are_shown_in_the_order_of_the_study(many, room, changed):
    recent = [many.points[i].point.label for i in changed]
    shown = choose(many.points, recent, room)
    assert len(shown) <= room
    order = [many.points.index(point) for point in shown]
    assert order == sorted(order)
    assert len(shown) == 92 or {*changed[len(changed) - (room - 2) :]} <= {*order} | {*changed[:1]}


def test_counts_add_up_at_every_time(planner):
    console = Console(as_json=False, quiet=True)
    fleet = _fleet(planner, console)
    total = sum(point.samples + planner.study.seeds for point in planner.points)
    while not fleet.done:
        drive(fleet, steps=3)
        if fleet.workers:
            fleet.give_back(fleet.gone("w"), interrupted=True)
        sums = [counts(point, console._running) for point in planner.points]
        assert all(value >= 0 for numbers in sums for value in numbers.values())
        measured = sum(sum(numbers.values()) for numbers in sums)
        assert total <= measured <= total + MOST_AGAIN * len(planner.points)
    assert sum(n["pending"] + n["running"] for n in sums) == 0
    assert sum(n["pruned"] for n in sums) > 0


def test_at_the_end_the_verdicts_are_those_of_all_confirm_runs(planner, corpus):
    console = Console(as_json=False, quiet=True)
    worse = planner.points[1].point.label
    drive(_fleet(planner, console), level=lambda run: 0.5 * (run.label == worse))
    for _ in planner.points:
        known = so_far(planner)
    losses = np.array([[run.test_loss for run in p.confirm_runs] for p in planner.points])
    sd = [p.tuning_sd for p in planner.points]
    found = compared(losses, 0, tuning_sd=sd, margin=planner.study.margin).verdict
    assert [known[p].verdict for p in planner.points] == ["reference", *found[1:]]
    assert known[planner.points[1]].verdict == "worse"
    lines = "\n".join(_screen(console, 160, 50))
    assert "worse" in lines
    assert known[planner.points[1]].difference in lines
    assert "100 % of the epochs" in lines
