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
from collections.abc import Iterable
from math import floor, inf, log, log10
from typing import Any

import polars as pl
from polars import DataFrame, LazyFrame, col, when

from lmzoo.base.errors import UserError
from lmzoo.base.plain import Fields, FieldsDict
from lmzoo.lab.store.labels import SCORE_KINDS

MISSING = "—"
MOST_DECIMALS = 7
"""Numbers that need more decimals have an exponent."""


def join_labels(labels: Iterable[str]) -> str:
    """Return labels in a line; those that have a comma are in quotes."""
    return ", ".join(map(_quoted, labels))


def _quoted(label: str) -> str:
    # In a list, a label with a comma would read as two.
    if "," in label:
        return repr(label)
    return label


def labels_of(study: Fields) -> FieldsDict:
    """Return the id of each point of a study -> its label."""
    return {point["id"]: point["label"] for point in study["points"]}


def asked_of(study: Fields) -> FieldsDict:
    """Return the options of a study; records of earlier versions have none."""
    return study.get("asked") or {}


def table_title(row: Fields) -> str:
    """Return the title of the table of a row: kind of score, corpus, sizes and entropy floor."""
    score = row["score"]
    kind = SCORE_KINDS.get(score, str(score))
    if row["vocab"] is None:
        return kind
    corpus = json.loads(row["corpus"])
    name = corpus.pop("name", "corpus")
    options = [f"{key}={value}" for key, value in corpus.items() if value is not None]
    if options:
        name += f" ({', '.join(options)})"
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
    shown = format_number(value, form)
    if value is None:
        return shown
    if low is None or high is None:
        return f"{shown} ±{MISSING}"
    if low == value == high:
        return shown
    unsigned = form.lstrip("+")
    below = format_number(value - low, unsigned)
    above = format_number(high - value, unsigned)
    # "0.3 ±0.3" would say that 0 is in the interval.
    seems_to_hold_0 = low * high > 0 and shown.lstrip("+−") == above
    if below == above and not seems_to_hold_0:
        return f"{shown} ±{above}"
    ends = format_ends(low, high, form)
    return f"{shown} [{', '.join(ends)}]"


def format_ends(low: float, high: float, form: str) -> list[str]:
    """Return the ends of an interval; one without 0 has no end that is rounded to 0."""
    nothing = format_number(0.0, form)
    ends = []
    for end in (low, high):
        shown = format_number(end, form)
        if shown == nothing and low * high > 0:
            shown = format_number(end, ".1g")
        ends.append(shown)
    return ends


def positive_halves(table: DataFrame, mean: str) -> list[float]:
    """Return the upper halves of the intervals of a table, those that are not 0."""
    own = table["high"] - table[mean]
    of_differences = table["difference_high"] - table["difference"]
    halves = own.append(of_differences)
    is_known = (halves > 0) & (halves < inf)
    return halves.filter(is_known).to_list()


def digits_of(half: float, values: Iterable[float], least: int) -> str:
    """Return the end of a format that shows two digits of `half`, in a table of such values.

    These are decimals, from `least` to `MOST_DECIMALS`, or those of a number with an exponent.
    """
    needed = 1 - floor(log10(half))
    largest = max(map(abs, values))
    exponent = 0
    if largest > 0:
        exponent = floor(log10(largest))
    # A metric of the user's programs may be tiny or huge.
    if needed > MOST_DECIMALS or exponent > 14:
        digits = max(needed + exponent, 1)
        return f"{min(digits, 15)}e"
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
    # The sign of a rounded 0 would claim a direction that no digit shows.
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
OBJECTIVE = "objective"
"""The kind of score of a training objective."""
METRIC = "metric"
"""The kind of score of a metric of the user's programs."""
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
    # A metric of the user has its own unit.
    if unit in UNITS:
        return "nats"
    return unit


def text_sizes(runs: LazyFrame, events: LazyFrame) -> DataFrame:
    """Return one row for each known corpus: its fingerprint and `SIZE_COLUMNS`.

    Words are null in records of earlier versions.
    """
    text = runs.filter(IS_TEXT).select("run", "fingerprint")
    tests = events.filter(event="test")
    sized = tests.drop_nulls(["tokens", "characters", "bytes"])
    recorded = sized.join(text, on="run").collect()
    # All runs on one corpus have equal sizes, so any row tells them.
    corpora = recorded.unique("fingerprint", keep="first")
    ratios = col(SIZES) / col("tokens")
    return corpora.select("fingerprint", ratios.name.suffix("_per_token"))


def add_sizes(table: DataFrame, sizes: DataFrame) -> DataFrame:
    """Add `SIZE_COLUMNS` and the token loss in bits to a table with fingerprint, score, loss."""
    table = add_columns(table, sizes, "fingerprint")
    table = table.with_columns(when(IS_TEXT).then(col(SIZE_COLUMNS)))
    loss = col("loss")
    return table.with_columns(
        bits_per_character=loss * BITS_PER_CHARACTER,
        bits_per_byte=loss * BITS_PER_BYTE,
    )


def add_columns(table: DataFrame, other: DataFrame, on: str | list[str]) -> DataFrame:
    """Add the columns of another table, null where it has no such row."""
    # A join keeps an order only with this option.
    return table.join(other, on=on, how="left", maintain_order="left")


def bits_per_nat(size: str) -> pl.Expr:
    """Return bits per character or per byte of one nat per token; `size` is a size column."""
    return 1 / (log(2) * col(size))


BITS_PER_CHARACTER = bits_per_nat("characters_per_token")
BITS_PER_BYTE = bits_per_nat("bytes_per_token")
IS_TEXT = col("score") != OBJECTIVE
"""A training objective is no loss of the text, so it has no bits."""


def size_line(table: DataFrame) -> str:
    """Return what a nat per token is in bits, from a table with `SIZE_COLUMNS`; "" if unknown."""
    known = table.drop_nulls(SIZE_COLUMNS[:2])
    if known.is_empty():
        return ""
    facts = known.select(BITS_PER_CHARACTER, BITS_PER_BYTE.alias("bytes"), SIZE_COLUMNS[0])
    characters, size, of_character = facts.row(0)
    return (
        f"one nat per token is {characters:.4f} bits per character and {size:.4f} bits per byte "
        f"of the test text, which has {of_character:.2f} characters per token"
    )


def require_size(frame: DataFrame, unit: str):
    """Raise a `UserError` unless all rows with the loss of a text have its size."""
    texts = frame.filter(IS_TEXT)
    if texts[SIZE_OF[unit]].null_count():
        raise UserError(
            f"the records lack the size of the test text, which --unit {unit} needs: residues form "
            "no words, and earlier versions wrote no size; use --unit token"
        )
