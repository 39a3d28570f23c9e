"""Write one self-contained HTML page: no font, image or script from another file.

Charts are Vega-Lite specifications inside the page. Its scripts (Vega, Vega-Lite and Vega-Embed,
which `vl_convert` carries) are inlined. A content security policy forbids the page to load
anything. Colours are CSS variables with a light and a dark value, so that a chart follows the
reader's setting; `page.js` puts their values into the specifications.
"""

import base64
import functools
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

import vl_convert

from lmzoo.analysis.text.render import TextTable

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "script-src 'unsafe-inline' 'unsafe-eval'"  # Vega compiles its expressions
)
SNIPPET = "window.vegaEmbed = vegaEmbed;"
VERDICTS = ("worse", "better", "equivalent", "undecided")


@dataclass(frozen=True)
class Section:
    """A heading and its content as HTML."""

    title: str
    body: str

    @property
    def anchor(self) -> str:
        """The section's id in the page."""
        return "-".join(self.title.lower().split())


def html_page(title: str, lead: str, sections: Sequence[Section], *, point: str = "") -> str:
    """Return the whole page: title (plain text), lead, links to the sections, sections.

    The charts show the point with this label at first, or all.
    """
    links = "".join(f'<a href="#{s.anchor}">{escape(s.title)}</a>' for s in sections)
    body = _unique_regions(
        f'<section id="{s.anchor}" aria-labelledby="{s.anchor}-title">'
        f'<h2 id="{s.anchor}-title">{escape(s.title)}</h2>\n{s.body}\n</section>\n'
        for s in sections
    )
    scripts = ""
    if 'class="chart"' in body:
        scripts += f"<script>{_vega()}</script>\n"
    scripts += f"<script>{_asset('page.js')}</script>\n"
    return (
        f'<!doctype html>\n<html lang="en" data-point="{escape(point)}">\n'
        '<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>{_asset('page.css')}</style>\n</head>\n<body>\n"
        f"<header><h1>{escape(title)}</h1>\n{lead}</header>\n"
        f'<nav aria-label="Sections">{links}</nav>\n<main>\n{body}</main>\n'
        f"{scripts}</body>\n</html>\n"
    )


def _unique_regions(sections: Iterable[str]) -> str:
    """Join sections; a region with the name of an earlier one gets a number."""
    seen: Counter[str] = Counter()

    def name(found: re.Match[str]) -> str:
        seen[found[1]] += 1
        again = f" ({seen[found[1]]})" if seen[found[1]] > 1 else ""
        return f'role="region" aria-label="{found[1]}{again}"'

    return re.sub(r'role="region" aria-label="([^"]*)"', name, "".join(sections))


def paragraphs(lines: Sequence[str], kind: str = "note") -> str:
    """Return one paragraph for each line, of the CSS class `kind`."""
    return "".join(f'<p class="{kind}">{escape(line)}</p>\n' for line in lines)


def code_block(text: str) -> str:
    """Return preformatted text, as for commands and sentences."""
    return f'<pre tabindex="0">{escape(text)}</pre>\n'


def html_table(
    table: TextTable, *, kind: str = "", notes: Mapping[str, Sequence[str]] | None = None
) -> str:
    """Return a table; columns of text are aligned left, numbers right.

    Args:
        table: the table.
        kind: a table that is "sortable" is sorted by a click on a heading, and filtered by a word.
        notes: lines below the text of a point, by this text.
    """
    text = {i for i, name in enumerate(table.header) if name in table.text_columns}

    def cells(row: Sequence[str], tag: str, scope: str = "") -> str:
        out = ""
        for i, cell in enumerate(row):
            verdict = cell.split(" ")[0] if cell.split(" ")[0] in VERDICTS else ""
            point = "point" if table.header[i] == "point" else ""
            kinds = " ".join(filter(None, ("text" if i in text else "", verdict, point)))
            lines = (notes or {}).get(cell, ()) if point and tag == "td" else ()
            below = "".join(f'<span class="equation">{escape(line)}</span>' for line in lines)
            opening = f"<{tag}{scope}" + f' class="{kinds}"' * bool(kinds)
            out += f"{opening}>{escape(cell)}{below}</{tag}>"
        return f"<tr>{out}</tr>\n"

    head = cells(table.header, "th", ' scope="col"')
    body = "".join(cells(row, "td") for row in table.rows)
    title, content = escape(table.title), f"<thead>{head}</thead><tbody>{body}</tbody>"
    kinds = f' class="{kind}"' if kind else ""
    # The title stands outside: a caption would be as wide as the table, and scroll with it.
    return (
        f'<p class="caption">{title}</p>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">'
        f'<table{kinds} aria-label="{title}">{content}</table></div>\n'
    )


def chart_figure(chart: Any) -> str:
    """Return an altair chart, drawn by the page's script.

    Its title and notes become the caption, which the browser wraps; the title names the chart for a
    screen reader.
    """
    content = chart.to_dict()
    title = content.pop("title")
    content["description"] = title["text"]
    notes = "".join(f"<span>{escape(note)}</span>" for note in title.get("subtitle") or [])
    spec = json.dumps(content).replace("<", "\\u003c")
    return (
        f'<figure tabindex="0"><figcaption><b>{escape(title["text"])}</b>{notes}</figcaption>'
        f'<div class="chart" role="img" aria-label="{escape(title["text"])}"></div>'
        f'<script type="application/json">{spec}</script></figure>\n'
    )


def download_link(text: str, name: str) -> str:
    """Return a link that saves `text` as a file."""
    data = base64.b64encode(text.encode()).decode()
    link = f'download="{escape(name)}" href="data:text/csv;base64,{data}"'
    return f"<p><a {link}>{escape(name)}</a></p>\n"


@functools.cache
def _vega() -> str:
    return vl_convert.javascript_bundle(SNIPPET).replace("</script", "<\\/script")


def _asset(name: str) -> str:
    return files("lmzoo.analysis.report").joinpath(name).read_text(encoding="utf-8")
