"""Read texts and rows: CSV in its dialects, JSON in its forms -> one frame.

Cells of texts stay text. An empty cell or null is a missing value; NaN and infinity are what a
diverged training prints. pandas writes a NaN as an empty cell.
"""

import contextlib
import csv
import io
import itertools
import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from unicodedata import normalize

import polars as pl
import yaml

from lmzoo.base.errors import UserError
from lmzoo.base.plain import Fields, FieldsDict
from lmzoo.base.printed import json_value
from lmzoo.lab.store.records import LARGEST

Row = dict[str, Any]
RunParts = dict[str, Row]
"""Part of a run, such as its settings -> names and values; "" is our own part."""
KNOWN_NAMES = tomllib.loads(Path(__file__).with_name("names.toml").read_text("utf-8"))
RUN = "run"
STATE = "\0state"
"""A column of ours; no file has a name with a NUL."""
TORN = {STATE: "torn (not written to its end)"}
"""Why a row does not count, as the reader knows it."""
NULL = "null"
"""The value of a setting that is null; a key that a row lacks is a missing value."""
STEPS = KNOWN_NAMES["steps"]
SPLIT = r"(train(ing)?|val(id(ation)?)?|dev(el(opment)?)?|test(ing)?|eval(uation)?|predict|ood)"


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
    unclear: dict[str, str] = field(default_factory=dict)
    """Column -> why its numbers can be read in two ways."""
    settings: frozenset[str] = frozenset()
    """Columns of settings, which are no states."""
    metrics: frozenset[str] = frozenset()
    """Columns of metrics and tags, which are no states either."""
    paths: frozenset[str] = frozenset()
    """Columns that were read from the names of folders."""
    others: list[tuple[str, str, Row]] = field(default_factory=list)
    """Run, file and values of files that were not read."""
    unread: int = 0
    """Rows of a large history that are in no number but that of the rows."""


def source_of(rows: Iterable[Mapping[str, Fields]], **more: Any) -> Source:
    """Return the source of rows that are given in parts; the first part is ours.

    A name that an earlier part has, in any row, is shown with its part: `param.value`.
    """
    flat = [{part: flat_row(own) for part, own in row.items()} for row in rows]
    # The order of the parts decides who keeps a name: ours, the file's, settings, paths.
    shown: dict[tuple[str, str], str] = {}
    for part in dict.fromkeys(part for row in flat for part in row):
        taken = {*shown.values()}
        for name in dict.fromkeys(name for row in flat for name in row.get(part, ())):
            own = name
            while own in taken:
                own = f"{part}.{own}"
            shown[part, name] = own
    joined = [{shown[p, k]: v for p, own in row.items() for k, v in own.items()} for row in flat]
    names = {
        kind: frozenset(own for key, own in shown.items() if {key[0], key[1][:7]} & {*parts})
        for kind, parts in PARTS.items()
    }
    return Source(frame_of(joined), **names, **more)


PARTS = KNOWN_NAMES["kinds"]


def frame_of(rows: Iterable[Fields]) -> pl.DataFrame:
    """Return a frame of rows, all as texts: null is one, and what a row lacks is missing."""
    flat = [flat_row(row) for row in rows]
    missing = object()
    columns = {}
    for name in dict.fromkeys(name for row in flat for name in row):
        own = [row.get(name, missing) for row in flat]
        texts = {value for value in own if isinstance(value, str)}
        columns[name] = [None if value is missing else _cell(value, texts) for value in own]
    return pl.DataFrame(columns, dict.fromkeys(columns, pl.String))


def _cell(value: Any, texts: Container[str]) -> str:
    """Return a value as text; with its type if a text of its column is the same, as 'True'."""
    label = str(value)
    if value is None:
        label = NULL
    if label in texts and not isinstance(value, str):
        return f"{label} ({type(value).__name__})"
    return label


def flat_row(row: Fields, prefix: str = "") -> Row:
    """Return a row with nested names joined by dots."""
    if not isinstance(row, Mapping):
        raise UserError("the results are no objects; give one for each run")
    flat: Row = {}
    for name, value in row.items():
        if isinstance(value, str) and value.startswith("{") and name in W_AND_B:
            for read in (json_value, read_yaml):  # a dictionary of Python is YAML
                with contextlib.suppress(ValueError, yaml.YAMLError):
                    value = read(value)
                    break
        if isinstance(value, Mapping) and {"value"} <= value.keys() <= {"value", "desc"}:
            value = value["value"]  # a setting of W&B
        inner = {f"{prefix}{name}": json.dumps(value) if isinstance(value, list) else value}
        if isinstance(value, Mapping):
            inner = flat_row(value, f"{prefix}{name}.")
        if twice := next(iter(inner.keys() & flat.keys()), None):
            raise UserError(f"two keys are named {twice!r}; rename one of them")
        flat |= inner
    return flat


class _Settings(yaml.SafeLoader):
    """Settings: values are texts as they are written, or null; tags do not count."""

    yaml_implicit_resolvers: ClassVar = {
        first: [one for one in own if one[0].endswith((":null", ":merge"))]
        for first, own in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def _untagged(loader: Any, _: str, node: Any) -> Any:
    return getattr(loader, f"construct_{node.id}")(node)


_Settings.add_multi_constructor("", _untagged)


def read_yaml(text: str) -> Any:
    """Return the value of a YAML text."""
    return yaml.load(text, _Settings)


def place_of(place: Path, root: Path) -> RunParts:
    """Return what a path below a folder says: `run`, `part1`, ..., and `seed=1` as a seed."""
    parts = [p for p in place.relative_to(root).parts if not re.fullmatch(CHECKPOINT, p)]
    row: Row = {RUN: "/".join(parts) or root.name}
    row |= {f"part{i}": part for i, part in enumerate(parts, 1)}
    named: Row = {}
    for part in parts:
        # Not of Ray Tune's KIND_ab_00000_0_seed=1,width=8_2026-11-27_..., whose ends are unclear.
        if re.fullmatch(r"(?!.*_\d+_.*_\d{4}-)[\w.+-]+=[^,=]*(,[\w.+-]+=[^,=]*)*", part):
            named |= dict(own.split("=") for own in part.split(","))
    return {"": row, "path": named}


CHECKPOINT = r"checkpoint[-_](\d+)"
EPISODES = 100
W_AND_B = {*KNOWN_NAMES["w_and_b"]}


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
    lines = below_comments(text)
    skipped = text.count("\n") + 1 - len(lines)
    lines = [line for line in lines if not re.fullmatch(r"[\s|:+-]*---[\s|:+-]*\|?", line)]
    separator, lines = separator_of(lines)
    header, found, lacking = _csv_rows(lines, separator, skipped)
    # The first run of a table without a header would be lost as its names.
    if len(header) > 1 and all(re.fullmatch(NUMBER, name) for name in header):
        raise UserError(f"the first line has numbers only, {header[0]}, ...: write names above it")
    rows = [row for row in found if [*map(str.strip, row)] != header]
    twice = frozenset(name for name, count in Counter(header).items() if count > 1)
    names = [f"{name}\0{i}" if name in header[:i] else name for i, name in enumerate(header)]
    columns = {
        name: [row[i] if row[i].strip() else None for row in rows] for i, name in enumerate(names)
    }
    unclear: dict[str, str] = {}
    notes: list[str] = []
    if separator in ";\t":
        unclear, notes = decimal_points(columns, separator)
    repeated = len(found) - len(rows)
    if repeated:
        notes.append(f"lines that repeat the header are no rows: {repeated}")
    if rows and lines[-1]:  # no line end
        if lacking > 0:
            columns[STATE] = [None] * (len(rows) - 1) + [TORN[STATE]]
        elif len(end := rows[-1][-1]) < min((len(row[-1]) for row in rows[:-1]), default=0):
            notes.append(f"the last line has no end: is {names[-1]} {end!r} whole?")
    frame = pl.DataFrame(columns, dict.fromkeys(columns, pl.String))
    if text.startswith('#{"t_start"'):  # a monitor of Stable-Baselines has a row an episode
        episodes = frame.with_columns(pl.all().replace({"True": "1", "False": "0"}))
        frame = episodes.cast(pl.Float64, strict=False).tail(EPISODES).mean()
        notes.append(f"a monitor is a run: means of its last {EPISODES} episodes")
    if W_AND_B & {*names}:
        own = frame_of({k: v for k, v in row.items() if v} for row in frame.to_dicts())
        frame = frame.with_columns(own[c] for c in own.columns if c not in names)
    return Source(frame, notes=notes, twice=twice, unclear=unclear)


def below_comments(text: str) -> list[str]:
    """Return the lines from the header on."""
    lines = text.split("\n")
    return [*itertools.dropwhile(lambda line: not line.strip() or line.startswith("#"), lines)]


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
                        f"{separator!r}, save the table as CSV"
                    )
                lacking = len(header) - len(cells)
                rows.append(cells[: len(header)] + [""] * lacking)
            at = reader.line_num
    except csv.Error as error:
        raise UserError(f"line {skipped + at + 1}: {error}: {lines[at][:60]!r}") from None
    return header, rows, lacking


SAME = "every seed has the same result; a program that does not read its seed is judged on one run"
NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"


def separator_of(lines: Sequence[str]) -> tuple[str, list[str]]:
    """Return the separator that header and first row share; aligned blanks become tabs."""
    head, after, *_ = [*filter(str.strip, lines), "", ""]
    best = max(",\t;|", key=lambda mark: _width(head, after, mark))
    words = len(head.split())
    if _width(head, after, best) == (False, True, 1) and words == len(after.split()) > 1:
        return "\t", ["\t".join(line.split()) for line in lines]
    return best, list(lines)


def _width(head: str, after: str, mark: str) -> tuple[bool, bool, int]:
    """Return whether a mark separates a header, and as it does a row, and into how many cells."""
    header, *rows = csv.reader([head, after], delimiter=mark)
    return len(header) > 1, all(len(row) in (0, len(header)) for row in rows), len(header)


def decimal_points(
    columns: dict[str, list[Any]], separator: str
) -> tuple[dict[str, str], list[str]]:
    """Write decimal commas as points; return columns that can be read in two ways, and notes.

    A mark with three digits after it, as in 1,005 or 1.005, may be one of thousands; those of
    0,005 and 1,05 are decimal ones, and so is the same mark in all columns of their table.
    """
    commas = {name: _in_threes(own, ",") for name, own in columns.items()}
    points = {name: _in_threes(own, ".") for name, own in columns.items()}
    has_commas = False in commas.values()
    # A spreadsheet writes semicolons where commas are decimal, so that points may be thousands.
    may_be_thousands = has_commas or (separator == ";" and False not in points.values())
    unclear = [
        name
        for name, in_threes in points.items()
        if in_threes and (may_be_thousands or _has_hundreds(columns[name]))
    ]
    notes = []
    if has_commas:
        decimal = [name for name, in_threes in commas.items() if in_threes is not None]
        for name in decimal:
            columns[name] = [cell and cell.replace(",", ".") for cell in columns[name]]
        notes.append(f"decimal commas were read in {', '.join(decimal)}")
    else:
        unclear += [name for name, in_threes in commas.items() if in_threes]
    return {name: _two_readings(name, columns[name]) for name in unclear}, notes


def _in_threes(column: Sequence[Any], mark: str) -> bool | None:
    """Return whether each mark has three digits after it; None if no number has it, or a text."""
    cells = [cell.strip() for cell in column if cell and re.search(r"\d", cell)]
    marked = [cell for cell in cells if mark in cell]
    other = ",.".replace(mark, "")
    is_number = [re.fullmatch(NUMBER, c.replace(mark, ".")) and other not in c for c in cells]
    if not marked or not all(is_number):
        return None
    return all(re.fullmatch(THOUSANDS, cell) for cell in marked)


def _has_hundreds(column: Sequence[Any]) -> bool:
    """Return whether a number has three digits and no mark, as 948 in a column with 1.005."""
    return any(re.fullmatch(r"\s*\d{3}\s*", cell or "") for cell in column)


def _two_readings(name: str, column: Sequence[Any]) -> str:
    """Return the two values of the first number that has a mark, and how to write each."""
    text = next(cell.strip() for cell in column if re.fullmatch(THOUSANDS, (cell or "").strip()))
    whole, digits = re.split("[.,]", text)
    small = float(f"{whole}.{digits}")
    return (
        f"{name} has {text}, which may be {small:g} or {whole}{digits}; write "
        f"{whole}.{digits}0 or {whole}{digits}"
    )


THOUSANDS = r"[+-]?[1-9]\d{0,2}[.,]\d{3}"


def read_json(text: str) -> Source:
    """Return the runs of a JSON value, or of JSON lines."""
    try:
        value = json_value(text, object_pairs_hook=_object)
    except ValueError:
        value = {"rows": json_lines(text)}
    rows = objects_of(value)
    if rows and isinstance(rows[0], Mapping) and NAME in rows[0]:
        found = source_of({"": {RUN: row[NAME]}, "file": row[RUN]} for row in rows)
        found.paths = frozenset({RUN})
    else:
        found = Source(frame_of(rows))
    if isinstance(value, Mapping) and "log_history" in value:
        found.step = "step"
    if re.search(f'"{THOUSANDS}"', text):  # numbers that somebody wrote as texts
        found.unclear, _ = decimal_points(found.frame.to_dict(as_series=False), "\t")
    return found


NAME = "\0name"
"""Of an object among others; the object itself is under `RUN`."""


def objects_of(value: Any) -> Sequence[Fields]:
    """Return the objects of one of the forms in which programs write a list of runs."""
    if not isinstance(value, Mapping):
        if isinstance(value, list):
            return value
        return [value]
    lists = {name: own for name, own in value.items() if isinstance(own, list)}
    of_objects = [k for k, own in lists.items() if own and all(isinstance(x, dict) for x in own)]
    if len(of_objects) == len(value) > 1:  # several runs, or rows, have one name
        return [{NAME: name, RUN: row} for name in of_objects for row in value[name]]
    if len(of_objects) == 1:  # the other facts are those of all rows
        common = {k: v for k, v in value.items() if k not in lists and k != "schema"}
        return [{**common, **row} for row in value[of_objects[0]]]
    if lists:
        lengths = {name: len(own) for name, own in lists.items()}
        longest = max(lengths.values())
        if min(lengths.values()) < longest:
            said = [f"{name!r} has {length}" for name, length in lengths.items()]
            raise UserError(f"its lists have different lengths ({some(said)}); keep those of runs")
        return [{k: v[i] if k in lists else v for k, v in value.items()} for i in range(longest)]
    return _inner_objects(value)


def _inner_objects(value: Fields) -> Sequence[Fields]:
    """Return the objects of a mapping without lists: metrics, columns or runs by their names.

    The splits of the data are one run.
    """
    inside = {name: own for name, own in value.items() if isinstance(own, Mapping)}
    if inside and all({"steps", "values"} <= own.keys() for own in inside.values()):  # Sacred
        return _series(inside)
    if not inside or len(inside) < len(value):
        return [value]
    cells = {f"{name}.{key}": cell for name, own in inside.items() for key, cell in own.items()}
    if cells and all(isinstance(cell, list) for cell in cells.values()):
        # evals_result of LightGBM and XGBoost
        return [{"iteration": i, **row} for i, row in enumerate(objects_of(cells))]
    shared = set.intersection(*map(set, inside.values()))
    are_splits = all(re.fullmatch(SPLIT, name) for name in inside)
    if are_splits or not shared:
        return [value]
    if all(key.isdecimal() for own in inside.values() for key in own):
        # pandas: column -> row -> value
        rows = dict.fromkeys(row for own in inside.values() for row in own)
        return [{name: own.get(row) for name, own in inside.items()} for row in rows]
    return [{NAME: name, RUN: own} for name, own in inside.items()]


def _series(metrics: Mapping[str, Fields]) -> Sequence[Fields]:
    """Return a row for each step of metrics that have steps of their own."""
    steps = dict.fromkeys(step for own in metrics.values() for step in own["steps"])
    known = {k: dict(zip(own["steps"], own["values"], strict=True)) for k, own in metrics.items()}
    return [{"step": step, **{k: own.get(step) for k, own in known.items()}} for step in steps]


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


def objects(text: str) -> Iterator[FieldsDict]:
    """Yield the objects of lines that are JSON."""
    for line in text.split("\n"):
        with contextlib.suppress(ValueError, RecursionError):
            value = json_value(line)
            if isinstance(value, dict):
                yield value


def loose_object(text: str, place: int) -> tuple[FieldsDict, str]:
    """Return the object around a place that is no line of JSON, and what it is; else {} and ""."""
    for begin in (found.start() for found in re.finditer(r"\{", text[:place])):
        with contextlib.suppress(ValueError, RecursionError):
            value, end = json.JSONDecoder().raw_decode(text, begin)
            lines = text.count("\n", begin, end) + 1
            if end > place and lines > 1:
                return value, f"JSON over {lines} lines"
            if end > place:
                return value, "JSON behind a prefix"
    for found in re.finditer(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}", text):
        if found.start() <= place < found.end():
            # YAML has nan and names of Python's values, which are texts.
            with contextlib.suppress(yaml.YAMLError):
                return read_yaml(found[0]), "a dictionary of Python"
    return {}, ""


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


def check_margin(margin: float) -> None:
    """Raise a `UserError` unless a margin is a number of 0 or more."""
    if not 0 <= margin < math.inf:
        raise UserError(f"margin {margin} is not a number of 0 or more; give one, as 0.002")


def plain(values: pl.Series) -> list[str | None]:
    """Return the texts of cells; blanks around them and forms of Unicode do not count."""
    texts = ("" if v is None else normalize("NFC", str(v)) for v in values)
    return [" ".join(re.sub("[\u200b\ufeff]", "", text).split()) or None for text in texts]


def mapped(values: pl.Series, read: Callable[[pl.Series], Sequence[str | None]]) -> pl.Series:
    """Return a column of the texts that `read` makes of its different cells."""
    known = values.unique(maintain_order=True)
    texts = pl.Series(values.name, read(known), pl.String)
    return values.replace_strict(known, texts, return_dtype=pl.String)


SHOWN = 3
"""Examples in a line."""


def some(texts: Sequence[str]) -> str:
    """Return the first texts, and how many more there are."""
    more = len(texts) - SHOWN
    return "; ".join(texts[:SHOWN]) + (f"; {more} more" if more > 0 else "")
