"""Two faults of GPU kernels that Triton's interpreter cannot show, found in the source.

- A race: a thread reads from global memory what another thread of the launch has stored. No value
  is stored and read again in one launch; a kernel may replace a number that it has just read.
- A 32-bit index: the product of an index of a program and a size overflows for many members.
"""

import ast
from pathlib import Path

from tests.cases import parametrize, rows

FOLDER = Path(__file__).parents[3] / "lmzoo/kernels/gpu"
MESSAGES = {"race": "is read after it was stored", "index": "is a 32-bit product"}


def nodes(tree, kind):
    """Return the nodes of a kind in the order of the source."""

    def place(node):
        return node.lineno, node.col_offset

    found = [node for node in ast.walk(tree) if isinstance(node, kind)]
    return sorted(found, key=place)


def kernels():
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        tree = ast.parse(path.read_text())
        for node in nodes(tree, ast.FunctionDef):
            decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
            if "triton.jit" in decorators:
                found[f"{path.stem}.{node.name}"] = node
    return found


KERNELS = kernels()


def calls(node, name):
    found = []
    for call in nodes(node, ast.Call):
        if ast.unparse(call.func) == name:
            found.append(call)
    return found


def assignments(kernel):
    """Yield every name that is assigned, and its value, in the order of the source."""
    for node in nodes(kernel, ast.Assign | ast.AugAssign):
        if isinstance(node, ast.AugAssign):
            targets = [node.target]
        else:
            targets = node.targets
        for target in targets:
            if isinstance(target, ast.Tuple):
                # A call that returns several values names none of them.
                values = []
                if isinstance(node.value, ast.Tuple):
                    values = node.value.elts
                names = map(ast.unparse, target.elts)
                yield from zip(names, values, strict=False)
            else:
                yield ast.unparse(target), node.value


def pointer(kernel, address):
    """Return the argument of the kernel that an address begins with."""
    values = dict(assignments(kernel))
    # An address is a sum that begins with a pointer, or a name of one.
    while not isinstance(address, ast.Name) or address.id in values:
        if isinstance(address, ast.Name):
            address = values.pop(address.id)
        else:
            assert isinstance(address, ast.BinOp), ast.unparse(address)
            address = address.left
    return address.id


def is_after(load, store, loops):
    """Return whether a store may come before a load of the same array."""
    for loop in loops:
        inside = list(ast.walk(loop))
        if load in inside and store in inside:
            return True
    return load.lineno > store.lineno


def replaces(load, store):
    """Return whether a number is read before it is replaced."""
    # Another address may be one that another thread stored.
    address = ast.unparse(load.args[0])
    if address != ast.unparse(store.args[0]):
        return False
    return load in ast.walk(store) or load.lineno < store.lineno


def races(kernel):
    """Return what may be read after it was stored: in a later line, or a later round of a loop."""
    stores = []
    for store in calls(kernel, "tl.store"):
        name = pointer(kernel, store.args[0])
        stores.append((name, store))
    loops = nodes(kernel, ast.For)
    found = []
    # `load` is the helper of `blocks.py`, with zeros outside.
    for load in calls(kernel, "tl.load") + calls(kernel, "load"):
        address = load.args[0]
        name = pointer(kernel, address)
        for stored, store in stores:
            if stored != name or replaces(load, store):
                continue
            if is_after(load, store, loops):
                found.append(f"{ast.unparse(address)} {MESSAGES['race']}")
    names = {name for name, _ in stores}
    for call in calls_of_helpers(kernel):
        if names_in(call.args) & names:
            found.append(f"{ast.unparse(call)} {MESSAGES['race']}")
    return found


def calls_of_helpers(kernel):
    """Return the calls of other kernels' functions, which may load what they are given."""
    called = []
    for call in nodes(kernel, ast.Call):
        # Triton's own functions are attributes of `tl`.
        is_name = isinstance(call.func, ast.Name)
        if is_name and call.func.id not in ("range", "load"):
            called.append(call)
    return called


def names_in(trees):
    found = set()
    for tree in trees:
        found |= {name.id for name in nodes(tree, ast.Name)}
    return found


def narrow_products(kernel):
    """Return the products of 32-bit indices of programs and sizes that are no constants."""
    sizes = set()
    for parameter in kernel.args.args:
        # A constant has an annotation.
        if parameter.annotation is None and parameter.arg.isupper():
            sizes.add(parameter.arg)
    narrow = set()
    wide = set()
    found = []

    def reads(node, function, names):
        if function in ast.unparse(node):
            return True
        return bool(names_in([node]) & names)

    def is_narrow(node):
        if reads(node, "int64", wide):
            return False
        # `numbers` of `blocks.py` has the index of a program, too.
        return reads(node, "tl.program_id", narrow) or reads(node, "numbers(", narrow)

    for name, value in assignments(kernel):
        if reads(value, "int64", wide):
            wide.add(name)
        elif is_narrow(value):
            narrow.add(name)
    for product in nodes(kernel, ast.BinOp):
        is_product = isinstance(product.op, ast.Mult)
        if not is_product or reads(product, "int64", wide):
            continue
        is_index = is_narrow(product.left) or is_narrow(product.right)
        if is_index and names_in([product]) & sizes:
            found.append(f"{ast.unparse(product)} {MESSAGES['index']}")
    return found


CHECKS = (races, narrow_products)
PLANTED = rows("kernels/cases.toml", "planted")


@parametrize("name", KERNELS)
def test_no_kernel_has_a_fault_that_only_a_gpu_shows(name):
    for check in CHECKS:
        assert check(KERNELS[name]) == []


def test_kernels_are_found():
    assert len(KERNELS) > 20


@parametrize(("name", "old", "new", "fault"), PLANTED)
def test_planted_faults_are_found(name, old, new, fault):
    source = ast.unparse(KERNELS[name])
    assert old in source
    module = ast.parse(source.replace(old, new))
    (changed,) = module.body
    found = [message for check in CHECKS for message in check(changed)]
    assert MESSAGES[fault] in " ".join(found)
