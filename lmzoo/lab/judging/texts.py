"""Read texts and rows: CSV in its dialects, JSON in its forms -> one frame.

Cells of texts stay text. An empty cell or null is a missing value; NaN and infinity are what a
diverged training prints. pandas writes a NaN as an empty cell.
"""

import ast
import contextlib
import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from lmzoo.base.errors import UserError
from lmzoo.base.printed import json_value
from lmzoo.lab.store.records import LARGEST

Row = dict[str, Any]
RUN = "run"
STATE = "lmzoo.state"
TORN = {STATE: "torn (not written to its end)"}
"""Why a row does not count, as the reader knows it."""


@dataclass
class Source:
    """Rows of results, and what their source says of them."""

    frame: pl.DataFrame
    step: str | None = None
    """The column of steps of a history."""
    higher: dict[str, bool | None] = field(default_factory=dict)
    """Metric -> whether higher is better; None: studies differ."""
    notes: list[str] = field(default_factory=list)
    twice: frozenset[str] = frozenset()
    """Names that several columns have."""


def frame_of(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Return a frame of flat rows. A column of numbers and texts is text."""
    rows = list(rows)
    if not all(isinstance(row, Mapping) for row in rows):
        raise UserError("the results are no objects; give one for each run")
    flat = [flat_row(row) for row in rows]
    columns = {}
    for name in dict.fromkeys(name for row in flat for name in row):
        own = [row.get(name) for row in flat]
        kinds = {type(v) for v in own if v is not None}
        if kinds == {int, float}:
            own = [None if v is None else float(v) for v in own]
        elif len(kinds) > 1 or (kinds == {int} and max(abs(v or 0) for v in own) >= 2**63):
            own = [None if v is None else str(v) for v in own]
        columns[name] = own
    return pl.DataFrame(columns, strict=False)


def flat_row(row: Mapping[str, Any], prefix: str = "") -> Row:
    """Return a row with nested names joined by dots."""
    flat: Row = {}
    for name, value in row.items():
        if isinstance(value, str) and value.startswith("{") and name in W_AND_B:
            python = re.sub(r"(?<=[\s\[:])[+-]?(nan|inf)(?=[,}\]])", "1e999", value)
            for read in (json_value, lambda _, text=python: ast.literal_eval(text)):
                with contextlib.suppress(ValueError, SyntaxError):
                    value = read(value)
        if isinstance(value, Mapping) and {"value"} <= value.keys() <= {"value", "desc"}:
            value = value["value"]  # a setting of W&B
        if isinstance(value, Mapping):
            flat |= flat_row(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = json.dumps(value) if isinstance(value, list) else value
    return flat


def path_columns(place: Path, root: Path) -> Row:
    """Return the columns of a path below a folder: `run`, `part1`, ..., and `seed=1` as a seed."""
    parts = [p for p in place.relative_to(root).parts if not re.fullmatch(r"checkpoint[-_]\d+", p)]
    row: Row = {RUN: "/".join(parts) or root.name}
    row |= {f"part{i}": part for i, part in enumerate(parts, 1)}
    for part in parts:
        # Not of Ray Tune's train_ab_00000_0_seed=1,width=8_2026-11-27, whose ends are unclear.
        if re.fullmatch(r"(?!\w+?_\d{5}_)[\w.+-]+=[^,=]*(,[\w.+-]+=[^,=]*)*", part):
            row |= dict(own.split("=") for own in part.split(","))
    return row


W_AND_B = {"config", "summary", "summaryMetrics"}
"""Fields of runs of W&B that are JSON or a Python dictionary in a text."""


def decoded(content: bytes) -> str:
    """Return a text of UTF-8 or UTF-16 with plain ends of lines."""
    wide = content[:2] in (b"\xff\xfe", b"\xfe\xff")
    try:
        text = content.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(
            f"line {line} is not UTF-8 ({error.reason}); unpack it, or save it as CSV in UTF-8"
        ) from None
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise UserError(f"line {line} has NUL characters: it is damaged, or no text in UTF-8")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_csv(text: str) -> Source:
    """Return a table of texts; comments above its header are no rows."""
    lines, separator = _below_comments(text)
    skipped = text.count("\n") + 1 - len(lines)
    lines = [line for line in lines if not re.fullmatch(r"[\s|:+-]*---[\s|:+-]*\|?", line)]
    if not separator:
        separator, lines = _separator(lines)
    header, rows, lacking = _csv_rows(lines, separator, skipped)
    twice = frozenset(name for name, count in Counter(header).items() if count > 1)
    names = [f"{name} ({i})" if name in header[:i] else name for i, name in enumerate(header)]
    columns = {
        name: [row[i] if row[i].strip() else None for row in rows] for i, name in enumerate(names)
    }
    notes = _decimal_points(columns) if separator in ";\t" else []
    if rows and lines[-1]:  # no line end
        if lacking > 0:
            columns[STATE] = [None] * (len(rows) - 1) + [TORN[STATE]]
        elif len(end := rows[-1][-1]) < min((len(row[-1]) for row in rows[:-1]), default=0):
            notes.append(f"the last line has no end: is {names[-1]} {end!r} whole?")
    frame = pl.DataFrame(columns, dict.fromkeys(columns, pl.String))
    if W_AND_B & {*names}:
        own = frame_of(frame.to_dicts())
        frame = frame.with_columns(own[c] for c in own.columns if c not in names)
    return _wandb_chart(frame, twice) or Source(frame, notes=notes, twice=twice)


def _below_comments(text: str) -> tuple[list[str], str]:
    """Return the lines from the header on, and the separator if a line such as `sep=;` names it."""
    lines, separator = text.split("\n"), ""
    while lines and (not lines[0].strip() or re.match("#|sep=.$", lines[0])):
        first, named = lines.pop(0), [line for line in lines if line.strip()]
        if first.startswith("sep="):
            separator = first[4]
        elif first.startswith("#") and named and _is_header(first[1:], named[0]):
            return [first[1:], *lines], separator
    return lines, separator


def _csv_rows(
    lines: Sequence[str], separator: str, skipped: int
) -> tuple[list[str], list[list[str]], int]:
    """Return the header, rows of its length, and how many cells the last row lacked."""
    header: list[str] = []
    rows: list[list[str]] = []
    lacking = at = 0  # `at` is the first line of the row
    reader = csv.reader(io.StringIO("\n".join(lines)), delimiter=separator, strict=True)
    try:
        for cells in reader:
            if not header:
                header = [name.strip() or f"column {i}" for i, name in enumerate(cells, 1)]
            elif cells:
                if any(map(str.strip, cells[len(header) :])):
                    raise UserError(
                        f"line {skipped + at + 1} has {len(cells)} cells, the header has "
                        f"{len(header)}: {lines[at][:60]!r}; if the separator is not "
                        f"{separator!r}, write it in a first line: sep=;"
                    )
                lacking = len(header) - len(cells)
                rows.append(cells[: len(header)] + [""] * lacking)
            at = reader.line_num
    except csv.Error as error:
        raise UserError(f"line {skipped + at + 1}: {error}: {lines[at][:60]!r}") from None
    return header, rows, lacking


def _is_header(comment: str, line: str) -> bool:
    """Return whether a comment has the names of the columns, as numpy writes them."""
    separator, _ = _separator([line])
    cells = line.split(separator)
    numbers = any(re.fullmatch(NUMBER, cell.strip()) for cell in cells)
    return len(cells) > 1 and numbers and len(comment.split(separator)) == len(cells)


SAME = "every seed has the same result; a program that does not read its seed is judged on one run"
NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"


def _separator(lines: Sequence[str]) -> tuple[str, list[str]]:
    """Return the separator that header and first row share; aligned blanks become tabs."""

    def width(line: str, mark: str) -> int:
        with contextlib.suppress(csv.Error, StopIteration):
            return len(next(csv.reader([line], delimiter=mark)))
        return 1

    head, *rest = [line for line in lines if line.strip()][:2] or [""]
    after = rest[0] if rest else head
    same = {mark: width(head, mark) == width(after, mark) for mark in ",\t;|"}
    best = max(same, key=lambda mark: (width(head, mark) > 1, same[mark], width(head, mark)))
    if width(head, best) > 1 or len(head.split()) != len(after.split()):
        return best, list(lines)
    blank = len(head.split()) > 1
    return "\t", ["\t".join(line.split()) for line in lines] if blank else list(lines)


def _decimal_points(columns: dict[str, list[Any]]) -> list[str]:
    """Write decimal commas as points, in columns of numbers that have no other."""
    found = []
    for name, own in columns.items():
        cells = [cell for cell in own if cell and re.search(r"\d", cell)]
        is_number = all(re.fullmatch(NUMBER, cell.replace(",", ".")) for cell in cells)
        if is_number and any("," in cell for cell in cells) and not any("." in c for c in cells):
            columns[name] = [cell and cell.replace(",", ".") for cell in own]
            found.append(name)
    return [f"decimal commas were read in {', '.join(found)}"] if found else []


def _wandb_chart(frame: pl.DataFrame, twice: frozenset[str]) -> Source | None:
    """Return the history of a chart that W&B exported: a row per run and step."""
    series = [c for c in frame.columns if f"{c}__MIN" in frame.columns and " - " in c]
    if not series:
        return None
    if same := next((column for column in series if column in twice), None):
        raise UserError(f"two runs of the chart have a column {same!r}; rename one run in W&B")
    step, rows = frame.columns[0], []
    names = [column.rpartition(" - ")[::2] for column in series]
    for run in dict.fromkeys(run for run, _ in names):
        own = {metric: frame[f"{run} - {metric}"] for name, metric in names if name == run}
        history = [{k: v[i] for k, v in own.items()} for i in range(len(frame))]
        kept = [i for i, row in enumerate(history) if any(row.values())] or [0]
        rows += [{RUN: run, step: frame[step][i], **history[i]} for i in kept]
    return Source(frame_of(rows), step=step)


def read_json(text: str) -> Source:
    """Return the runs of a JSON value, or of JSON lines."""
    try:
        value = json_value(text, object_pairs_hook=_object)
    except ValueError:
        return Source(frame_of(json_lines(text)))
    is_log = isinstance(value, Mapping) and "log_history" in value
    return Source(frame_of(_objects(value)), step="step" if is_log else None)


def _objects(value: Any) -> Sequence[Mapping[str, Any]]:
    """Return the objects of one of the forms in which programs write a list of runs."""
    if not isinstance(value, Mapping):
        rows = value if isinstance(value, list) else [value]
        nodes = [row["node"] for row in rows if isinstance(row, Mapping) and "node" in row]
        return nodes if rows and len(nodes) == len(rows) else rows
    data, names = value.get("data"), value.get("columns")
    if isinstance(data, list) and isinstance(names, list):
        names = [str(name) for name in names]
        if len(set(names)) < len(names) or any(len(row) != len(names) for row in data):
            raise UserError(
                "columns and data do not fit: a name is there twice, or a row is longer or shorter"
            )
        return [dict(zip(names, row, strict=True)) for row in data]
    for name in ("data", "project", "runs", "edges"):
        if isinstance(inner := value.get(name), Mapping | list) and len(value) == 1:
            return _objects(inner)
    lists = {name: own for name, own in value.items() if isinstance(own, list)}
    of_objects = [k for k, own in lists.items() if own and all(isinstance(x, dict) for x in own)]
    if len(of_objects) == 1:  # the other facts are those of all rows
        common = {k: v for k, v in value.items() if k not in lists and k != "schema"}
        return [{**common, **row} for row in value[of_objects[0]]]
    if lists:
        longest = max(map(len, lists.values()))
        if any(len(own) != longest for own in lists.values()):
            raise UserError("the columns have different lengths")
        return [{k: v[i] if k in lists else v for k, v in value.items()} for i in range(longest)]
    return _inner_objects(value)


def _inner_objects(value: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the objects of a mapping without lists: metrics, columns or runs by their names."""
    inside = [own for own in value.values() if isinstance(own, Mapping)]
    if inside and all({"steps", "values"} <= own.keys() for own in inside):  # Sacred
        named = {k: own for k, own in value.items() if isinstance(own, Mapping)}
        steps = dict.fromkeys(step for own in inside for step in own["steps"])
        known = {k: dict(zip(v["steps"], v["values"], strict=True)) for k, v in named.items()}
        return [{"step": s, **{k: own.get(s) for k, own in known.items()}} for s in steps]
    shared = set.intersection(*map(set, inside)) if inside else set()
    if len(inside) < len(value) or not shared:
        return [value]
    if all(name.isdecimal() for own in inside for name in own):  # pandas: column -> row -> value
        rows = dict.fromkeys(row for own in inside for row in own)
        return [{name: own.get(row) for name, own in value.items()} for row in rows]
    return [{RUN: name, **own} for name, own in value.items()]


def _object(pairs: list[tuple[str, Any]]) -> Row:
    counts = Counter(name for name, _ in pairs)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise UserError(f"an object has the key {twice[0]!r} twice")
    return dict(pairs)


def json_lines(text: str) -> list[Row]:
    """Return the objects of lines; a last line that was cut is `TORN`."""
    rows: list[Row] = []
    lines = text.split("\n")
    for i, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json_value(line, object_pairs_hook=_object)
        except UserError as error:
            raise UserError(f"line {i}: {error}") from None
        except ValueError as error:
            if i == len(lines) and rows:  # a writer that was killed
                rows.append(TORN)
                break
            raise UserError(f"line {i} is not JSON ({error}): {line.strip()[:60]!r}") from None
        if not isinstance(value, dict):
            raise UserError(f"line {i} is no object: {line.strip()[:60]!r}")
        rows.append(value)
    return rows


def objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of lines that are JSON."""
    for line in text.split("\n"):
        with contextlib.suppress(ValueError, RecursionError):
            value = json_value(line)
            if isinstance(value, dict):
                yield value


def number(value: Any) -> float:
    """Return a metric, NaN or infinity of a diverged run; a `ValueError` if it is no number."""
    if isinstance(value, bool):
        raise ValueError("a truth value")
    try:
        result = float(value)
    except (TypeError, OverflowError) as error:
        raise ValueError(str(error)) from error
    is_word = not math.isinf(result) or isinstance(value, float) or "inf" in str(value).lower()
    if LARGEST < abs(result) < math.inf or not is_word or "_" in str(value):
        raise ValueError("too large, or 1_000, which Python reads as 1000")
    return result
