"""Docstrings of registered parts, read from the source files without importing them.

Tables of stored records describe a corpus, a model or an emission with the text of its file, and
need neither torch nor the part's own imports.
"""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def class_docstring(registry: str, name: str, folder: Path = PACKAGE) -> str:
    """Return the docstring of the class that is registered as `name`; "" if there is none."""
    return _find(registry, name, folder)[0]


def part_docstring(registry: str, name: str, folder: Path = PACKAGE) -> str:
    """Return the docstring that explains `name`, see `explanation`; "" if there is none."""
    return explanation(*_find(registry, name, folder))


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


def _find(registry: str, name: str, folder: Path) -> tuple[str, str]:
    """Return the docstrings of a registered class and of its file; only that file is parsed."""
    decorator = re.compile(rf"@{registry}\(\s*['\"]{re.escape(name)}['\"]")
    for text in _sources(folder):
        if decorator.search(text) and (found := _docstrings(text).get((registry, name))):
            return found
    return "", ""


@functools.cache
def _sources(folder: Path) -> list[str]:
    """Return the files with decorators."""
    texts = (path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py")))
    return [text for text in texts if "\n@" in text]


@functools.cache
def _docstrings(text: str) -> dict[tuple[str, str], tuple[str, str]]:
    try:
        module = ast.parse(text)
    except SyntaxError:  # a file that is being written
        return {}
    whole, found = ast.get_docstring(module) or "", {}
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
