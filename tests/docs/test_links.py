"""Links between pages lead to files and headings; `make check` builds the site with the same rule.

Pages that are generated from the code, and those of records, are checked by the build alone.
"""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s:]+)\)")
HEADING = re.compile(r"^#{1,6} +(.*?)(?: +\{#([\w.-]+)\})?$", re.M)
GENERATED = (DOCS / "catalogue", DOCS / "reference/api", DOCS / "reference/cli.md")


def text_of(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """Return the ids of a page's headings, as Python-Markdown makes them, and those in its HTML."""
    found = {*re.findall(r'id="([^"]+)"', page.read_text())}
    for title, own in HEADING.findall(text_of(page)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|<[^>]+>|&#?\w+;", r"\1", title)
        plain = re.sub(r"[^\w\s-]", "", plain.encode("ascii", "ignore").decode()).strip().lower()
        found.add(own or re.sub(r"[-\s]+", "-", plain))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_links_lead_to_files_and_headings(page):
    dead = []
    for link in LINK.findall(text_of(page)):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if any(target.is_relative_to(made) for made in GENERATED):
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert dead == []


def test_no_heading_shows_its_raw_id_and_the_build_checks_anchors():
    for page in PAGES:
        raw = [title for title, own in HEADING.findall(text_of(page)) if own and "{" in title]
        assert raw == [], page
    config = (DOCS.parent / "mkdocs.yml").read_text().partition("markdown_extensions")[0]
    assert re.search(r"^    anchors: warn$", config, re.M)
