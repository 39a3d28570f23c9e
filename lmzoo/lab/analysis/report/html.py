"""Write one self-contained HTML page: no font, image or script from another file.

Charts are Vega-Lite specifications inside the page. Its scripts (Vega, Vega-Lite and Vega-Embed,
which `vl_convert` carries) are inside, too, and packed. A content security policy forbids the page
to load anything. Colours are CSS variables with a light and a dark value, also in charts, which so
follow the reader's setting and are light in a print. The HTML is in `parts.html`.
"""

import base64
import functools
import gzip
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup, escape

from lmzoo.lab.statistics.compared import VERDICTS

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "script-src 'unsafe-inline' 'unsafe-eval'"  # Vega compiles its expressions
)
SNIPPET = "window.vegaEmbed = vegaEmbed;"
FOLDER = Path(__file__).parent
TEMPLATES = Environment(
    loader=FileSystemLoader(FOLDER), autoescape=True, trim_blocks=True, lstrip_blocks=True
)
SUBSCRIPT = re.compile(r"(?<=[^\W_])_(?:\{([^}]+)\}|(\w{1,2})\b)")


def equation(line: str) -> Markup:
    """Return "carry (6): h_{t-1} W_hh" as HTML, with subscripts behind the name of the cut."""
    name, colon, rest = line.partition(": ")
    marked = SUBSCRIPT.sub(lambda found: f"<sub>{found[1] or found[2]}</sub>", str(escape(rest)))
    return escape(name) + Markup(colon + marked)  # escaped above


TEMPLATES.globals |= {"zip": zip, "verdicts": VERDICTS, "equation": equation}


@dataclass(frozen=True)
class Section:
    """A heading and its content as HTML."""

    title: str
    body: str
    folded: bool = False
    """A click on the heading shows the content."""

    @property
    def anchor(self) -> str:
        return "-".join(self.title.lower().split())


def macro(name: str, *values: Any, **options: Any) -> str:
    """Return the HTML of a macro of `parts.html`, which escapes its texts.

    It is a plain string: a `Markup` would escape what is added to it.
    """
    return str(getattr(TEMPLATES.get_template("parts.html").module, name)(*values, **options))


paragraphs: Callable[..., str] = functools.partial(macro, "paragraphs")
"""One paragraph for each line, of the CSS class `kind`."""
folded: Callable[[str, str], str] = functools.partial(macro, "folded")
"""HTML that a click on its title shows; nothing if it is empty."""
code_block: Callable[[str], str] = functools.partial(macro, "code_block")
"""Preformatted text, as for commands and sentences."""
html_table: Callable[..., str] = functools.partial(macro, "table")
"""A table. A click on a heading sorts it and a word filters it, if its `kind` is "sortable".
`notes` are lines below the text of a point, by this text."""


def html_page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """Return the whole page: title (plain text), lead, links to the sections, sections."""
    bodies = [lead] + [section.body for section in sections]
    library = ""
    if 'class="chart"' in "".join(bodies):
        library = _vega()
    script = (FOLDER / "page.js").read_text("utf-8")
    css = (FOLDER / "page.css").read_text("utf-8")
    return macro("page", title, lead, sections, POLICY, css, library, script).lstrip()


def chart_figure(chart: Mapping[str, Any]) -> str:
    """Return a chart, drawn by the page's script.

    Its title and notes become the caption, which the browser wraps; the title names the chart for a
    screen reader.
    """
    content = dict(chart)
    title = content.pop("title")
    content["description"] = title["text"]
    spec = packed(json.dumps(content))
    return macro("figure", title["text"], title.get("subtitle") or [], spec)


def download_link(text: str, name: str) -> str:
    """Return a link that saves `text` as a file."""
    return macro("download_link", packed(text), name)


@functools.cache
def _vega() -> str:
    # Only a page with charts needs the extra `figures`.
    import vl_convert

    return packed(vl_convert.javascript_bundle(SNIPPET))


def packed(text: str) -> str:
    """Return a text as base64 of gzip, which `page.js` unpacks."""
    # Without a time, equal texts have equal bytes.
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
