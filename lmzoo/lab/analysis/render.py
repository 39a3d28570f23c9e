r"""Render a report as text. Every form has the answer, the warnings and the tables.

    table   for a terminal, with boxes drawn by rich
    md      Markdown
    latex   tables for \input, with caption and label; they need the package booktabs
    csv     one line per row of the frame, all columns; `warnings` and `made_by` are equal in all
    json    all of it as one value; a minus sign is the ASCII character
    github  Markdown for the summary of a pull request: the answer, the table, the account

A label cannot send escape sequences to a terminal: control characters are shown as `\x1b`.

The cells of the tables are strings: `ranking_table.py` and others format the numbers.
"""

import html
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import polars as pl
from jinja2 import Environment, FileSystemLoader
from polars import DataFrame, String, col, lit
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lmzoo.base.environment import code_version
from lmzoo.base.errors import UserError
from lmzoo.base.plain import Texts
from lmzoo.base.streams import CONTROL, printable
from lmzoo.lab.analysis.study_parquet import SUFFIX
from lmzoo.lab.analysis.words import WORDS
from lmzoo.lab.statistics.compared import STATISTICS
from lmzoo.lab.store.address import S3_SCHEME

FORMS = Path(__file__).with_name("forms")


@dataclass(frozen=True)
class TextTable:
    """A table of strings."""

    title: str
    header: Texts
    rows: Sequence[Sequence[str]]
    text_columns: frozenset[str] = frozenset()
    """Columns of text: aligned left, and wrapped where space is short. Others hold numbers."""

    def without(self, name: str) -> "TextTable":
        place = self.header.index(name)

        def rest(cells: Sequence[str]) -> Texts:
            kept = list(cells)
            kept.pop(place)
            return tuple(kept)

        rows = list(map(rest, self.rows))
        return replace(self, header=rest(self.header), rows=rows)


@dataclass(frozen=True)
class Report:
    """What a command says, made once. Every form prints it; none turns, filters or words it."""

    heading: Texts
    """What the tables hold, in words."""
    tables: tuple[TextTable, ...]
    legend: Texts
    frame: DataFrame
    json_columns: frozenset[str] = field(default=frozenset())
    """Columns of the frame whose strings are JSON."""
    question: str = ""
    answer: str = ""
    """The verdicts in one sentence."""
    warnings: Texts = ()
    """What makes numbers doubtful, the gravest first."""
    grave: int = 0
    """The warnings that stand before the answer, because all numbers are doubtful."""
    caption: str = ""
    """What the numbers are, for a table or a figure without its page."""
    account: Mapping[str, int] = field(default_factory=dict)
    """What was read, by its number, and the parts of that number."""
    aim: str = "next"
    next_command: str = ""
    brief: "Report | None" = None
    """The short form for a terminal, if there is one."""
    says_version: bool = False
    """Whether a line says what computed the numbers; JSON and CSV always do."""

    @property
    def lead(self) -> Texts:
        """The gravest warnings and the answer."""
        graves = self.warnings[: self.grave]
        return tuple(filter(None, graves + (self.answer,)))

    @property
    def opening(self) -> Texts:
        """All lines before the tables."""
        lines = [self.question]
        lines += self.lead
        lines += self.warnings[self.grave :]
        lines += self.heading
        return tuple(filter(None, lines))

    @property
    def closing(self) -> Texts:
        """All lines after the tables."""
        lines = list(self.legend)
        if self.account:
            lines.append(account_line(self.account))
        if self.says_version:
            lines.append(self.made_by)
        lines.append(self.next_line)
        return tuple(filter(None, lines))

    @property
    def made_by(self) -> str:
        """The versions that computed the numbers: they outlive the page."""
        version = code_version()
        made = f"computed by lmzoo {version['lmzoo']}"
        if version["commit"]:
            made += f" ({version['commit']})"
        return f"{made}, statistics {STATISTICS}"

    @property
    def next_line(self) -> str:
        if not self.next_command:
            return ""
        return f"{self.aim}: {self.next_command}"


def account_line(account: Mapping[str, int]) -> str:
    """Return the number of what was read, and of its parts."""
    counts = [f"{count:,} {name}" for name, count in account.items()]
    return f"{counts[0]}: {', '.join(counts[1:])}"


class ReportFrame(DataFrame):
    """The frame of a report, which it prints; what is selected of it is a plain frame."""

    report: Report | None = None

    @classmethod
    def of(cls, report: Report) -> Self:
        frame = cls(report.frame)
        frame.report = report
        return frame

    def __str__(self) -> str:
        if self.report is None:
            return super().__str__()
        shown = self.report.brief or self.report
        return render(shown, "table", width=80)

    __repr__ = __str__

    def _repr_html_(self, *, _from_series: bool = False) -> str:
        del _from_series
        return f"<pre>{html.escape(str(self))}</pre>"


def render(report: Report, format: str, *, width: int = 100, colour: bool = False) -> str:
    """Return the report as text: table, md, csv, json, latex or github; else a `UserError`.

    A table has `width` columns of a terminal, and colours.
    """
    check_format(format)
    # `_csv` and `_json` escape control characters themselves.
    if format not in ("csv", "json"):
        report = printable_parts(report)
    if format == "table":
        return _terminal(report, width=width, colour=colour)
    return FORMATS[format](report)


def printable_parts(value: Any) -> Any:
    """Return a report or a part of a chart whose texts show their control characters."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(name): printable_parts(own) for name, own in value.items()}
    if isinstance(value, list | tuple | frozenset):
        return type(value)(map(printable_parts, value))
    if isinstance(value, Report | TextTable):
        own = {name: printable_parts(part) for name, part in vars(value).items()}
        return replace(value, **own)
    return value


def check_format(format: str):
    """Raise a `UserError` unless a format is known."""
    known = ["table"] + list(FORMATS)
    if format not in known:
        raise UserError(f"no format {format!r}; known: {', '.join(known)}")


def _terminal(report: Report, *, width: int, colour: bool) -> str:
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=colour,
        no_color=not colour,
        highlight=False,
        force_jupyter=False,
    )
    with console.capture() as capture:
        for line in report.opening:
            # As a `Text`, a label in brackets is no markup of rich.
            console.print(Text(line))
        if any(table.title for table in report.tables):
            console.print()
        for table in report.tables:
            if table.title:
                console.print(Text(table.title, style="bold"))
            # A narrow terminal wraps lines: a table must not lose a cell or break a name.
            console.width = max(width, _least_width(table))
            console.print()
            console.print(_rich_table(table, width))
            console.print()
            console.width = width
        # The next command is copied, so only the terminal wraps it.
        for line in report.closing:
            is_command = line == report.next_line
            console.print(Text(line), soft_wrap=is_command)
    lines = capture.get().rstrip().splitlines()
    return "\n".join(map(str.rstrip, lines))


def _least_width(table: TextTable) -> int:
    return sum((column.min_width or 0) + 3 for column in _rich_table(table).columns)


LONGEST_WORD = 20
"""Letters of a word that a column of text does not break."""


def _rich_table(table: TextTable, width: int = 0) -> Table:
    """Return a table; if it is wider than `width`, the longest column of text has what is left."""
    result = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True, show_edge=False
    )
    columns = list(zip(table.header, *table.rows, strict=True))  # a metric may be called "rank"
    widths = {cells[0]: max(map(len, cells)) for cells in columns}
    texts = [name for name in widths if name in table.text_columns]
    longest = max(texts, key=widths.__getitem__, default="")
    needed = sum(widths.values()) + 2 * len(widths)
    is_narrow = needed > width > 0
    for cells in columns:
        name = cells[0]
        if name in texts:
            words = " ".join(cells).split()
            word = max(map(len, words), default=0)
            most = None
            if is_narrow and name != longest:
                most = word + 1
            least = min(word, LONGEST_WORD)
            result.add_column(name, min_width=least, max_width=most, overflow="fold")
        else:
            # A number that is broken in two lines would be misread.
            result.add_column(name, justify="right", min_width=widths[name], no_wrap=True)
    for row in table.rows:
        result.add_row(*map(Text, row))
    return result


def filled(form: Path, **values: Any) -> str:
    """Return a text file whose fields, as `<< name >>`, have these values; see Jinja."""
    # Braces and per cent signs are characters of LaTeX.
    forms = Environment(
        loader=FileSystemLoader(form.parent),
        variable_start_string="<<",
        variable_end_string=">>",
        block_start_string="<%",
        block_end_string="%>",
        comment_start_string="<#",
        comment_end_string="#>",
        trim_blocks=True,
        lstrip_blocks=True,
    )
    forms.filters |= {
        "md": _escape_markdown,
        "tex": _escape_latex,
        "row": _latex_row,
        "sentence": sentence,
    }
    text = forms.get_template(form.name).render(values)
    return re.sub("\n{3,}", "\n\n", text).strip()


def _form(report: Report, name: str) -> str:
    title = report.question
    if not title:
        title = "".join(report.heading[:1])
    words = re.findall(r"[a-z0-9]+", title.lower())
    label = "-".join(words[:6])
    return filled(FORMS / f"{name}.txt", report=report, title=title, name=label)


def _escape_markdown(text: str) -> str:
    text = text.replace("\n", " ").replace("<", "&lt;")  # not every reader knows a backslash there
    return re.sub(r"([\\|*_\[`])", r"\\\1", text)


TEX: dict[str, str] = WORDS["tex"]
"""Characters that LaTeX needs in another form."""
LATIN = 0x180
"""The first character that pdfLaTeX does not know."""


def sentence(text: str) -> str:
    """Return a text with a mark at its end."""
    if text.endswith(("?", "!", ".")):
        return text
    return f"{text}."


def _latex_row(row: Sequence[str]) -> str:
    r"""Return a line; a row that begins with [ or * would be an argument of the \\\\ before it."""
    text = " & ".join(map(_escape_latex, row)) + r" \\"
    return re.sub(r"^\s*([\[*])", r"{\1}", text)


def _escape_latex(text: str) -> str:
    escaped = "".join(map(_latex_letter, text))
    return re.sub("-(?=-)", "-{}", escaped)  # two hyphens of an option are no dash


def _latex_letter(letter: str) -> str:
    if letter in TEX or ord(letter) < LATIN:
        return TEX.get(letter, letter)
    return rf"\zoochar{{{ord(letter):X}}}"


def _csv(report: Report) -> str:
    # A cell of CSV holds no list.
    lists = col(pl.List(String)).list.join("; ")
    frame = report.frame.with_columns(lists)
    if report.warnings:
        warnings = "; ".join(report.warnings)
        frame = frame.with_columns(warnings=lit(warnings))
    frame = frame.with_columns(made_by=lit(report.made_by))
    # A label must not run in a spreadsheet.
    texts = col(String).str.replace(FORMULA, "'${1}")
    text = frame.with_columns(texts).write_csv()
    return printable(text.rstrip("\n"))


FORMULA = r"^(\s*[=+@\t\r＝＋－＠]|-[^0-9.]|-[0-9.]+[^0-9.eE]|-[0-9.]+[eE][+-]?[0-9]*[^0-9])"
"""The beginning of a cell that a spreadsheet runs; a ' before it makes it a text."""


def csv_note(report: Report) -> str:
    """Return what a file of rows has no place for, and which cells are marked as text."""
    lines = list(report.lead)
    lines += report.warnings[report.grave :]
    lines.append(report.next_line)
    marked = [
        column.name
        for column in report.frame.select(col(String))
        if column.str.contains(FORMULA).any()
    ]
    if marked:
        said = "cells that a spreadsheet would run as a formula have a ' before them"
        lines.append(f"{', '.join(marked)}: {said}")
    return printable("\n".join(filter(None, lines)))


def _json(report: Report) -> str:
    rows = report.frame.to_dicts()
    for row in rows:
        for name in report.json_columns:
            row[name] = json.loads(row[name] or "null")
    parts = {
        name: getattr(report, name)
        for name in (
            "question",
            "answer",
            "warnings",
            "next_command",
            "account",
            "heading",
            "legend",
        )
    }
    said = json.dumps(parts, ensure_ascii=False)
    # Programs read numbers out of these sentences.
    value = json.loads(said.replace("−", "-"))
    value["made_by"] = code_version() | {"statistics": STATISTICS}
    value["rows"] = rows
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1)
    # A person may print the JSON to a terminal.
    return CONTROL.sub(lambda c: f"\\u{ord(c[0]):04x}", text)


FORMATS = {
    "md": partial(_form, name="md"),
    "csv": _csv,
    "json": _json,
    "latex": partial(_form, name="latex"),
    "github": partial(_form, name="github"),
}
"""Formats that do not depend on the width of the terminal."""


def output_path(study: Path, out: Path | None, name: str) -> Path:
    """Return `out` if it is given, else `name` in the study's folder or next to its Parquet file.

    A `UserError` says that pages and charts are not written to buckets.
    """
    path = study / name
    if study.suffix == SUFFIX:
        path = study.parent / name
    if out is not None:
        path = out
    if S3_SCHEME.match(str(path)):
        raise UserError(
            f"{store_address(path)} is in a bucket, but pages and charts are written to local "
            "folders only; give one with --out"
        )
    return path


def store_address(path: Path) -> str:
    """Return the address of a store as the user types it; `Path` removes a slash of s3://."""
    return S3_SCHEME.sub("s3://", str(path), count=1)
