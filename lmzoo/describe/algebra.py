"""Rewrite an equation as text: replace a term, then leave out what has no effect.

An expression has products with ⊙ or a space, sums with " + ", and functions with parentheses.
"""

import re
from collections.abc import Iterable, Sequence


def precedence(rule: str) -> tuple[int, int]:
    """Return a key: equations come first, then long terms before their symbols, then functions."""
    old, arrow, _ = rule.partition(" → ")
    if not arrow and " = " in rule:
        return (0, 0)
    return (2, 0) if old.endswith("(u)") else (1, -len(old))


def replaced(pairs: Sequence[tuple[str, str]], rule: str) -> list[tuple[str, str]]:
    """Return left and right sides after a replacement, as `equations.py` writes it.

    The equation of a symbol that is replaced is left out.
    """
    old, arrow, new = rule.partition(" → ")
    if not arrow and " = " in rule:
        left, _, right = rule.partition(" = ")
        return [(name, right if name == left else before) for name, before in pairs]
    if old.endswith("(u)"):
        return [(left, _without(right, old.removesuffix("u)"))) for left, right in pairs]
    pattern = word(old)
    return [
        (left, pattern.sub(lambda _: new if arrow else "0", right))
        for left, right in pairs
        if left != old
    ]


def word(text: str, after: str = r"(?![\w'²])") -> re.Pattern[str]:
    """Return a pattern of a term that is no part of a longer symbol."""
    before = r"(?<![\w'_^])" if re.match(r"\w", text) else ""
    return re.compile(before + re.escape(text) + (after if re.search(r"\w$", text) else ""))


def _without(text: str, function: str) -> str:
    """Remove a function, written with its parenthesis, from around its argument."""
    return word(function).sub("(", text)


SIMPLER = [
    (re.compile(pattern), new)
    for pattern, new in (
        (r"(?<![\w.])0 \+ ", ""), (r" \+ 0(?![\w.^])", ""), (r"\(1 − 0\)", "1"),
        (r"(?<![\w.])1 ⊙ ", ""), (r" ⊙ 1(?![\w.^ᵀ])", ""),
        (r"(?<![\w.])1 (?=[\w(√])", ""), (r"(?<=[\w)}]) 1(?= ?\)| ⊙|$)", ""),
        (r"(?<=[ (=])I (?=\w)", ""), (r"σ\( ?0 ?\)", "½"), (r"tanh\( ?0 ?\)", "0"),
    )
]  # fmt: skip
"""Replacements that keep the value of an expression."""
SINGLE = re.compile(r"[\w^{}ᵀ-]*(\(.*\))?", re.DOTALL)
"""A symbol, or one pair of parentheses, perhaps of a function."""


def simplified(text: str) -> str:
    """Return an expression without zeros that are added, and ones that are factors."""
    before = ""
    while text != before:
        before = text
        for pattern, new in SIMPLER:
            text = pattern.sub(new, text)
        text = _without_parentheses(text)
    return text


def _without_parentheses(text: str) -> str:
    """Remove one pair of parentheses around a single part, or around the whole expression."""
    for start, end in _pairs(text):
        inner = text[start + 1 : end].strip()
        function = start > 0 and re.match(r"[\w'²^)}]", text[start - 1]) is not None
        whole = start == 0 and end == len(text) - 1
        nested = inner.startswith("(") and _is_single(inner)
        if nested or whole or (_is_single(inner) and not function):
            kept = f"({inner[1:-1]})" if nested else inner
            return text[:start] + kept + text[end + 1 :]
    return text


def _is_single(text: str) -> bool:
    found = SINGLE.fullmatch(text)
    if found is None or not text:
        return False
    return found[1] is None or (found.start(1), len(text) - 1) in _pairs(text)


def _pairs(text: str) -> list[tuple[int, int]]:
    """Return the positions of matching parentheses."""
    opened: list[int] = []
    pairs = []
    for place, letter in enumerate(text):
        if letter == "(":
            opened.append(place)
        elif letter == ")" and opened:
            pairs.append((opened.pop(), place))
    return sorted(pairs)


def reads(left: str, pairs: Iterable[tuple[str, str]], *, now: bool = False) -> bool:
    """Whether an equation of another quantity has one of the quantities in `left`.

    Args:
        left: a left side, as "q_t" or "r_t, k_t".
        pairs: left and right sides.
        now: look only for the quantity at this step, not for the one at t − 1.
    """
    symbols = [re.sub(r"_t$|\(u\)$", "", symbol) for symbol in left.split(", ")]
    after = r"(?=_t|[^\w'_]|$)" if now else r"(?=_t|_\{t-1\}|[^\w'_]|$)"
    patterns = [word(symbol, after) for symbol in symbols]
    return any(
        pattern.search(right) for name, right in pairs if name != left for pattern in patterns
    )
