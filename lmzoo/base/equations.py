r"""The equations of a cell without the terms that are cut, as text. Standard library only.

The docstring of the cell's module is the source. Its indented lines are the equations, and its
table of cuts says what each cut replaces:

    f_t = σ( x_t W_xf + b_f )           gate                three spaces end an equation
    c_t = tanh( x_t W_xh )              squash=tanh         the equation with this option
        | σ( x_t W_xh )                 squash=sigmoid      or with this one

    0  input_to_gate    x_t W_xf        a term becomes 0
    1  gate             f_t → 1         a symbol or a term becomes another one
    2  write            f_t = 1 − i_t   another equation of f_t
    3  norm             N(u) → u        a function becomes the identity

Several replacements of a cut are separated by "; ", and a comment follows ": ". After a replacement
what has no effect is left out. An expression has products with ⊙ or a space, sums with " + ", and
functions with parentheses.
"""

import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard


def precedence(rule: str) -> tuple[int, int]:
    """Return a key: equations come first, then long terms before their symbols, then functions."""
    old, arrow, _ = rule.partition(" → ")
    if not arrow and " = " in rule:
        return (0, 0)
    return (2, 0) if old.endswith("(u)") else (1, -len(old))


def replaced(pairs: Sequence[tuple[str, str]], rule: str) -> list[tuple[str, str]]:
    """Return left and right sides after a replacement.

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


CELLS = Path(__file__).parents[1] / "cells"
ROW = re.compile(
    r"(?:^ {4}| {2,})(\d+)  ([\w=]+)(?: {2,}(?!\d+  \S)(\S.*?))?(?= {2,}\d+  [\w=]+(?: {2}|$)|$)"
)
"""A row of a table of cuts: number, name, replacements; a line can have two rows."""
OPTION = re.compile(r"(\w+)=(\w+)")
REGISTERED = re.compile(r'^@CELLS\("(\w+)"\)', re.MULTILINE)


class Equation(NamedTuple):
    """An equation, and its other forms under options."""

    left: str
    forms: tuple[tuple[tuple[str, str] | None, str], ...]
    """(field, value) of the option, or None, and the right side."""


class CellText(NamedTuple):
    """What the docstring of a cell's module says."""

    equations: tuple[Equation, ...]
    cuts: Mapping[str, tuple[str, ...]]
    """Name of a cut -> its replacements, in the order of the numbers."""

    def lines(self, config: Mapping[str, Any]) -> list[str]:
        """Return the equations of a cell with this config: its options and its `cuts`."""
        pairs = [(equation.left, _form(equation, config)) for equation in self.equations]
        rules = [rule for cut in self.cuts if cut in _names(config) for rule in self.cuts[cut]]
        for rule in sorted(rules, key=precedence):
            pairs = replaced(pairs, rule)
        pairs = [(left, simplified(right)) for left, right in pairs]
        return [f"{left} = {right}" for left, right in self._used(pairs)]

    def _used(self, pairs: Sequence[tuple[str, str]]) -> Iterable[tuple[str, str]]:
        """Yield the equations, without those whose quantity is not used any more."""
        every = [(e.left, right) for e in self.equations for _, right in e.forms]
        kept = list(pairs)
        while True:
            used = [pair for pair in kept if reads(pair[0], every, now=True)]
            idle = [pair for pair in used if not reads(pair[0], kept)]
            if not idle:
                return kept
            kept = [pair for pair in kept if pair not in idle]


def cell_equations(
    config: Mapping[str, Any] | None, folders: Collection[Path] = ()
) -> list[str]:  # fmt: skip
    """Return the equations of a cell from its stored config; [] if no file describes the cell.

    Args:
        config: `config["model"].get("cell")`, or a part of it with the key "name".
        folders: folders with the source files of cells outside the package.
    """
    text = None if config is None else cell_text(str(config.get("name")), folders)
    if config is None or text is None:
        return []
    inner = config.get("inner")
    return text.lines(config) + (cell_equations(inner, folders) if _is_part(inner) else [])


def equations_left(
    config: Mapping[str, Any] | None,
    reference: Mapping[str, Any] | None = None,
    folders: Collection[Path] = (),
) -> list[str]:
    """Return those equations of a cell that the reference does not have.

    Args:
        config: the stored config of the cell.
        reference: that of the reference. If it is another cell, the comparison is with the cell
            itself, without options and cuts.
        folders: folders with the source files of cells outside the package.
    """
    if not _is_part(config):
        return []
    same = _is_part(reference) and _plain(reference) == _plain(config)
    before = cell_equations(reference if same else _plain(config), folders)
    return [line for line in cell_equations(config, folders) if line not in before]


def cut_names(cell: str) -> tuple[str, ...]:
    """Return the names of a cell's cuts in the order of their numbers; () if there are none."""
    text = cell_text(cell)
    return () if text is None else tuple(text.cuts)


def cell_text(name: str, folders: Collection[Path] = ()) -> CellText | None:
    """Return what the module of a registered cell says; None if no file registers it."""
    for folder in (CELLS, *folders):
        path = _files(folder).get(name)
        if path is not None:
            return _parsed(path)
    return None


def parse_equations(docstring: str) -> CellText:
    """Return the equations and cuts of a docstring."""
    equations: list[Equation] = []
    cuts: dict[int, tuple[str, tuple[str, ...]]] = {}
    for line in docstring.splitlines():
        if line.startswith("    ") and (rows := ROW.findall(line)) and line[4:5].strip():
            for number, cut, rule in rows:
                rules = rule.partition(": ")[0].split("; ") if rule else ()
                cuts[int(number)] = (cut, tuple(rules))
        elif line.startswith("    ") and not cuts:
            _add_equations(equations, line)
    return CellText(tuple(equations), dict(cuts[number] for number in sorted(cuts)))


def _add_equations(equations: list[Equation], line: str) -> None:
    """Add the equations of one line, or another form of the last equation."""
    line = re.sub(" +(?== )", " ", line)  # left sides are padded, so that equal signs align
    for chunk in re.split(r" {3,}", line.strip()):
        left, equals, right = chunk.rstrip(",").partition(" = ")
        if option := OPTION.match(chunk):
            last = equations.pop()
            *forms, (_, form) = last.forms
            equations.append(Equation(last.left, (*forms, (option.groups(), form))))  # type: ignore[arg-type]
        elif chunk.startswith("| ") and equations:
            last = equations.pop()
            equations.append(Equation(last.left, (*last.forms, (None, chunk[2:]))))
        elif equals:
            equations.append(Equation(left, ((None, re.sub(" +", " ", right)),)))


def _form(equation: Equation, config: Mapping[str, Any]) -> str:
    """Return the right side under the options of a config; the first one by default."""
    for option, right in equation.forms:
        if option is not None and str(config.get(option[0])) == option[1]:
            return right
    return equation.forms[0][1]


def _names(config: Mapping[str, Any]) -> set[str]:
    return {str(cut) for cut in config.get("cuts", ())}


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    inner = config.get("inner")
    return {"name": config["name"], **({"inner": _plain(inner)} if _is_part(inner) else {})}


def _is_part(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """Whether a value is the stored config of a part."""
    return isinstance(value, Mapping) and "name" in value


@functools.cache
def _files(folder: Path) -> dict[str, Path]:
    """Return the files of a folder that register cells, by the names of the cells."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        for name in REGISTERED.findall(path.read_text(encoding="utf-8")):
            found[name] = path
    return found


@functools.cache
def _parsed(path: Path) -> CellText:
    found = re.search(r'^r?"""(.*?)"""', path.read_text(encoding="utf-8"), re.DOTALL)
    return parse_equations(found[1] if found else "")
