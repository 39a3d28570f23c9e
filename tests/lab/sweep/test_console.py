"""What the console prints: a table on a terminal, plain lines elsewhere, JSON, nothing."""

import io
import json

import pytest
from rich.console import Console as RichConsole

from lmzoo.lab.sweep.fleet.fleet import Fleet
from lmzoo.lab.sweep.fleet.packing import Packer
from lmzoo.lab.sweep.messages import Ended, Exchange
from lmzoo.lab.sweep.screen import console as module
from lmzoo.lab.sweep.screen.console import Console

from .fake_fleet import drive
from .processes import wait_until

WAITING = "waiting for 4 GPUs, 1 of 5 nodes is there"


def _console(planner, *, terminal, **options):
    stderr = RichConsole(file=io.StringIO(), force_terminal=terminal, width=120, height=40)
    console = Console(as_json=options.pop("as_json", False), stderr=stderr, **options)
    console.fleet = Fleet(planner, Packer(planner.points[0].point.corpus, None), [console])
    console.workers = lambda: 1
    return console


def test_a_log_gets_one_line_for_each_change_of_what_is_awaited(planner):
    console = _console(planner, terminal=False)
    states = [WAITING, WAITING, ""]
    console.waiting = lambda: states.pop(0) if states else ""
    with console:
        wait_until(lambda: not states, 20)
        wait_until(lambda: "room" in console.stderr.file.getvalue(), 20)
    assert console.stderr.file.getvalue().splitlines() == [WAITING, "all workers have room"]


def test_the_panel_shows_what_is_awaited_and_what_is_done(planner):
    console = _console(planner, terminal=False)
    console.waiting = lambda: WAITING
    drive(console.fleet, steps=4)
    console.stderr = RichConsole(file=io.StringIO(), width=120, height=40)
    console.stderr.print(console.panel())
    text = console.stderr.file.getvalue()
    assert WAITING in text
    assert "1 of 1 workers train" in text
    assert " left" in text
    assert "cut state_to_candidate (4)" in text


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_a_terminal_keeps_the_last_table(planner, error):
    console = _console(planner, terminal=True)
    try:
        with console:
            drive(console.fleet)
            if error:
                raise error
    except KeyboardInterrupt:
        pass
    last = console.stderr.file.getvalue()[-4000:].splitlines()
    assert any("100 % of the epochs" in line for line in last[-5:])
    assert any("wild type" in line for line in last[-12:])


def test_epochs_that_are_trained_again_are_not_counted_as_done(planner, monkeypatch):
    """A worker dies after the last epoch of a run, whose checkpoint is lost, too."""
    console = _console(planner, terminal=False)
    fleet, ended, budget = console.fleet, console.fleet.ended, planner.study.epochs
    lost = []

    def end(name: str, run: Ended) -> None:
        if planner._runs[run.run].stage == "confirm" and not lost:
            lost.append(run.run)
        elif run.run not in lost:
            ended(name, run)

    monkeypatch.setattr(fleet, "ended", end)
    drive(fleet, steps=60)
    fleet.give_back(fleet.gone("w"), interrupted=True)
    shares = [_share(console)]
    (run_id,) = fleet.exchange(Exchange("v", 0), live=1, now=60.0).members
    assert [run_id] == lost
    for epoch in range(1, budget + 1):
        reports = [(run_id, {"epoch": epoch, "valid_token": 3.0})]
        fleet.exchange(Exchange("v", 0, [run_id], reports), live=1, now=60.0 + epoch)
        shares.append(_share(console))
    assert shares[0] == shares[-1] == 99
    assert shares[1] < 98
    assert shares[1:] == sorted(shares[1:])
    ended("v", Ended(run_id, "finished", test={"token": 3.0}))
    assert _share(console) == 100


def _share(console) -> int:
    """Return the percentage that the progress states."""
    console._looked = -module.LOOK_SECONDS
    console._look()
    return int(console._progress().partition(" %")[0])


def test_a_log_has_plain_lines_with_the_progress(planner, monkeypatch):
    monkeypatch.setattr(module, "PROGRESS_SECONDS", 0.0)
    console = _console(planner, terminal=False)
    with console:
        drive(console.fleet)
        wait_until(lambda: "% of the epochs" in console.stderr.file.getvalue(), 20)
    text = console.stderr.file.getvalue()
    assert "\x1b" not in text
    assert "nats/token" in text
    ended = [line for line in text.splitlines() if line.startswith(("finished", "pruned"))]
    assert len(ended) >= 3 * (4 + 2), "and runs that measure a setting again"


def test_json_has_one_object_a_line_and_quiet_prints_nothing(planner, capsys):
    console = _console(planner, terminal=False, as_json=True, quiet=True)
    with console:
        drive(console.fleet)
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(objects) >= 3 * (4 + 2)
    assert {item["status"] for item in objects} == {"finished", "pruned"}
    assert all(item["test_token"] for item in objects if item["stage"] == "confirm")
    assert console.stderr.file.getvalue() == ""


@pytest.mark.parametrize("same_terminal", [True, False])
def test_json_on_the_terminal_of_the_table_gets_plain_lines(planner, monkeypatch, same_terminal):
    """A table that is drawn again and again would be mixed with the JSON lines."""
    stdout = io.StringIO()
    monkeypatch.setattr(stdout, "isatty", lambda: same_terminal)
    monkeypatch.setattr("sys.stdout", stdout)
    console = _console(planner, terminal=True, as_json=True)
    with console:
        drive(console.fleet)
    assert all(json.loads(line) for line in stdout.getvalue().splitlines())
    assert ("cut state_to_candidate" in console.stderr.file.getvalue()) != same_terminal
