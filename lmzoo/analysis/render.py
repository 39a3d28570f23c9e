r"""A report is words above, sheets of cells, words below; here it becomes text.

    table   for a terminal, in boxes drawn by rich
    md      to paste into a page
    latex   booktabs tables to \input
    csv     one line per row of the frame, all columns
    json    the frame and the words, as one value

A sheet's cells are already words: `standings.py` and its like decide what is said,
this file only how it is laid out, so every analysis renders the same way.
"""

import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import polars as pl
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lmzoo.errors import UserError


@dataclass(frozen=True)
class Sheet:
    """A table of words."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    words: frozenset[str] = frozenset()
    """The columns that hold words: set left and folded where space is short."""


@dataclass(frozen=True)
class Report:
    """What is said about one frame."""

    heading: tuple[str, ...]
    sheets: tuple[Sheet, ...]
    legend: tuple[str, ...]
    frame: pl.DataFrame
    json_columns: frozenset[str] = field(default=frozenset())
    """Columns of the frame whose texts are JSON."""


def render(report: Report, format: str, *, width: int = 100, colour: bool = False) -> str:
    """The report as text in the named format.

    Raises:
        UserError: there is no such format.
    """
    known_format(format)
    if format == "table":
        return _table(report, width=width, colour=colour)
    return FORMATS[format](report)


def known_format(format: str) -> None:
    """Refuse a format that does not exist.

    Raises:
        UserError: there is no such format.
    """
    if format not in ("table", *FORMATS):
        raise UserError(f"no format {format!r}; known: {', '.join(('table', *FORMATS))}")


def _table(report: Report, *, width: int, colour: bool) -> str:
    console = Console(
        file=io.StringIO(), width=width, force_terminal=colour, no_color=not colour, highlight=False
    )
    with console.capture() as capture:
        for line in report.heading:
            console.print(Text(line))
        console.print()
        for sheet in report.sheets:
            console.print(Text(sheet.title, style="bold"))
            console.print(_boxed(sheet))
        for line in report.legend:
            console.print(Text(line))
    return "\n".join(line.rstrip() for line in capture.get().rstrip().splitlines())


def _boxed(sheet: Sheet) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1),
        collapse_padding=True,
    )
    for name in sheet.header:
        wordy = name in sheet.words
        table.add_column(
            name, justify="left" if wordy else "right", no_wrap=not wordy, overflow="fold"
        )
    for row in sheet.rows:
        table.add_row(*map(Text, row))
    return table


def _markdown(report: Report) -> str:
    blocks = ["  \n".join(map(_md, report.heading))]
    for sheet in report.sheets:
        rule = ["---" if name in sheet.words else "---:" for name in sheet.header]
        rows = [sheet.header, *sheet.rows]
        lines = ["| " + " | ".join(map(_md, row)) + " |" for row in rows]
        lines.insert(1, "| " + " | ".join(rule) + " |")
        blocks += [f"**{_md(sheet.title)}**", "\n".join(lines)]
    blocks.append("  \n".join(map(_md, report.legend)))
    return "\n\n".join(filter(None, blocks))


def _md(text: str) -> str:
    return re.sub(r"([\\|*_<\[`])", r"\\\1", text.replace("\n", " "))


TEX = {
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"$<$", ">": r"$>$", "±": r"$\pm$", "−": r"$-$", "≡": r"$\equiv$", "×": r"$\times$",
    "–": "--", "—": "---", "·": r"$\cdot$", "\n": " ",
}  # fmt: skip


def _latex(report: Report) -> str:
    lines = [f"% {line}".replace("\n", " ") for line in report.heading]
    for sheet in report.sheets:
        align = "".join("l" if name in sheet.words else "r" for name in sheet.header)
        header, *body = (" & ".join(map(_tex, row)) + r" \\" for row in (sheet.header, *sheet.rows))
        lines += ["", f"% {sheet.title}", rf"\begin{{tabular}}{{{align}}}", r"\toprule", header]
        lines += [r"\midrule", *body, r"\bottomrule", r"\end{tabular}"]
    return "\n".join([*lines, "", *(f"% {line}" for line in report.legend)])


def _tex(text: str) -> str:
    return "".join(TEX.get(letter, letter) for letter in text)


def _csv(report: Report) -> str:
    lists = pl.col(pl.List(pl.String)).list.join("; ")
    return report.frame.with_columns(lists).write_csv().rstrip("\n")


def _json(report: Report) -> str:
    rows = report.frame.to_dicts()
    for row in rows:
        for name in report.json_columns:
            row[name] = json.loads(row[name]) if row[name] else None
    value = {"heading": report.heading, "rows": rows, "legend": report.legend}
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1)


FORMATS: dict[str, Callable[[Report], str]] = {
    "md": _markdown,
    "csv": _csv,
    "json": _json,
    "latex": _latex,
}
"""What can be written without knowing how wide the reader's window is."""
