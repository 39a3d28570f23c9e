"""No function names something that its module does not have.

The linters do not look, because axis strings of jaxtyping are no forward references.
"""

import ast
import builtins
import symtable
from pathlib import Path

ROOT = Path(__file__).parents[1]
KNOWN = {*dir(builtins), "__file__", "__path__"}


def without_annotations(source: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    return ast.unparse(tree)


def symbols_inside(table: symtable.SymbolTable) -> list[symtable.Symbol]:
    """Return the symbols of all functions and classes of a module."""
    found: list[symtable.Symbol] = []
    for child in table.get_children():
        found += child.get_symbols()
        found += symbols_inside(child)
    return found


def unknown_names(source: str) -> set[str]:
    module = symtable.symtable(without_annotations(source), "", "exec")
    known = set(KNOWN)
    used = set()
    for symbol in module.get_symbols():
        if symbol.is_assigned() or symbol.is_imported():
            known.add(symbol.get_name())
        if symbol.is_referenced():
            used.add(symbol.get_name())
    for symbol in symbols_inside(module):
        if symbol.is_declared_global():
            known.add(symbol.get_name())
        if symbol.is_global():
            used.add(symbol.get_name())
    return used - known


def test_all_names_are_known():
    files = list(ROOT.glob("lmzoo/**/*.py"))
    assert len(files) > 300
    files += ROOT.glob("tests/**/*.py")
    for path in files:
        # What a starter imports gets its name later.
        if "starter" not in path.parts:
            assert unknown_names(path.read_text()) == set(), path
