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


def tables(table: symtable.SymbolTable) -> list[symtable.SymbolTable]:
    return [table, *(own for child in table.get_children() for own in tables(child))]


def unknown_names(source: str) -> set[str]:
    top, *inner = tables(symtable.symtable(without_annotations(source), "", "exec"))
    own = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    own |= {s.get_name() for t in inner for s in t.get_symbols() if s.is_declared_global()}
    used = {s.get_name() for s in top.get_symbols() if s.is_referenced()}
    used |= {s.get_name() for t in inner for s in t.get_symbols() if s.is_global()}
    return used - own - KNOWN


def test_all_names_are_known():
    files = [*ROOT.glob("lmzoo/**/*.py"), *ROOT.glob("tests/**/*.py")]
    found = {f.name: unknown_names(f.read_text()) for f in files if "starter" not in f.parts}
    assert len(found) > 300
    assert not {name: names for name, names in found.items() if names}
