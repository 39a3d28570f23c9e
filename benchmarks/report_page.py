"""Make the report of 240 points and 1,920 runs, and open it in a browser without a network.

    python benchmarks/report_page.py --out runs/bench/report_page.json

The rows are the time until the first chart is visible, the time until all are drawn, the CPU time
of the page's thread until then, which other processes affect least, and the time of `lmzoo report`.
Needs playwright and a chromium on the PATH.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from measure import Ratio, save, time_ratio
from playwright.sync_api import sync_playwright
from ranking import write_study

from lmzoo.analysis.report import render_report
from lmzoo.command_line import run_command
from lmzoo.errors import UserError

POINTS, SEEDS = 240, 8
LIMIT = 2.0
"""Seconds that a page may take to open."""
LARGEST = 3_000_000
"""Bytes of a page."""
FIRST = "document.querySelector('.chart svg')"
ALL = "document.documentElement.dataset.drawn"


def main(
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    out: Annotated[Path, typer.Option(help="The JSON file.")] = Path("runs/bench/report_page.json"),
) -> None:
    """Write the study and the page, then measure."""
    with tempfile.TemporaryDirectory() as folder:
        study, page = Path(folder, "study"), Path(folder, "report.html")
        write_study(study, POINTS, SEEDS)
        begin = time.perf_counter()
        page.write_text(render_report(study, use_models=False))
        made = time.perf_counter() - begin
        size = page.stat().st_size
        assert size < LARGEST, f"{size:,} bytes"
        with chromium() as browser:
            opened = [open_page(browser, page) for _ in range(rounds + 1)][1:]
    at = f"{POINTS} points x {SEEDS} runs, {size / 1e6:.2f} MB"
    save([*rows(at, opened), seconds_beside_limit("lmzoo report", at, [made], None)], out)


def rows(at: str, opened: list[tuple[float, float, float]]) -> list[Ratio]:
    """Return the rows of the times of the page."""
    first, drawn, spent = zip(*opened, strict=True)
    return [
        seconds_beside_limit("first chart", at, list(first), 1.0),
        seconds_beside_limit("all charts", at, list(drawn), 1.0),
        seconds_beside_limit("all charts, CPU time", at, list(spent), 1.0),
    ]


def seconds_beside_limit(what: str, at: str, seconds: list[float], goal: float | None) -> Ratio:
    """Return seconds as a ratio to the limit of a page."""
    return time_ratio(what, at, f"{LIMIT:g} s", seconds, [LIMIT] * len(seconds), goal)


@contextmanager
def chromium() -> Iterator[Any]:
    """Yield a headless browser."""
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        raise UserError("no browser on the PATH; install chromium")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def open_page(browser: Any, page: Path) -> tuple[float, float, float]:
    """Return the seconds until the first chart and until all charts, and the CPU time, of a tab."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, offline=True)
    tab = context.new_page()
    tools = context.new_cdp_session(tab)
    tools.send("Performance.enable", {"timeDomain": "threadTicks"})
    begin = time.perf_counter()
    tab.goto(page.as_uri(), wait_until="commit")
    tab.wait_for_function(FIRST)
    first = time.perf_counter() - begin
    tab.wait_for_function(ALL)
    drawn = time.perf_counter() - begin
    metrics = tools.send("Performance.getMetrics")["metrics"]
    spent = next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")
    context.close()
    return first, drawn, spent


if __name__ == "__main__":
    run_command(main)
