"""Predictors that solve a task from the prefix alone, written apart from the generators.

Each takes the names of the symbols before a scored symbol, and returns the name of the symbol.
"""

import re
from collections.abc import Callable, Sequence

Prefix = Sequence[str]
Oracle = Callable[[Prefix], str]


def recall_pairs(prefix: Prefix) -> str:
    """Return what followed the last symbol where it first was at an even place."""
    return next(prefix[i + 1] for i in range(0, len(prefix), 2) if prefix[i] == prefix[-1])


def recall_fuzzy(prefix: Prefix) -> str:
    """Return the next symbol of the value that followed the same key before."""
    runs = re.findall(r"((?:k\d+ )+)((?:v\d+ ?)*)", " ".join(prefix) + " ")
    values = dict(reversed([(key, value.split()) for key, value in runs[:-1]]))
    key, begun = runs[-1]
    return values[key][len(begun.split())]


def induce(prefix: Prefix) -> str:
    """Return the symbol after the first `!`."""
    return prefix[prefix.index("!") + 1]


def copy(prefix: Prefix) -> str:
    """Return the next symbol, blanks left out, of those before `?`."""
    mark = prefix.index("?")
    return [x for x in prefix[:mark] if x != "blank"][len(prefix) - mark - 1]


def add_bits(prefix: Prefix) -> str:
    """Return the parity of the ones."""
    return str("".join(prefix).count("1") % 2)


def evaluate(prefix: Prefix) -> str:
    """Return the value modulo 5 that Python computes."""
    return str(eval("".join(prefix[:-1])) % 5)


def compose(prefix: Prefix) -> str:
    """Return the product by moving things one after another."""
    places = "12345"[: len(prefix[0])]
    for g in prefix[:-1]:
        places = "".join(g[int(place) - 1] for place in places)
    return places


ORACLES: dict[str, Oracle] = {
    "mqar": recall_pairs,
    "in_context_recall": recall_pairs,
    "noisy_recall": recall_pairs,
    "fuzzy_recall": recall_fuzzy,
    "induction": induce,
    "selective_copying": copy,
    "compression": copy,
    "parity": add_bits,
    "modular_arithmetic": evaluate,
    "s5": compose,
    "a5": compose,
    "s4": compose,
    "s3": compose,
    "z60": lambda prefix: str(sum(map(int, prefix[:-1])) % 60),
}
"""The memorisation task has no oracle: its answer is not in the prefix."""
