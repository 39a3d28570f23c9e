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
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from unicodedata import normalize

import polars as pl
import yaml
from polars import DataFrame, Float64, Series, String

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
STEPS = re.compile(KNOWN_NAMES["steps"], re.IGNORECASE)
SPLIT = r"(train(ing)?|val(id(ation)?)?|dev(el(opment)?)?|test(ing)?|eval(uation)?|predict|ood)"


@dataclass
class Source:
    """Rows of results, and what their source says of them."""

    frame: DataFrame
    step: str | None = None
    """The column of steps of a history."""
    higher: dict[str, bool | None] = field(default_factory=dict)
    """Metric -> whether higher is better; None: studies differ."""
    notes: list[str] = field(default_factory=list)
    twice: Set[str] = frozenset()
    """Names that several columns have."""
    unclear: dict[str, str] = field(default_factory=dict)
    """Column -> why its numbers can be read in two ways."""
    settings: Set[str] = frozenset()
    """Columns of settings, which are no states."""
    metrics: Set[str] = frozenset()
    """Columns of metrics and tags, which are no states either."""
    paths: Set[str] = frozenset()
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
    shown = _shown_names(flat)
    # Each row has its cells in the order of its parts.
    joined = []
    for row in flat:
        cells = {}
        for part, own in row.items():
            for name, value in own.items():
                cells[shown[part, name]] = value
        joined.append(cells)
    for kind, parts in KNOWN_NAMES["kinds"].items():
        names = {
            own
            for (part, name), own in shown.items()
            if part in parts or name[:7] in parts  # 7: of `config.`
        }
        more[kind] = names
    return Source(frame_of(joined), **more)


def _shown_names(rows: Sequence[RunParts]) -> dict[tuple[str, str], str]:
    """Return part and name -> the name of their column."""
    shown: dict[tuple[str, str], str] = {}
    # The order of the parts decides who keeps a name: ours, the file's, settings, paths.
    for part in keys_of(rows):
        taken = set(shown.values())
        for name in keys_of(row.get(part, {}) for row in rows):
            own = name
            while own in taken:
                own = f"{part}.{own}"
            shown[part, name] = own
    return shown


def keys_of(rows: Iterable[Fields]) -> list[str]:
    """Return the keys of all rows, each once, in the order in which they appear."""
    return list(dict.fromkeys(itertools.chain.from_iterable(rows)))


def known_cells(frame: DataFrame) -> list[Row]:
    """Return the rows of a frame, each without its missing values."""
    return [{k: v for k, v in row.items() if v is not None} for row in frame.to_dicts()]


def all_match(pattern: str, texts: Iterable[str | None]) -> bool:
    """Return whether a pattern describes each text."""
    described = re.compile(pattern, re.DOTALL)
    return all(described.fullmatch(text or "") for text in texts)


def frame_of(rows: Iterable[Fields]) -> DataFrame:
    """Return a frame of rows, all as texts: null is one, and what a row lacks is missing."""
    flat = list(map(flat_row, rows))
    columns = {}
    for name in keys_of(flat):
        texts = {row[name] for row in flat if isinstance(row.get(name), str)}
        cells = []
        for row in flat:
            cell = None
            if name in row:
                cell = _cell(row[name], texts)
            cells.append(cell)
        columns[name] = cells
    return DataFrame(columns, dict.fromkeys(columns, String))


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
        # W&B exports dictionaries as texts.
        if name in W_AND_B and isinstance(value, str) and value.startswith("{"):
            value = _dictionary(value)
        if isinstance(value, Mapping) and {"value"} <= value.keys() <= {"value", "desc"}:
            value = value["value"]  # a setting of W&B
        # A list in a row is one cell; the account says what to do with it.
        if isinstance(value, list):
            value = json.dumps(value)
        full = f"{prefix}{name}"
        inner = {full: value}
        if isinstance(value, Mapping):
            inner = flat_row(value, f"{full}.")
        twice = inner.keys() & flat.keys()
        if twice:
            raise UserError(f"two keys are named {twice.pop()!r}; rename one of them")
        flat |= inner
    return flat


def _dictionary(text: str) -> Any:
    """Return the value of a text of JSON, or of a dictionary of Python, which is YAML."""
    for read in (json_value, read_yaml):
        with contextlib.suppress(ValueError, yaml.YAMLError):
            return read(text)
    return text


class _Settings(yaml.SafeLoader):
    """Settings: values are texts as they are written, or null; tags do not count."""

    yaml_implicit_resolvers: ClassVar = {}


def _untagged(loader: Any, _: str, node: Any) -> Any:
    return getattr(loader, f"construct_{node.id}")(node)


_Settings.add_multi_constructor("", _untagged)
_Settings.add_implicit_resolver(
    "tag:yaml.org,2002:null", re.compile(r"^(~|null|Null|NULL|)$"), ["~", "n", "N", ""]
)
_Settings.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile(r"^<<$"), ["<"])


def read_yaml(text: str) -> Any:
    """Return the value of a YAML text."""
    return yaml.load(text, _Settings)


def place_of(place: Path, root: Path) -> RunParts:
    """Return what a path below a folder says: `run`, `part1`, ..., and `seed=1` as a seed."""
    folders = place.relative_to(root).parts
    parts = list(itertools.filterfalse(CHECKPOINT.fullmatch, folders))
    row: Row = {RUN: "/".join(parts) or root.name}
    named: Row = {}
    for place_in_path, part in enumerate(parts, 1):
        row[f"part{place_in_path}"] = part
        if re.fullmatch(SETTINGS_IN_NAME, part):
            for setting in part.split(","):
                name, value = setting.split("=")
                named[name] = value
    return {"": row, "path": named}


SETTINGS_IN_NAME = r"(?!.*_\d+_.*_\d{4}-)[\w.+-]+=[^,=]*(,[\w.+-]+=[^,=]*)*"
"""Not Ray Tune's KIND_ab_00000_0_seed=1,width=8_2026-11-27_..., whose ends are unclear."""


CHECKPOINT = re.compile(r"checkpoint[-_](\d+)")
EPISODES = 100
W_AND_B = {*KNOWN_NAMES["w_and_b"]}


def decoded(content: bytes) -> str:
    """Return a text of UTF-8 or UTF-16 with plain ends of lines."""
    encoding = "utf-8-sig"
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):  # spreadsheets of Windows
        encoding = "utf-16"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(
            f"line {line} is not UTF-8 ({error.reason}); unpack it, or save it as CSV in UTF-8"
        ) from None
    # Names of our own columns begin with a NUL.
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise UserError(f"line {line} has NUL characters: it is damaged, or no text in UTF-8")
    return with_newlines(text)


def with_newlines(text: str) -> str:
    """Return a text with newlines only, of one with the ends of Windows or of a progress bar."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_csv(text: str) -> Source:
    """Return a table of texts; comments above its header are no rows."""
    below = below_comments(text)
    skipped = text.count("\n") + 1 - len(below)
    table = list(itertools.filterfalse(RULE.fullmatch, below))
    separator, lines = separator_of(table)
    header, found, lacking = _csv_rows(lines, separator, skipped)
    # The first run of a table without a header would be lost as its names.
    if len(header) > 1 and all_match(NUMBER, header):
        raise UserError(f"the first line has numbers only, {header[0]}, ...: write names above it")
    # A program that is started again appends its header again.
    rows = [row for row in found if list(map(str.strip, row)) != header]
    twice = set()
    columns = {}
    for place, name in enumerate(header):
        if name in columns:
            twice.add(name)
            name = f"{name}\0{place}"
        columns[name] = [_filled(row[place]) for row in rows]
    unclear = {}
    notes = []
    if separator in ";\t":
        unclear, notes = decimal_points(columns, separator)
    repeated = len(found) - len(rows)
    if repeated:
        notes.append(f"lines that repeat the header are no rows: {repeated}")
    # A writer that was killed may have cut the last number: 0.12 of 0.1234.
    if rows and lines[-1]:  # no line end
        end = rows[-1][-1]
        others = [len(row[-1]) for row in rows[:-1]]
        if lacking > 0:
            columns[STATE] = [None] * len(others) + [TORN[STATE]]
        elif len(end) < min(others, default=0):
            notes.append(f"the last line has no end: is {header[-1]} {end!r} whole?")
    frame = DataFrame(columns, dict.fromkeys(columns, String))
    if text.startswith('#{"t_start"'):  # a monitor of Stable-Baselines has a row an episode
        numbers = pl.all().replace({"True": "1", "False": "0"})
        episodes = frame.select(numbers.cast(Float64, strict=False))
        frame = episodes.tail(EPISODES).mean()
        notes.append(f"a monitor is a run: means of its last {EPISODES} episodes")
    if not W_AND_B.isdisjoint(header):
        fields = frame_of(known_cells(frame))
        frame = frame.hstack(fields.drop(frame.columns, strict=False))
    return Source(frame, notes=notes, twice=twice, unclear=unclear)


def _filled(cell: str) -> str | None:
    if cell.strip():
        return cell
    return None


RULE = re.compile(r"[\s|:+-]*---[\s|:+-]*\|?")
"""The line below the header of a table of Markdown."""


def below_comments(text: str) -> list[str]:
    """Return the lines from the header on."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if line.strip() and not line.startswith("#"):
            return lines[number:]
    return []


def _csv_rows(
    lines: Sequence[str], separator: str, skipped: int
) -> tuple[list[str], list[list[str]], int]:
    """Return the header, rows of its length, and how many cells the last row lacked."""
    header = []
    rows = []
    lacking = at = 0  # `at` is the first line of the row
    reader = csv.reader(io.StringIO("\n".join(lines)), delimiter=separator, strict=True)
    try:
        for cells in reader:
            if not header:
                for place, name in enumerate(cells, 1):
                    header.append(name.strip() or f"column {place}")
            elif cells:
                beyond = cells[len(header) :]
                if any(map(str.strip, beyond)):
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
    filled = list(filter(str.strip, lines)) + ["", ""]
    head, after = filled[:2]
    best = max(",\t;|", key=lambda mark: _width(head, after, mark))
    words = len(head.split())
    is_one_column = _width(head, after, best) == (False, True, 1)
    if is_one_column and words == len(after.split()) > 1:
        return "\t", ["\t".join(line.split()) for line in lines]
    return best, list(lines)


def _width(head: str, after: str, mark: str) -> tuple[bool, bool, int]:
    """Return whether a mark separates a header, and as it does a row, and into how many cells."""
    rows = list(csv.reader([head, after], delimiter=mark))
    cells = len(rows[0])
    widths = set(map(len, rows[1:]))
    return cells > 1, widths <= {0, cells}, cells


def decimal_points(
    columns: dict[str, list[Any]], separator: str
) -> tuple[dict[str, str], list[str]]:
    """Write decimal commas as points; return columns that can be read in two ways, and notes.

    A mark with three digits after it, as in 1,005 or 1.005, may be one of thousands; those of
    0,005 and 1,05 are decimal ones, and so is the same mark in all columns of their table.
    """
    commas = {}
    points = {}
    for name, own in columns.items():
        commas[name] = _in_threes(own, ",")
        points[name] = _in_threes(own, ".")
    has_commas = False in commas.values()
    may_be_thousands = has_commas
    # A spreadsheet writes semicolons where commas are decimal, so that points may be thousands.
    if separator == ";" and False not in points.values():
        may_be_thousands = True
    unclear = {}
    decimal = []
    for name, own in columns.items():
        if points[name] and (may_be_thousands or _has_hundreds(own)):
            unclear[name] = _two_readings(name, own)
        if has_commas and commas[name] is not None:
            decimal.append(name)
            columns[name] = [cell and cell.replace(",", ".") for cell in own]
        elif commas[name]:
            unclear[name] = _two_readings(name, own)
    notes = []
    if decimal:
        notes.append(f"decimal commas were read in {', '.join(decimal)}")
    return unclear, notes


def _in_threes(column: Sequence[Any], mark: str) -> bool | None:
    """Return whether each mark has three digits after it; None if no number has it, or a text."""
    other = ",.".replace(mark, "")
    marked = []
    for cell in column:
        if not cell or not re.search(r"\d", cell):
            continue
        text = cell.strip()
        read = text.replace(mark, ".")
        if other in text or not re.fullmatch(NUMBER, read):
            return None
        if mark in text:
            marked.append(text)
    if not marked:
        return None
    return all_match(THOUSANDS, marked)


def _has_hundreds(column: Sequence[Any]) -> bool:
    """Return whether a number has three digits and no mark, as 948 in a column with 1.005."""
    return any(re.fullmatch(r"\s*\d{3}\s*", cell or "") for cell in column)


def _two_readings(name: str, column: Sequence[Any]) -> str:
    """Return the two values of the first number that has a mark, and how to write each."""
    texts = filter(None, plain(column))
    text = next(filter(re.compile(THOUSANDS).fullmatch, texts))
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
        parts = [{"": {RUN: row[NAME]}, "file": row[RUN]} for row in rows]
        found = source_of(parts)
        found.paths = {RUN}
    else:
        found = Source(frame_of(rows))
    # The state of a trainer of Hugging Face.
    if isinstance(value, Mapping) and "log_history" in value:
        found.step = "step"
    if re.search(f'"{THOUSANDS}"', text):  # numbers that somebody wrote as texts
        found.unclear, _ = decimal_points(found.frame.to_dict(as_series=False), "\t")
    return found


NAME = "\0name"
"""Of an object among others; the object itself is under `RUN`."""


def objects_of(value: Any) -> Sequence[Fields]:
    """Return the objects of one of the forms in which programs write a list of runs."""
    if isinstance(value, list):
        return value
    if not isinstance(value, Mapping):
        return [value]
    lists = {}
    of_objects = []
    for name, own in value.items():
        if isinstance(own, list):
            lists[name] = own
            if set(map(type, own)) == {dict}:
                of_objects.append(name)
    if len(of_objects) == len(value) > 1:  # several runs, or rows, have one name
        rows = []
        for name in of_objects:
            for row in value[name]:
                rows.append({NAME: name, RUN: row})
        return rows
    if len(of_objects) == 1:  # the other facts are those of all rows
        common = {
            name: own for name, own in value.items() if name not in lists and name != "schema"
        }
        return [common | row for row in value[of_objects[0]]]
    if lists:
        return _rows_of_lists(value, lists)
    return _inner_objects(value)


def _rows_of_lists(value: Fields, lists: Mapping[str, list[Any]]) -> Sequence[Fields]:
    """Return a row for each place in the lists of an object; its other facts are in all rows."""
    lengths = set(map(len, lists.values()))
    if len(lengths) > 1:
        said = [f"{name!r} has {len(own)}" for name, own in lists.items()]
        raise UserError(f"its lists have different lengths ({some(said)}); keep those of runs")
    cells = [{name: own[place] for name, own in lists.items()} for place in range(min(lengths))]
    return [dict(value) | own for own in cells]


def _inner_objects(value: Fields) -> Sequence[Fields]:
    """Return the objects of a mapping without lists: metrics, columns or runs by their names.

    The splits of the data are one run.
    """
    inside = {name: own for name, own in value.items() if isinstance(own, Mapping)}
    if not inside:
        return [value]
    shared = set.intersection(*map(set, inside.values()))
    if {"steps", "values"} <= shared:  # Sacred
        return _series(inside)
    if len(inside) < len(value):
        return [value]
    cells = {}
    for name, own in inside.items():
        for key, cell in own.items():
            cells[f"{name}.{key}"] = cell
    if set(map(type, cells.values())) == {list}:  # evals_result of LightGBM and XGBoost
        iterations = enumerate(objects_of(cells))
        return [{"iteration": number} | dict(row) for number, row in iterations]
    if not shared or all_match(SPLIT, inside):
        return [value]
    rows = keys_of(inside.values())
    if not all_match(r"\d+", rows):
        return [{NAME: name, RUN: own} for name, own in inside.items()]
    # pandas: column -> row -> value.
    return [{name: own.get(row) for name, own in inside.items()} for row in rows]


def _series(metrics: Mapping[str, Fields]) -> Sequence[Fields]:
    """Return a row for each step of metrics that have steps of their own."""
    rows = {}
    for name, own in metrics.items():
        for step, value in zip(own["steps"], own["values"], strict=True):
            unknown = {"step": step} | dict.fromkeys(metrics)
            rows.setdefault(step, unknown)[name] = value
    return list(rows.values())


def _object(pairs: list[tuple[str, Any]]) -> Row:
    row = {}
    for name, value in pairs:
        # Python would keep the last value in silence.
        if name in row:
            raise UserError(f"an object has the key {name!r} twice")
        row[name] = value
    return row


def json_lines(text: str) -> list[Row]:
    """Return the objects of lines; a last line that was cut is `TORN`."""
    rows = []
    lines = text.split("\n")
    for place, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json_value(line, object_pairs_hook=_object)
        except UserError as error:
            raise UserError(f"line {place}: {error}") from None
        except ValueError as error:
            if place == len(lines) and rows:  # a writer that was killed
                rows.append(TORN)
                break
            raise UserError(f"line {place} is not JSON ({error}): {line.strip()[:60]!r}") from None
        if not isinstance(value, dict):
            raise UserError(f"line {place} is no object: {line.strip()[:60]!r}")
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
    for found in re.finditer(r"\{", text[:place]):
        begin = found.start()
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
    # Python counts True as 1.
    if isinstance(value, bool):
        raise ValueError("a truth value")
    try:
        result = float(value)
    except (TypeError, OverflowError) as error:
        raise ValueError(str(error)) from error
    text = str(value).lower()
    # 1e999 is read as infinity, too, but no run has diverged.
    is_too_large = abs(result) > LARGEST and "inf" not in text
    if is_too_large or "_" in text:
        raise ValueError("too large, or 1_000, which Python reads as 1000")
    return result


def check_margin(margin: float):
    """Raise a `UserError` unless a margin is a number of 0 or more."""
    if not 0 <= margin < math.inf:
        raise UserError(f"margin {margin} is not a number of 0 or more; give one, as 0.002")


def plain(values: Iterable[Any]) -> list[str | None]:
    """Return the texts of cells; blanks around them and forms of Unicode do not count."""
    return list(map(_plain, values))


def _plain(value: Any) -> str | None:
    if value is None:
        return None
    text = normalize("NFC", str(value))
    # No reader sees these characters, so labels that differ by them are one.
    seen = re.sub("[\u200b\ufeff]", "", text)
    return " ".join(seen.split()) or None


def mapped(values: Series, read: Callable[[Series], Sequence[str | None]]) -> Series:
    """Return a column of the texts that `read` makes of its different cells."""
    known = values.unique(maintain_order=True)
    texts = Series(values.name, read(known), String)
    return values.replace_strict(known, texts, return_dtype=String)


SHOWN = 3
"""Examples in a line."""


def some(texts: Sequence[str]) -> str:
    """Return the first texts, and how many more there are."""
    shown = "; ".join(texts[:SHOWN])
    more = len(texts) - SHOWN
    if more > 0:
        shown += f"; {more} more"
    return shown
