"""A real browser without a window, and what a page did in it."""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest


class Seen(NamedTuple):
    """What a page showed, asked for and complained of."""

    title: str
    text: str
    asked: list[str]
    """Addresses asked for beside the page itself."""
    complaints: list[str]
    width: int
    """What it needs of a window of 1100 pixels."""
    figures: list[dict[str, Any]]
    """Width and height of each picture as drawn."""


def look(page: Path, picture: Path | None = None) -> Seen:
    """Open the page, offline; skip where there is no browser."""
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    chrome = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if chrome is None:
        pytest.skip("needs a chromium on the PATH")
    asked: list[str] = []
    complaints: list[str] = []
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chrome, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1100, "height": 900}, offline=True)
        tab = context.new_page()
        tab.on("request", lambda request: asked.append(request.url))
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.goto(page.resolve().as_uri(), wait_until="load")
        boxes = "all => all.map(x => ({width: x.clientWidth, height: x.clientHeight}))"
        seen = Seen(
            tab.title(),
            tab.inner_text("body"),
            [url for url in asked if url != page.resolve().as_uri()],
            complaints,
            tab.evaluate("document.documentElement.scrollWidth"),
            tab.eval_on_selector_all("figure > *", boxes),
        )
        if picture:
            tab.screenshot(path=str(picture), full_page=True)
        browser.close()
    return seen
