"""Open a page in a headless browser and report what it loads and shows."""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest


class LoadedPage(NamedTuple):
    """A page as a browser shows it."""

    title: str
    text: str
    requests: list[str]
    """Addresses of all requests other than the page itself."""
    messages: list[str]
    """Messages of the console, and errors."""
    width: int
    """Width of the content in a window of 1100 pixels."""
    figures: list[dict[str, Any]]
    """Width and height of each figure."""


def open_page(page: Path) -> LoadedPage:
    """Open the page offline; skip the test if there is no browser."""
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    names = ("chromium", "chromium-browser", "google-chrome")
    chrome = next(filter(None, map(shutil.which, names)), None)
    if chrome is None:
        pytest.skip("needs a chromium on the PATH")
    requests: list[str] = []
    messages: list[str] = []
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chrome, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1100, "height": 900}, offline=True)
        tab = context.new_page()
        tab.on("request", lambda request: requests.append(request.url))
        tab.on("console", lambda message: messages.append(message.text))
        tab.on("pageerror", lambda error: messages.append(str(error)))
        tab.goto(page.resolve().as_uri(), wait_until="load")
        boxes = "all => all.map(x => ({width: x.clientWidth, height: x.clientHeight}))"
        loaded = LoadedPage(
            tab.title(),
            tab.inner_text("body"),
            [url for url in requests if url != page.resolve().as_uri()],
            messages,
            tab.evaluate("document.documentElement.scrollWidth"),
            tab.eval_on_selector_all("figure > *", boxes),
        )
        browser.close()
    return loaded
