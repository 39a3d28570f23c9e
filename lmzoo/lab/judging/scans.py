"""Read large tables by columns: polars scans them, and only the rows that matter are kept.

What polars reads in another way than the readers of small tables, or not at all, is left to them:
comments, blank lines, repeated headers, marks in numbers, a torn end, nested values, and null as a
label of JSON lines.
"""

import contextlib
import mmap
from pathlib import Path
from typing import Any

import polars as pl
from polars import Float64, LazyFrame, col, when

from lmzoo.base.errors import UserError
from lmzoo.lab.judging.texts import Source, below_comments, decoded, read_csv, separator_of

LARGE = 4_000_000
"""Bytes from which a table is scanned."""
HEAD = 10_000
"""Rows that say which columns of a table an account needs."""


def large_table(file: Path, question: Any) -> Source | None:
    """Return what a question needs of a large table; None if it is small, or not plain."""
    if not file.is_file() or file.stat().st_size < LARGE:
        return None
    # The readers of small tables say what is wrong with this one.
    with contextlib.suppress(UserError, pl.exceptions.PolarsError):
        scan, separator = _scan(file)
        schema = scan.collect_schema()
        for dtype in schema.values():
            if dtype.is_nested() or dtype == pl.Binary:
                return None
        columns = question.needed(scan.head(HEAD).collect())
        found = None
        if question.step is not None and question.best is None:
            typed = scan
            if separator:
                numbers = dict.fromkeys((question.metric, question.step), Float64)
                kinds = dict(schema) | numbers
                typed = pl.scan_csv(file, separator=separator, schema=kinds)
            with contextlib.suppress(pl.exceptions.PolarsError):  # a number is a text
                found = _ends_of_runs(typed.select(columns), question)
        if found is None:
            found = Source(scan.select(columns).collect())
        labels = found.frame.select(question.columns)
        has_null = len(labels.drop_nulls()) < len(labels)
        if file.suffix == ".jsonl" and has_null:
            return None
        return found
    return None


def _scan(file: Path) -> tuple[LazyFrame, str]:
    """Return the scan of a table, and the separator of a CSV; a `UserError` if it is not plain.

    Of a plain CSV, polars reads the beginning as `read_csv` does.
    """
    not_plain = UserError(f"{file} is not read by columns")
    with file.open("rb") as opened:
        content = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    with content:
        if content[:4] == b"PAR1":
            return pl.scan_parquet(file), ""
        if content[-1:] != b"\n" or content.find(b"\0") >= 0:
            raise not_plain
        if content[:1] == b"{":
            return pl.scan_ndjson(file, infer_schema_length=HEAD), ""
        end = content.rfind(b"\n", 0, 2**16) + 1
        head = content[:end]
        text = decoded(head)
        separator, _ = separator_of(below_comments(text))
        ours = read_csv(text)
        theirs = pl.read_csv(head, separator=separator, infer_schema=False)
        if ours.unclear or not ours.frame.equals(theirs):
            raise not_plain
        header, _, _ = head.partition(b"\n")
        odd = [b"\n\n", b"\n\r\n", b"\n" + header + b"\n"]
        if separator != ",":
            odd.append(b",")
        for mark in odd:
            if content.find(mark) >= 0:
                raise not_plain
    return pl.scan_csv(file, separator=separator, infer_schema=False), separator


def _ends_of_runs(scan: LazyFrame, question: Any) -> Source | None:
    """Return the rows of a history that an account looks at, and how many others there are.

    These are the rows at the first and the last step of each run, at the step of its last row, and
    those with its lowest and highest value. None: one is no usual number, or a run may go on in
    another one, so all rows matter.
    """
    schema = scan.collect_schema()
    numbers = (question.metric, question.step)
    for name in numbers:
        if name not in schema or not schema[name].is_numeric():
            return None
    keys = [name for name in schema if name not in numbers]
    value = col(question.metric).cast(Float64)
    step = col(question.step).cast(Float64)
    is_known = value.is_not_null()
    is_exact = value.abs() < 2**53
    is_usual = is_exact & step.is_finite().fill_null(value=False)
    marked = scan.with_columns(
        _value=value,
        _odd=is_known & ~is_usual,
        _step=when(is_known).then(step),
    )
    seen = col("_value", "_step")
    by_run = marked.group_by(keys).agg(
        seen.min().name.suffix("_low"),
        seen.max().name.suffix("_high"),
        _last=col("_step").drop_nulls().last(),
        _odd=pl.any("_odd"),
        _rows=pl.len(),
    )
    runs = by_run.collect(engine="streaming")
    known = runs.drop_nulls("_step_low")
    if known.is_empty() or runs["_odd"].any():
        return None
    goes_on = pl.max("_step_low") > pl.min("_step_high")
    if known.select(goes_on).item():
        return None
    is_end = col("_step_low").is_null()  # a run without a value has no ends
    may_be_end = col("_step").is_null()
    # The best rows are compared with the last ones.
    ends = {
        "_step": ("_step_low", "_step_high", "_last"),
        "_value": ("_value_low", "_value_high"),
    }
    for column, names in ends.items():
        for name in names:
            is_end |= col(column) == col(name)
            may_be_end |= col(column).is_in(known[name].implode())
    # Few rows are at an end of any run: the others need no join.
    few = marked.drop("_odd").filter(may_be_end)
    joined = few.join(runs.lazy(), on=keys, nulls_equal=True, maintain_order="left")
    at_ends = joined.filter(is_end).select(list(schema))
    frame = at_ends.collect(engine="streaming")
    whole = int(runs["_rows"].sum())
    return Source(frame, unread=whole - len(frame))
