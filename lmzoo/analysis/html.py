"""Write one self-contained HTML page: no script, and no font or image from another file.

Charts are SVG inside the page. A content security policy in its head forbids it to load anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import vl_convert

from lmzoo.analysis.render import TextTable

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
       max-width: 64rem; margin: 2.5rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; border-top: 1px solid #ddd; padding-top: 1.2rem; }
nav a { margin-right: 1rem; }
a { color: #08519c; }
p { margin: .35rem 0; }
.note { color: #555; font-size: .88rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .7rem 0 .3rem; }
th, td { padding: .22rem .7rem; text-align: right; white-space: nowrap; }
th { border-bottom: 1.5px solid #333; font-weight: 600; }
td { border-bottom: 1px solid #eee; }
th.text, td.text { text-align: left; white-space: normal; overflow-wrap: anywhere; }
pre { background: #f5f5f3; padding: .7rem .9rem; overflow-x: auto; font-size: .84rem;
      white-space: pre-wrap; overflow-wrap: anywhere; }
figure { margin: 1.2rem 0; overflow-x: auto; }
figure svg { max-width: 100%; height: auto; }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True)
class Section:
    """A heading and its content as HTML."""

    title: str
    body: str

    @property
    def anchor(self) -> str:
        """The section's id in the page."""
        return "-".join(self.title.lower().split())


def html_page(title: str, lead: Sequence[str], sections: Sequence[Section]) -> str:
    """Return the whole page: title and lead (plain text), links to the sections, sections."""
    links = "".join(f'<a href="#{s.anchor}">{escape(s.title)}</a>' for s in sections)
    body = "".join(
        f'<section id="{s.anchor}"><h2>{escape(s.title)}</h2>\n{s.body}\n</section>\n'
        for s in sections
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{paragraphs(lead)}\n<nav>{links}</nav>\n{body}</body>\n</html>\n"
    )


def paragraphs(lines: Sequence[str], kind: str = "note") -> str:
    """Return one paragraph for each line, of the CSS class `kind`."""
    return "".join(f'<p class="{kind}">{escape(line)}</p>\n' for line in lines)


def code_block(text: str) -> str:
    """Return preformatted text, as for commands and sentences."""
    return f"<pre>{escape(text)}</pre>\n"


def html_table(table: TextTable) -> str:
    """Return a table; columns of text are aligned left, numbers right."""
    classes = [' class="text"' if name in table.text_columns else "" for name in table.header]

    def row(cells: Sequence[str], tag: str) -> str:
        line = (f"<{tag}{c}>{escape(cell)}</{tag}>" for cell, c in zip(cells, classes, strict=True))
        return f"<tr>{''.join(line)}</tr>\n"

    body = "".join(row(cells, "td") for cells in table.rows)
    head = row(table.header, "th")
    caption = f"<caption>{escape(table.title)}</caption>"
    content = f"{caption}<thead>{head}</thead><tbody>{body}</tbody>"
    return f'<div class="scroll"><table>{content}</table></div>\n'


def svg_figure(chart: Any) -> str:
    """Return an altair chart as SVG."""
    return f"<figure>{vl_convert.vegalite_to_svg(chart.to_dict())}</figure>\n"
