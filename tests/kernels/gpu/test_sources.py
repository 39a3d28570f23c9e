"""Two faults of GPU kernels that Triton's interpreter cannot show, found in the source.

- A race: a thread reads from global memory what another thread of the launch has stored. No value
  is stored and read again in one launch; a kernel may replace a number that it has just read.
- A 32-bit index: the product of an index of a program and a size overflows for many members.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parents[3] / "lmzoo/kernels/gpu"
MESSAGES = {"race": "is read after it was stored", "index": "is a 32-bit product"}


def kernels() -> dict[str, ast.FunctionDef]:
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and "triton.jit" in map(
                ast.unparse, node.decorator_list
            ):
                found[f"{path.stem}.{node.name}"] = node
    return found


KERNELS = kernels()


def calls(node: ast.AST, name: str) -> list[ast.Call]:
    found = [n for n in ast.walk(node) if isinstance(n, ast.Call) and ast.unparse(n.func) == name]
    return sorted(found, key=lambda call: (call.lineno, call.col_offset))


def assignments(kernel: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """Yield every name that is assigned, and its value, in the order of the source."""
    nodes = [n for n in ast.walk(kernel) if isinstance(n, ast.Assign | ast.AugAssign)]
    for node in sorted(nodes, key=lambda n: n.lineno):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Tuple):
                values = []
                if isinstance(node.value, ast.Tuple):
                    values = node.value.elts
                yield from zip([ast.unparse(t) for t in target.elts], values, strict=False)
            else:
                yield ast.unparse(target), node.value


def pointer(kernel: ast.FunctionDef, address: ast.expr) -> str:
    """Return the argument of the kernel that an address begins with."""
    values = dict(assignments(kernel))
    while not isinstance(address, ast.Name) or address.id in values:
        if isinstance(address, ast.Name):
            address = values.pop(address.id)
        else:
            assert isinstance(address, ast.BinOp), ast.unparse(address)
            address = address.left
    return address.id


def races(kernel: ast.FunctionDef) -> list[str]:
    """Return what may be read after it was stored: in a later line, or a later round of a loop."""
    stores = [(pointer(kernel, c.args[0]), c) for c in calls(kernel, "tl.store")]
    loops = [n for n in ast.walk(kernel) if isinstance(n, ast.For)]
    found = []
    for load in calls(kernel, "tl.load"):
        name = pointer(kernel, load.args[0])
        for stored, store in stores:
            if stored != name:
                continue
            both = any(load in ast.walk(loop) and store in ast.walk(loop) for loop in loops)
            same = ast.unparse(load.args[0]) == ast.unparse(store.args[0])
            inner = load in ast.walk(store)
            if not (same and (inner or load.lineno < store.lineno)) and (
                both or load.lineno > store.lineno
            ):
                found.append(f"{ast.unparse(load.args[0])} {MESSAGES['race']}")
    helpers = [c for c in calls_of_helpers(kernel) if names_in(c.args) & {s for s, _ in stores}]
    return found + [f"{ast.unparse(call)} {MESSAGES['race']}" for call in helpers]


def calls_of_helpers(kernel: ast.FunctionDef) -> list[ast.Call]:
    """Return the calls of other kernels' functions, which may load what they are given."""
    called = [n for n in ast.walk(kernel) if isinstance(n, ast.Call)]
    return [n for n in called if isinstance(n.func, ast.Name) and n.func.id != "range"]


def names_in(nodes: list[ast.expr]) -> set[str]:
    return {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}


def narrow_products(kernel: ast.FunctionDef) -> list[str]:
    """Return the products of 32-bit indices of programs and sizes that are no constants."""
    parameters = {a.arg: a.annotation for a in kernel.args.args}
    sizes = {name for name, kind in parameters.items() if kind is None and name.isupper()}
    narrow: set[str] = set()
    wide: set[str] = set()
    found = []

    def is_wide(node: ast.expr) -> bool:
        return "tl.int64" in ast.unparse(node) or bool(names_in([node]) & wide)

    def is_narrow(node: ast.expr) -> bool:
        is_index = "tl.program_id" in ast.unparse(node) or bool(names_in([node]) & narrow)
        return is_index and not is_wide(node)

    for name, value in assignments(kernel):
        (wide if is_wide(value) else narrow if is_narrow(value) else set()).add(name)
    for product in ast.walk(kernel):
        if isinstance(product, ast.BinOp) and isinstance(product.op, ast.Mult):
            sides = product.left, product.right
            is_index = any(map(is_narrow, sides)) and not is_wide(product)
            if is_index and names_in([product]) & sizes:
                found.append(f"{ast.unparse(product)} {MESSAGES['index']}")
    return found


CHECKS = races, narrow_products


def test_no_kernel_has_a_fault_that_only_a_gpu_shows():
    assert len(KERNELS) > 20
    faults = [(name, *check(kernel)) for name, kernel in KERNELS.items() for check in CHECKS]
    assert [found for found in faults if len(found) > 1] == []


def test_planted_faults_are_found():
    for name, old, new, check in (
        ("sphere._backward", ".to(tl.int64)", "", narrow_products),
        ("linear_recurrence._forward", ".to(tl.int64)", "", narrow_products),
        ("linear_recurrence._forward", "a_re = tl.load(a + at", "a_re = tl.load(h + at", races),
        ("token_mixture._forward", "largest(joint)", "largest(out)", races),
    ):
        source = ast.unparse(KERNELS[name])
        assert old in source
        assert check(ast.parse(source.replace(old, new)).body[0]), (name, old)
