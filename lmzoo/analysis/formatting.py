"""Numbers as words, the same in every table: "—" where there is none, a true minus sign."""

import json
from collections.abc import Mapping
from typing import Any

NONE = "—"
KINDS = {
    "exact": "exact log-likelihood",
    "bound": "bound (at least the true loss, in expectation)",
    "reconstruction": "reconstruction (the scored sequence was also an input)",
    "conditional": "conditional on another sequence",
}


def title(row: Mapping[str, Any]) -> str:
    """A table's kind, corpus, sizes and floor, of any of its rows."""
    corpus = json.loads(row["corpus"])
    name = corpus.pop("name", "corpus")
    rest = ", ".join(f"{key}={value}" for key, value in corpus.items() if value is not None)
    floor = f"; floor {row['floor']:.4f}" if row["floor"] is not None else ""
    sizes = f"vocabulary {row['vocab']:,}, length {row['length']}"
    kind = KINDS.get(row["score"], row["score"])
    return f"{kind}; {name}{f' ({rest})' if rest else ''}, {sizes}{floor}"


def mean(value: float | None, high: float | None, form: str) -> str:
    """A mean with half its interval, or bare where it is exact."""
    if value is not None and high == value:  # exact
        return number(value, form)
    half = None if value is None or high is None else high - value
    return NONE if value is None else f"{number(value, form)} ±{number(half, form.lstrip('+'))}"


def p_value(p: float | None) -> str:
    """A p-value."""
    return "<0.001" if p is not None and p < 0.001 else number(p, ".3f")


def probability(value: float | None) -> str:
    """Never rounded to certainty, as no test is."""
    if value is None or value in (0, 1):
        return number(value, ".0f")
    return ">0.99" if value > 0.99 else "<0.01" if value < 0.01 else f"{value:.2f}"


def perplexity(value: float | None) -> str:
    """A perplexity."""
    return number(value, ",.2f" if value is not None and value < 1000 else ",.0f")


def number(value: float | None, form: str) -> str:
    """The number in this form."""
    return NONE if value is None else f"{value:{form}}".replace("-", "−")
