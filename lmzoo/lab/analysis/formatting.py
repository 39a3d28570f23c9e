r"""The numbers of tables: units and digits, "—" for a missing number, a true minus sign.

    token      nats per token, every token with the same weight
    sentence   nats per token, every sentence with the same weight
    bpc        token · tokens / (ln 2 · characters)      bits per character, or per residue
    bpb        token · tokens / (ln 2 · bytes)           bits per byte

`token · tokens` is the loss of the whole test split. Every `test` event has the tokens, characters,
bytes and words of the split; `lmzoo/data/text_facts.py` says what is counted. They are equal for
all runs on one corpus, so intervals and differences are converted by one factor, and verdicts stay.

A training objective is no loss of the text and has no bits.
"""

import json
from collections.abc import Iterable, Mapping
from math import floor, inf, log, log10
from typing import Any

import polars as pl

from lmzoo.base.errors import UserError
from lmzoo.lab.store.labels import SCORE_KINDS

MISSING = "—"
MOST_DECIMALS = 7
"""Numbers that need more decimals have an exponent."""


def join_labels(labels: Iterable[str]) -> str:
    """Return labels in a line; those that have a comma are in quotes."""
    return ", ".join(repr(label) if "," in label else label for label in labels)


def table_title(row: Mapping[str, Any]) -> str:
    """Return the title of the table of a row: kind of score, corpus, sizes and entropy floor."""
    kind = SCORE_KINDS.get(row["score"], str(row["score"]))
    if row["vocab"] is None:
        return kind
    corpus = json.loads(row["corpus"])
    name = corpus.pop("name", "corpus")
    options = ", ".join(f"{key}={value}" for key, value in corpus.items() if value is not None)
    if options:
        name += f" ({options})"
    title = (
        f"{kind}; {name}; vocabulary of {row['vocab']:,}, sequences of up to {row['length']} tokens"
    )
    if row["floor"] is None:
        return title
    return f"{title}; entropy floor {row['floor']:.4f}"


def format_mean(value: float | None, low: float | None, high: float | None, form: str) -> str:
    """Return "mean ±half", or "mean [low, high]" where the halves differ.

    An exact mean has no interval.
    """
    if value is None:
        return MISSING
    if low is None or high is None:
        return f"{format_number(value, form)} ±{MISSING}"
    shown = format_number(value, form)
    if low == value == high:
        return shown
    halves = [format_number(half, form.lstrip("+")) for half in (value - low, high - value)]
    seems_to_hold_0 = low * high > 0 and shown.lstrip("+−") == halves[1]
    if halves[0] == halves[1] and not seems_to_hold_0:
        return f"{shown} ±{halves[1]}"
    return f"{shown} [{', '.join(format_ends(low, high, form))}]"


def format_ends(low: float, high: float, form: str) -> list[str]:
    """Return the ends of an interval; one without 0 has no end that is rounded to 0."""
    ends = [format_number(end, form) for end in (low, high)]
    if low * high <= 0:
        return ends
    nothing = format_number(0.0, form)
    for place, end in enumerate((low, high)):
        if ends[place] == nothing:
            ends[place] = format_number(end, ".1g")
    return ends


def positive_halves(table: pl.DataFrame, mean: str) -> list[float]:
    """Return the upper halves of the intervals of a table, those that are not 0."""
    halves = [*(table["high"] - table[mean]), *(table["difference_high"] - table["difference"])]
    return [half for half in halves if half is not None and 0 < half < inf]


def digits_of(half: float, values: Iterable[float], least: int) -> str:
    """Return the end of a format that shows two digits of `half`, in a table of such values.

    These are decimals, from `least` to `MOST_DECIMALS`, or those of a number with an exponent.
    """
    needed = 1 - floor(log10(half))
    largest = max(map(abs, values))
    exponent = 0
    if largest > 0:
        exponent = floor(log10(largest))
    if needed > MOST_DECIMALS or exponent > 14:
        return f"{min(max(needed + exponent, 1), 15)}e"
    return f"{max(needed, least)}f"


def format_p(p: float | None) -> str:
    """Return a p-value with three decimals, or "<0.001"; with five where it is near 0.05."""
    if p is not None and p < 0.001:
        return "<0.001"
    if p is not None and round(p, 3) == 0.05:  # the sign is shown below it
        return format_number(p, ".5f")
    return format_number(p, ".3f")


def format_number(value: int | float | None, form: str) -> str:
    """Return the number in this format, "—" for None; one that is rounded to 0 has no sign."""
    if value is None:
        return MISSING
    text = f"{value:{form}}".replace("-", "−")
    if {*text} <= {*"+−0.%"}:
        return text.lstrip("+−")
    return text


def format_value(value: Any) -> str:
    """Return the value of a config field; floats have three significant digits."""
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value)


UNITS = {
    "token": "token loss in nats per token",
    "sentence": "sentence loss in nats per token",
    "bpc": "loss in bits per character",
    "bpb": "loss in bits per byte",
}
"""Unit -> what a table in this unit shows."""
EFFECTS = {"bpc": "bits per character", "bpb": "bits per byte"}
"""Unit -> the words after a difference; "nats" for the others."""
OBJECTIVE, METRIC = "objective", "metric"
"""The kinds of score of a training objective, and of a metric of the user's programs."""
SIZES = ("characters", "bytes", "words")
SIZE_OF = {"bpc": "characters_per_token", "bpb": "bytes_per_token"}
SIZE_COLUMNS = (*SIZE_OF.values(), "words_per_token")


def metric_of(unit: str) -> str:
    """Return the metric, `token` or `sentence`, whose losses are converted to the unit.

    A `UserError` says that the unit is unknown.
    """
    if unit not in UNITS:
        raise UserError(f"no unit {unit!r}; known: {', '.join(UNITS)}")
    if unit == "sentence":
        return unit
    return "token"


def effect_words(unit: str) -> str:
    """Return the words after a difference in this unit; one of the user stays as it is."""
    if unit in EFFECTS:
        return EFFECTS[unit]
    if unit in UNITS:
        return "nats"
    return unit


def text_sizes(runs: pl.LazyFrame, events: pl.LazyFrame) -> pl.DataFrame:
    """Return one row for each known corpus: its fingerprint and `SIZE_COLUMNS`.

    Words are null in records of earlier versions.
    """
    text = runs.filter(pl.col("score") != OBJECTIVE).select("run", "fingerprint")
    tests = events.filter(pl.col("event") == "test").drop_nulls(["tokens", "characters", "bytes"])
    recorded = tests.join(text, on="run").select("fingerprint", "tokens", *SIZES).collect()
    ratios = {f"{name}_per_token": pl.col(name) / pl.col("tokens") for name in SIZES}
    return recorded.unique("fingerprint", keep="first").select("fingerprint", **ratios)


def add_sizes(table: pl.DataFrame, sizes: pl.DataFrame) -> pl.DataFrame:
    """Add `SIZE_COLUMNS` and the token loss in bits to a table with fingerprint, score, loss."""
    is_text = pl.col("score") != OBJECTIVE
    return (
        table.join(sizes, on="fingerprint", how="left", maintain_order="left")
        .with_columns(pl.when(is_text).then(pl.col(SIZE_COLUMNS)))
        .with_columns(
            bits_per_character=pl.col("loss") * bits_per_nat(SIZE_COLUMNS[0]),
            bits_per_byte=pl.col("loss") * bits_per_nat(SIZE_COLUMNS[1]),
        )
    )


def bits_per_nat(size: str) -> pl.Expr:
    """Return bits per character or per byte of one nat per token; `size` is a size column."""
    return 1 / (log(2) * pl.col(size))


def size_line(table: pl.DataFrame) -> str:
    """Return what a nat per token is in bits, from a table with `SIZE_COLUMNS`; "" if unknown."""
    known = table.drop_nulls(SIZE_COLUMNS[:2])
    if known.is_empty():
        return ""
    characters, size = (known.select(bits_per_nat(name)).item(0, 0) for name in SIZE_COLUMNS[:2])
    return (
        f"one nat per token is {characters:.4f} bits per character and {size:.4f} bits per byte "
        f"of the test text, which has {known[SIZE_COLUMNS[0]].item(0):.2f} characters per token"
    )


def require_size(frame: pl.DataFrame, unit: str) -> None:
    """Raise a `UserError` unless all rows with the loss of a text have its size."""
    if frame.filter(pl.col("score") != OBJECTIVE)[SIZE_OF[unit]].null_count():
        raise UserError(
            f"the records lack the size of the test text, which --unit {unit} needs: residues form "
            "no words, and earlier versions wrote no size; use --unit token"
        )
