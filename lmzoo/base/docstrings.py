"""Docstrings of registered parts, read from the source files without importing them.

Tables of stored records describe a corpus, a model or an emission with the text of its file, and
need neither torch nor the part's own imports.
"""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def class_docstring(registry: str, name: str, folder: Path = PACKAGE) -> str:
    """Return the docstring of the class that is registered as `name`; "" if there is none."""
    return _docstrings(folder).get((registry, name), ("", ""))[0]


def part_docstring(registry: str, name: str, folder: Path = PACKAGE) -> str:
    """Return the docstring that explains `name`, see `explanation`; "" if there is none."""
    return explanation(*_docstrings(folder).get((registry, name), ("", "")))


def explanation(own: str, whole: str) -> str:
    """Return the docstring with the equations: that of the class, or else that of its file."""
    return own if any(" = " in line for line in first_block(own)) else whole


def first_block(docstring: str) -> list[str]:
    """Return the lines of the first indented block of a docstring, without the indentation."""
    lines: list[str] = []
    for line in docstring.splitlines():
        if line.startswith("    "):
            lines.append(line[4:])
        elif lines:
            break
    return lines


@functools.cache
def _docstrings(folder: Path) -> dict[tuple[str, str], tuple[str, str]]:
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "\n@" not in text:
            continue
        try:
            module = ast.parse(text)
        except SyntaxError:  # a file that is being written
            continue
        whole = ast.get_docstring(module) or ""
        for node in module.body:
            if isinstance(node, ast.ClassDef):
                own = ast.get_docstring(node) or ""
                found.update((key, (own, whole)) for key in _registered(node))
    return found


def _registered(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for call in node.decorator_list:
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.args:
            first = call.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield call.func.id, first.value
