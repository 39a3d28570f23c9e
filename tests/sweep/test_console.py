"""The console says what a sweep waits for."""

import io

from rich.console import Console as RichConsole

from lmzoo.sweep.console import Console

from .processes import wait_until

WAITING = "waiting for 4 GPUs, 1 of 5 nodes is there"


def test_a_log_gets_one_line_for_each_change_of_what_is_awaited(planner):
    console = Console(planner, as_json=False)
    console.stderr = RichConsole(file=io.StringIO(), force_terminal=False)
    states = [WAITING, WAITING, ""]
    console.waiting = lambda: states.pop(0) if states else ""
    with console:
        wait_until(lambda: not states, 20)
        wait_until(lambda: "room" in console.stderr.file.getvalue(), 20)
    assert console.stderr.file.getvalue().splitlines() == [WAITING, "all workers have room"]


def test_the_panel_shows_what_is_awaited_and_which_runs_are_trained(planner):
    console = Console(planner, as_json=False)
    console.waiting = lambda: WAITING
    run = planner.ready()[0]
    console.start(run)
    screen = RichConsole(file=io.StringIO(), width=120)
    screen.print(console.panel())
    text = screen.file.getvalue()
    assert WAITING in text
    assert f"tune 0/{run.budget}" in text
    run.status = "finished"
    console.end(run, None)
    screen = RichConsole(file=io.StringIO(), width=120)
    screen.print(console.panel())
    assert f"tune 0/{run.budget}" not in screen.file.getvalue()
