"""Open a page in a headless browser."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

DRAWN = "!document.querySelector('.chart') || document.documentElement.dataset.drawn"

ALL_DRAWN = "[...document.querySelectorAll('.chart')].every(x => x.querySelector('svg'))"


@contextmanager
def launched() -> Iterator[Any]:
    """Yield a browser; skip the test if there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    names = ("chromium", "chromium-browser", "google-chrome")
    chrome = next(filter(None, map(shutil.which, names)), None)
    if chrome is None:
        pytest.skip("needs a chromium on the PATH")
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chrome, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def browse(
    page: Path,
    width: int = 1100,
    scheme: str = "light",
    browser: Any = None,
    *,
    opened: bool = False,
) -> Iterator[Any]:
    """Open the page offline, wait for its charts, and yield the tab; `opened` opens all folds."""
    with launched() if browser is None else nullcontext(browser) as browser:
        window = {"width": width, "height": 900}
        context = browser.new_context(viewport=window, color_scheme=scheme, offline=True)
        tab = context.new_page()
        tab.requests = []
        tab.messages = []
        tab.on("request", lambda request: tab.requests.append(request.url))
        tab.on("console", lambda message: tab.messages.append(message.text))
        tab.on("pageerror", lambda error: tab.messages.append(str(error)))
        tab.goto(page.resolve().as_uri(), wait_until="load")
        tab.wait_for_function(DRAWN)
        if opened:
            tab.eval_on_selector_all("details", "all => all.forEach(x => { x.open = true; })")
            tab.wait_for_function(ALL_DRAWN)
        yield tab
        context.close()
