"""What the console prints: a table that fits a terminal, plain lines elsewhere, JSON, nothing."""

import contextlib
import dataclasses
import io
import json
import sys
import threading
import time
from collections import Counter
from contextlib import closing

import pytest
from rich.console import Console as RichConsole

from lmzoo import Point
from lmzoo.base.errors import UserError
from lmzoo.lab.cluster.connection import _WithoutRay
from lmzoo.lab.cluster.resources import Resources
from lmzoo.lab.study import trainable
from lmzoo.lab.study.planner import Planner
from lmzoo.lab.study.point_planner import MOST_AGAIN
from lmzoo.lab.study.study_store import StudyStore
from lmzoo.lab.sweep.driver import execution
from lmzoo.lab.sweep.fleet.fleet import Fleet
from lmzoo.lab.sweep.fleet.packing import Packer
from lmzoo.lab.sweep.messages import Ended, Exchange
from lmzoo.lab.sweep.screen import console as module
from lmzoo.lab.sweep.screen.console import Console, counts, point_table
from lmzoo.trainables.resolve import resolve
from tests.toy_study import toy_study

from .fake_fleet import drive
from .processes import wait_until

WAITING = "waiting for 4 GPUs, 1 of 5 nodes is there"


def make_console(planner, *, terminal=False, **options) -> Console:
    stderr = RichConsole(file=io.StringIO(), force_terminal=terminal, width=120, height=40)
    console = Console(stderr, **options)
    console.fleet = Fleet(planner, Packer(planner.points[0].point.corpus, None), [console])
    console.workers = lambda: 1
    return console


def test_what_ray_prints_does_not_reach_a_terminal_and_what_a_listener_prints_does():
    stderr = RichConsole(file=io.StringIO(), force_terminal=True)
    with contextlib.redirect_stdout(_WithoutRay()), Console(stderr):
        # Ray prints what its workers say from a thread of this name.
        of_ray = threading.Thread(target=print, args=("(raylet) died",), name="ray_listen")
        of_ray.start()
        of_ray.join()
        sys.stdout.write("an epoch\n")
    written = stderr.file.getvalue()
    assert "raylet" not in written
    assert "an epoch" in written


def panel(console, width=120, height=40) -> list[str]:
    """Return the lines of the panel on a screen of this size."""
    console.stderr = RichConsole(file=io.StringIO(), width=width, height=height)
    console.stderr.print(console.panel())
    return console.stderr.file.getvalue().splitlines()


def test_a_log_has_plain_lines_with_the_progress_and_what_is_awaited(planner, monkeypatch):
    monkeypatch.setattr(module, "PROGRESS_SECONDS", 0.0)
    console = make_console(planner)
    states = [WAITING, ""]
    console.waiting = lambda: states.pop(0) if states else ""
    with console:
        drive(console.fleet, steps=4)
        said = console.stderr.file.getvalue
        wait_until(lambda: "% of the epochs" in said() and "all workers have room" in said(), 20)
        console.fleet.give_back(console.fleet.gone("w"), interrupted=True)
        drive(console.fleet)
    lines = said().splitlines()
    # The letter that begins a colour or a move of the cursor.
    assert "\x1b" not in said()
    assert lines.count(WAITING) == 1
    assert lines.count("all workers have room") == 1
    ended = [line for line in lines if line.startswith(("finished", "pruned"))]
    assert len(ended) >= 3 * (4 + 2), "and runs that measure a setting again"
    for line in ended:
        assert " valid loss " in line, "a ranking has the test loss"
    assert "nats/token" in ended[0]


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_a_terminal_keeps_the_last_table(planner, error):
    console = make_console(planner, terminal=True)
    with contextlib.suppress(KeyboardInterrupt), console:
        drive(console.fleet)
        if error:
            raise error
    last = console.stderr.file.getvalue()[-4000:].splitlines()
    assert "100 % of the epochs" in "".join(last[-5:])
    assert "wild type" in "".join(last[-12:])


def test_epochs_that_are_trained_again_are_not_counted_as_done(planner, monkeypatch):
    """A worker dies after the last epoch of a run, whose checkpoint is lost, too."""
    console = make_console(planner)
    fleet = console.fleet
    ended = console.fleet.ended
    budget = planner.study.epochs
    lost = []

    def end(name: str, run: Ended) -> None:
        if planner._runs[run.run].stage == "confirm" and not lost:
            lost.append(run.run)
        elif run.run not in lost:
            ended(name, run)

    monkeypatch.setattr(fleet, "ended", end)
    drive(fleet, steps=60)
    fleet.give_back(fleet.gone("w"), interrupted=True)
    assert share(console) == 99
    (run_id,) = fleet.exchange(Exchange("v"), live=1, now=60.0).members
    assert [run_id] == lost
    shares = []
    for epoch in range(1, budget + 1):
        reports = [(run_id, {"epoch": epoch, "valid_token": 3.0})]
        fleet.exchange(Exchange("v", [run_id], reports), live=1, now=60.0 + epoch)
        shares.append(share(console))
    assert shares == sorted(shares)
    # The epochs that were lost count as not done.
    assert shares[0] < 98
    # The test is not there yet.
    assert shares[-1] == 99
    ended("v", Ended(run_id, "finished", test={"token": 3.0}))
    assert share(console) == 100


def share(console) -> int:
    """Return the percentage that the progress states."""
    console._look()
    percent, _, _ = console._progress().partition(" %")
    return int(percent)


def test_json_has_one_object_a_line_and_quiet_prints_nothing(planner, capsys):
    console = make_console(planner, as_json=True, quiet=True)
    with console:
        drive(console.fleet)
    lines = capsys.readouterr().out.splitlines()
    runs = list(map(json.loads, lines))
    assert len(runs) >= 3 * (4 + 2)
    assert {run["status"] for run in runs} == {"finished", "pruned"}
    for run in runs:
        if run["stage"] == "confirm":
            assert run["test_token"]
    assert console.stderr.file.getvalue() == ""


@pytest.fixture(scope="module")
def many(corpus, corpus_fields, sentences, tmp_path_factory):
    """The planner of 92 points."""
    toy = toy_study(sentences)
    points = tuple(Point(f"width {i}", "DLM46", {"width": 3 + i}) for i in range(92))
    fields = toy.fields.copy()
    # Each point has a width of its own.
    del fields["model.width"]
    study = dataclasses.replace(toy, points=points, fields=fields, samples=1)
    resolved = resolve(study, corpus, corpus_fields)
    compared = [point for point in resolved if not point.baseline]
    with closing(StudyStore(tmp_path_factory.mktemp("many"))) as store:
        yield Planner(study, compared, store)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (160, 50), (40, 10)])
def test_the_panel_fits_the_screen(many, width, height):
    console = make_console(many)
    console.waiting = lambda: "waiting for 4 GPUs, " * 9
    lines = panel(console, width, height)
    assert len(lines) <= height - 1
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize(("width", "height"), [(80, 24), (160, 50)])
def test_the_panel_counts_the_points_that_it_does_not_show(many, width, height):
    lines = panel(make_console(many), width, height)
    shown = sum("width" in line for line in lines)
    (rest,) = [line for line in lines if line.startswith("...")]
    assert rest.startswith(f"... {92 - shown} more")


def test_points_in_training_are_shown_before_others(many):
    (last,) = [run.id for run in many.ready() if run.label == "width 91"]
    table = point_table(many.points, {last}, 5, 80)
    labels = list(table.columns[0].cells)
    assert labels == ["width 0", "width 1", "width 91", "... 89 more"]


def test_counts_add_up_at_every_time(planner):
    console = make_console(planner, quiet=True)
    fleet = console.fleet
    total = sum(point.samples + planner.study.seeds for point in planner.points)
    while not fleet.done:
        drive(fleet, steps=3)
        if fleet.workers:
            fleet.give_back(fleet.gone("w"), interrupted=True)
        found = Counter()
        for point in planner.points:
            numbers = counts(point, console._running)
            assert min(numbers.values()) >= 0
            found.update(numbers)
        assert total <= found.total() <= total + MOST_AGAIN * len(planner.points)
    assert found["pending"] == found["running"] == 0
    assert found["pruned"] > 0


def test_a_spinner_moves_on_a_terminal_while_a_sweep_loads(study, tmp_path, monkeypatch):
    def slow_door():
        # Long enough for some moves of the spinner.
        time.sleep(0.3)
        raise UserError("the door is shut")

    text = io.StringIO()
    terminal = RichConsole(file=text, force_terminal=True)
    monkeypatch.setattr(execution, "progress_console", lambda: terminal)
    monkeypatch.setattr(trainable, "open_door", slow_door)
    sweep = execution.Sweep(study, Resources(), is_command=False)
    with pytest.raises(UserError, match="shut"):
        sweep.run(None, tmp_path, "", {}, dry_run=True)
    written = text.getvalue()
    moves = set("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏").intersection(written)
    assert len(moves) > 1
    cursor_hidden = written.rindex("\x1b[?25l")
    cursor_shown = written.rindex("\x1b[?25h")
    assert cursor_shown > cursor_hidden
