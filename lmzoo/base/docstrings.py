r"""What the docstrings of registered parts say, read from the source files without importing them.

Tables of stored records describe a corpus, a model or an emission with the text of its file, and
need neither torch nor the part's own imports.

The docstring of a cell is the source of its equations and of what its cuts replace. Its indented
lines are the equations, and its table of cuts says what each cut replaces:

    f_t = σ( x_t W_xf + b_f )           gate                a comment, behind three spaces
    c_t = tanh( x_t W_xh )              squash=tanh         the equation with this option
        | σ( x_t W_xh )                 squash=sigmoid      or with this one

    0  input_to_gate    x_t W_xf        a term becomes 0
    1  gate             f_t → 1         a symbol or a term becomes another one
    2  write            f_t = 1 − i_t   another equation of f_t
    3  norm             N(u) → u        a function becomes the identity

Several replacements of a cut are separated by "; ", and a comment follows ": ".
"""

import ast
import functools
import inspect
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard, TypeVar

Class = TypeVar("Class")
Config = Mapping[str, Any]
"""The stored config of a part: its name and its fields."""

PACKAGE = Path(__file__).parents[1]


def part_docstring(registry: str, name: str, folder: Path = PACKAGE) -> str:
    """Return the docstring that explains `name`, see `explanation`; "" if there is none."""
    of_class, of_file = _find(registry, name, folder)
    return explanation(of_class, of_file)


def explanation(of_class: str, of_file: str) -> str:
    """Return the docstring with the equations: that of the class, or else that of its file."""
    # A class whose docstring has no equation is explained in its file.
    if any(" = " in line for line in first_block(of_class)):
        return of_class
    return of_file


def first_block(docstring: str) -> list[str]:
    """Return the lines of the first indented block of a docstring, without the indentation."""
    lines = []
    for line in docstring.splitlines():
        if line.startswith("    "):
            lines.append(line[4:])
        elif lines:
            break
    return lines


def fields_text(cls: type) -> str:
    """Return the fields of a class with their defaults and meaning, as its source has them."""
    try:
        [node] = ast.parse(inspect.cleandoc(inspect.getsource(cls))).body
    except (OSError, SyntaxError, ValueError):  # no source
        return ""
    assert isinstance(node, ast.ClassDef)
    lines = []
    # The text below a field is the statement after it.
    for declared, after in itertools.pairwise(node.body + [node]):
        if isinstance(declared, ast.AnnAssign) and isinstance(declared.target, ast.Name):
            meaning = ""
            if isinstance(after, ast.Expr):
                meaning = _text(after.value)
            if not meaning and isinstance(declared.value, ast.Call) and declared.value.args:
                meaning = _text(declared.value.args[0])  # the help of an option
            line = f"    {declared.target.id}: {' '.join(meaning.split())}"
            lines.append(line.rstrip(": "))
    return "\n".join(lines)


def _text(node: ast.expr) -> str:
    """Return the text of a literal; "" of another expression."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return ""
    if isinstance(value, str):
        return value
    return ""


class WithFields:
    """The docstring of a class, with its fields when somebody reads it."""

    def __init__(self, text: str):
        self._text = text

    def __get__(self, instance: object, owner: type) -> str:
        fields = fields_text(owner)
        if fields:
            return f"{self._text}\n\nFields:\n\n{fields}"
        return self._text


def documented(cls: type[Class]) -> type[Class]:
    """Let `help` show the fields of a class with what its source says of them."""
    cls.__doc__ = WithFields(cls.__doc__ or "")  # type: ignore[assignment]
    return cls


def _find(registry: str, name: str, folder: Path) -> tuple[str, str]:
    """Return the docstrings of a registered class and of its file; only that file is parsed."""
    decorator = re.compile(rf"@{registry}\(\s*['\"]{re.escape(name)}['\"]")
    for text in _sources(folder):
        # A quick look, because to parse all files takes long.
        if decorator.search(text):
            found = _docstrings(text).get((registry, name))
            if found:
                return found
    return "", ""


@functools.cache
def _sources(folder: Path) -> list[str]:
    """Return the files with decorators."""
    texts = []
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "\n@" in text:  # others register nothing
            texts.append(text)
    return texts


@functools.cache
def _docstrings(text: str) -> dict[tuple[str, str], tuple[str, str]]:
    try:
        module = ast.parse(text)
    except SyntaxError:  # a file that is being written
        return {}
    found = {}
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            for key in _registered(node):
                found[key] = (_docstring(node), _docstring(module))
    return found


def _docstring(node: ast.ClassDef | ast.Module) -> str:
    text = ast.get_docstring(node)
    if text is None:
        return ""
    return text


def _registered(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for call in node.decorator_list:
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.args:
            first = call.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield call.func.id, first.value


CELLS = PACKAGE / "cells"
ROW = r"(?:^ {4}| {2,})(\d+)  ([\w=]+)(?: {2,}(?!\d+  \S)(\S.*?))?(?= {2,}\d+  [\w=]+(?: {2}|$)|$)"
"""A row of a table of cuts: number, name, replacements; a line can have two rows."""
FORM = r"(?:(.*?) = |\| )(.*?) {2,}(\w+)=(\w+)"
"""A form of an equation under an option: left side or "| ", right side, field, value."""


class Form(NamedTuple):
    """An equation under an option."""

    field: str
    value: str
    line: str


class CellText(NamedTuple):
    """What the docstring of a cell says."""

    equations: tuple[str | tuple[Form, ...], ...]
    """Lines, and the forms of an equation that has several; the first form is the default."""
    cuts: Mapping[str, str]
    """Name of a cut -> its replacements, in the order of the numbers."""

    def lines(self, config: Config) -> list[str]:
        """Return the equations of a cell with the options of a config."""
        return [_of(item, config) for item in self.equations]

    def replaced(self, config: Config) -> list[str]:
        """Return what the cuts of a config replace: "input_to_gate (0): x_t W_xf → 0"."""
        cuts = {str(cut) for cut in config.get("cuts", ())}
        return [
            f"{cut} ({number}): {rule}"
            for number, (cut, rule) in enumerate(self.cuts.items())
            if cut in cuts
        ]

    def switched(self, config: Config) -> list[str]:
        """Return the equations that options of a config decide, and what its cuts replace."""
        forms = [_of(item, config) for item in self.equations if not isinstance(item, str)]
        return forms + self.replaced(config)


def cell_equations(config: Config | None, folders: Collection[Path] = ()) -> list[str]:
    """Return the equations of a cell from its stored config; below them, what its cuts replace.

    [] if no file describes the cell.
    """
    lines = []
    for number, layer in enumerate(_layers(config), 1):
        for line in cell_equations(layer, folders):
            lines.append(f"layer {number}: {line}")
    for part, text in _parts(config, folders):
        lines += text.lines(part)
        lines += [f"cut {cut}" for cut in text.replaced(part)]
    return lines


def _layers(config: Config | None) -> Sequence[Config]:
    """Return the configs of the cells in a stack."""
    return (config or {}).get("layers", ())


def equations_left(
    config: Config | None,
    reference: Config | None = None,
    folders: Collection[Path] = (),
) -> list[str]:
    """Return the options' equations and the replacements that the reference does not have.

    `config` and `reference` are stored configs of cells. If the reference is another cell, the
    comparison is with the cell itself, without options and cuts. `folders` have the source files of
    cells outside the package.
    """
    lines = []
    others = _layers(reference)[: len(_layers(config))]
    layers = itertools.zip_longest(_layers(config), others)
    for number, (layer, other) in enumerate(layers, 1):
        for line in _layer_left(layer, other, folders):
            lines.append(f"layer {number}: {line}")
    parts = _parts(config, folders)
    before = [part for part, _ in _parts(reference, folders)]
    if _names(parts) != [part["name"] for part in before]:
        # Another cell: compare with the plain form of this one.
        before = [{}] * len(parts)
    for (part, text), other in zip(parts, before, strict=True):
        known = text.switched(other)
        lines += [line for line in text.switched(part) if line not in known]
    return lines


def _layer_left(layer: Config, other: Config | None, folders: Collection[Path]) -> list[str]:
    """Return what a layer has that the same layer of the reference has not: first its name."""
    lines = equations_left(layer, other, folders)
    names = _names(_parts(layer, folders))
    if other is not None and names != _names(_parts(other, folders)):
        lines.insert(0, " ".join(names))
    return lines


def _names(parts: Iterable[tuple[Config, CellText]]) -> list[str]:
    return [part["name"] for part, _ in parts]


def cut_names(cell: str) -> tuple[str, ...]:
    """Return the names of a cell's cuts in the order of their numbers; () if there are none."""
    text = cell_text(cell)
    if text is None:
        return ()
    return tuple(text.cuts)


def cell_text(name: str, folders: Collection[Path] = ()) -> CellText | None:
    """Return what the docstring of a registered cell says; None if no file registers it."""
    for folder in [CELLS] + list(folders):
        text = part_docstring("CELLS", name, folder)
        if text:
            return parse_equations(text)
    return None


@functools.cache
def parse_equations(docstring: str) -> CellText:
    """Return the equations and cuts of a docstring."""
    equations: list[str | tuple[Form, ...]] = []
    cuts: dict[int, tuple[str, str]] = {}
    left = ""
    for line in docstring.splitlines():
        if not line.startswith("    "):
            continue
        rows = re.findall(ROW, line)
        # A row begins at the fifth column; deeper ones belong to an equation.
        if rows and line[4:5].strip():
            for number, cut, rules in rows:
                cuts[int(number)] = (cut, _replacements(rules))
            continue
        if cuts:  # the table is the end of the equations
            continue
        found = re.match(FORM, line.strip())
        if found:
            # The left side is written once, before the first form.
            left = (found[1] or left).strip()
            forms = (Form(found[3], found[4], f"{left} = {found[2].strip()}"),)
            if found[1] is None and equations:  # another form of the equation before
                earlier = equations.pop()
                if isinstance(earlier, tuple):
                    forms = earlier + forms
            equations.append(forms)
        elif " = " in line or line.strip().startswith("| "):
            equations.append(line[4:])
    return CellText(tuple(equations), dict(cuts[number] for number in sorted(cuts)))


def _replacements(rules: str) -> str:
    """Return what a cut replaces; a term without an arrow becomes 0."""
    changes, colon, comment = rules.partition(": ")
    arrows = []
    for change in filter(None, changes.split("; ")):
        # A term that is cut is 0.
        if " → " not in change and " = " not in change:
            change += " → 0"
        arrows.append(change)
    return "; ".join(arrows) + colon + comment


def _of(item: str | tuple[Form, ...], config: Config) -> str:
    """Return a line, or the form of an equation under the options of a config."""
    if isinstance(item, str):
        return item
    for form in item:
        if str(config.get(form.field)) == form.value:
            return form.line
    return item[0].line


def _parts(config: Config | None, folders: Collection[Path]) -> list[tuple[Config, CellText]]:
    """Return the config of a cell, and of the cells inside it, each with its text."""
    found = []
    while _is_part(config):
        text = cell_text(str(config["name"]), folders)
        if text is not None:
            found.append((config, text))
        # A wrapper has its cell inside.
        config = config.get("inner")
    return found


def _is_part(value: Any) -> TypeGuard[Config]:
    """Whether a value is the stored config of a part."""
    if not isinstance(value, Mapping):
        return False
    return "name" in value
