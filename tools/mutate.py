"""Plant random faults, one at a time, and print those that no test catches.

    python tools/mutate.py --sample 60 --seed 1
    python tools/mutate.py --only statistics/compared.py:298
    python tools/mutate.py --only cells --list

A fault is a changed comparison, constant, operator or condition inside a function. Each room has the
same share of the sample. The tests run in a copy of the tree, the nearest and cheapest first, until
one fails or `--limit` seconds are over. At the end, all tests that failed run without a fault and
must pass. Exit code 1: a fault survives. A person judges whether it matters: a bound that is never
met does not. What cannot matter has no faults: messages, types, tolerances below 1e-5, lines with
the comment `# no mutation`. `<` becomes `<=` only next to whole numbers and `>` elsewhere, because two
measured numbers are never equal.
"""

import argparse
import ast
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
HOUSES = ("lmzoo", "lmzoo/lab")
RELATED = {
    "statistics": "judging/|analysis/test_ranking|study/test_until",
    "study": "trainables/|sweep/test_(main|dry_run|coordinator)",
    "store": "train/test_run|cluster/test_head|sweep/test_pack|cli/|analysis/test_(load|study_par)",
    "judging": "cli/test_(judge|plan)",
    "cells": "kernels/test_|inspect/test_module_cuts",
    "models": "decode/",
}
"""Room -> tests that can catch its faults, after those of its own folder."""
NOT_COPIED = shutil.ignore_patterns(".git", ".venv*", "runs", "site", ".*_cache")
PYTEST = (
    *("-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider"),
    *("-m", "not slow and not ray", "--timeout", "60"),
)
OTHER: dict[type, type] = {
    ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
"""Operator -> the one that a fault has."""
BOUNDS: dict[type, type] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
SILENT = ast.Raise | ast.Assert | ast.JoinedStr | ast.pattern
MESSAGE = re.compile(r"(Error|Warning)$|\b(log|logger|logging|warn|warnings|cast)\b")
"""Called functions whose arguments are messages or types."""


class Fault(NamedTuple):
    """An expression of a file, bytes `begin` to `end`, and what replaces it."""

    path: str
    line: int
    begin: int
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}  {self.before}  →  {self.after}"

    def plant(self, source: bytes) -> bytes:
        """Return the source with the fault."""
        return source[: self.begin] + f"({self.after})".encode() + source[self.end :]


def faults_of(path: str, source: str) -> list[Fault]:
    """Return all faults of a file."""
    lines = source.encode().splitlines(keepends=True)
    starts = [sum(map(len, lines[:i])) for i in range(len(lines))]

    def fault(node: ast.expr, new: ast.expr) -> Fault:
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        return Fault(path, node.lineno, begin, end, ast.unparse(node), ast.unparse(new))

    found = [fault(*pair) for pair in _changes(ast.parse(source), inside=False)]
    return [each for each in found if b"# no mutation" not in lines[each.line - 1]]


def _changes(node: ast.AST, *, inside: bool) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the expressions inside functions, each with a wrong one."""
    if isinstance(node, ast.Call) and MESSAGE.search(ast.unparse(node.func)):
        return
    if isinstance(node, SILENT) or getattr(node, "name", "") in ("__repr__", "__str__"):
        return
    if getattr(node, "arg", "") == "strict":  # of `zip`: a check
        return
    if inside:
        yield from _wrong(node)
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.FunctionDef):  # without decorators and annotations
        children = [*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body]
    elif isinstance(node, ast.AnnAssign):
        children = [node.value] if node.value else []
    for child in children:
        yield from _changes(child, inside=inside or isinstance(node, ast.FunctionDef))


def _wrong(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    match node:
        case ast.Compare(left, ops, right):
            other = OTHER | BOUNDS if any(map(_whole, [left, *right])) else OTHER
            for i, op in enumerate(ops):
                yield node, ast.Compare(left, [*ops[:i], other[type(op)](), *ops[i + 1 :]], right)
        case ast.BoolOp(op, values):
            yield node, ast.BoolOp(OTHER[type(op)](), values)
        case ast.BinOp(left, op, right) if type(op) in OTHER:
            yield node, ast.BinOp(left, OTHER[type(op)](), right)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield node, operand
        case ast.Constant(bool(value)):
            yield node, ast.Constant(not value)
        case ast.Constant(int(value)):
            yield node, ast.Constant(value + 1)
        case ast.Constant(float(value)) if not 0 < value < 1e-5:
            yield node, ast.Constant(1.5 * value or 1.0)
        case ast.If(test) | ast.While(test) | ast.IfExp(test) | ast.comprehension(ifs=[test]):
            yield from _negated(test)


def _whole(node: ast.expr) -> bool:
    """Return whether a side of a comparison is certainly a whole number."""
    return isinstance(getattr(node, "value", None), int) or ast.unparse(node).startswith("len(")


def _negated(test: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the condition negated, if no other fault does nearly the same."""
    if not isinstance(test, ast.UnaryOp | ast.Compare):
        yield test, ast.UnaryOp(ast.Not(), test)


def runs_of(root: Path, room: str, path: str) -> list[list[str]]:
    """Return the arguments of the runs of pytest that can catch faults of a file, in their order.

    Pins and laws of the rows that use the file; tests with its name; in the mirrored folder, those
    that import it and the others; `RELATED`; all others that import it.
    """
    stem, package = Path(path).stem, ".".join(Path(path).parent.parts)
    imports = re.compile(rf"{package}\.{stem}\b|from {package} import .*\b{stem}\b")
    ranked = []
    for test in root.glob("tests/*/**/test_*.py"):
        name, uses = str(test.relative_to(root)), bool(imports.search(test.read_text()))
        own = re.match(f"tests/(lab/)?{room}/", name)
        related = re.match(f"tests/(lab/)?({RELATED[room]})", name)
        near = [own and f"test_{stem}" in name, own and uses, own, related, uses, True]
        ranked.append((list(map(bool, near)).index(True), test.stat().st_size, name))
    runs = [[name for rank, _, name in sorted(ranked) if rank < 5]]
    if room in ("cells", "models"):
        laws = f"match_the_pins or obeys_every_law and ({' or '.join(rows_of(room, path))})"
        runs.insert(0, ["tests/test_contract.py", "-k", laws])
    return runs


def rows_of(room: str, path: str) -> list[str]:
    """Return the cells or rows whose classes are in the file; if there are none, in its folder."""
    from lmzoo import zoo
    from lmzoo.cells.base import CELLS
    from lmzoo.contract import MODELS

    parts = CELLS if room == "cells" else MODELS
    homes = {part: [c.__module__.split(".") for c in parts[part].__mro__] for part in parts}
    module = path.removesuffix(".py").split("/")
    near = [part for part, home in homes.items() if module in home]
    near = near or [part for part, home in homes.items() if module[:-1] in [h[:-1] for h in home]]
    return near if room == "cells" else [row for row in zoo.names() if zoo.row(row).model in near]


def first_failure(runs: list[list[str]], copy: Path, limit: float) -> tuple[str, str]:
    """Return the name of the first test that fails, or nothing, and why the tests ended."""
    end = time.monotonic() + limit
    environment = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
    for arguments in runs:
        process = subprocess.Popen(
            [sys.executable, *PYTEST, *arguments], cwd=copy, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=max(end - time.monotonic(), 1))
        except subprocess.TimeoutExpired:
            return "", "time is over"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        if process.returncode == 4 and "conftest" not in output:
            sys.exit(output)
        if process.returncode not in (0, 5):  # 5: no test has such a name
            found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE)
            return found[1] if found else f"exit code {process.returncode}", output
    return "", "all tests pass"


def sample(only: str, size: int, seed: int) -> list[tuple[str, Fault]]:
    """Return faults with their rooms, as many of each room as of any other."""
    found = {}
    for room in RELATED:
        files = [f for house in HOUSES for f in ROOT.glob(f"{house}/{room}/**/*.py")]
        names = {str(file.relative_to(ROOT)): file.read_text() for file in sorted(files)}
        faults = [fault for name in names.items() for fault in faults_of(*name)]
        if only != room:
            faults = [fault for fault in faults if f"{only}:" in f"{fault.path}:{fault.line}:"]
        if faults:
            found[room] = random.Random(f"{seed} {room}").sample(faults, len(faults))
    shares = [len(range(i, size, len(found))) for i in range(len(found))]
    return [(r, fault) for r, n in zip(found, shares, strict=True) for fault in found[r][:n]]


def main() -> int:
    """Plant the faults and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", type=int, default=60, help="number of faults")
    parser.add_argument("--seed", type=int, default=0, help="another seed draws other faults")
    parser.add_argument(
        "--only", default="", help=f"FILE, FILE:LINE or one of {', '.join(RELATED)}"
    )
    parser.add_argument("--limit", type=float, default=120, help="seconds of tests for a fault")
    parser.add_argument("--list", action="store_true", help="print the faults and run nothing")
    options = parser.parse_args()
    faults = sample(options.only, options.sample, options.seed)
    if options.list or not faults:
        print(*(fault for _, fault in faults), sep="\n")  # noqa: T201
        return 0 if faults else 2
    failed, survivors = [], []
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "tree"
        shutil.copytree(ROOT, copy, ignore=NOT_COPIED)
        for room, fault in faults:
            begin, file, sound = time.monotonic(), copy / fault.path, Path(temporary) / "sound"
            shutil.copy2(file, sound)
            file.write_bytes(fault.plant(file.read_bytes()))
            test, why = first_failure(runs_of(copy, room, fault.path), copy, options.limit)
            shutil.copy2(sound, file)  # with its time, so no bytecode has the fault
            end = f"by {test}" if test else f"SURVIVES: {why}"
            print(f"{time.monotonic() - begin:4.0f} s  {fault}  {end}", flush=True)  # noqa: T201
            failed += [test] if test else []
            survivors += [] if test else [fault]
        again = [test for test in dict.fromkeys(failed) if test.startswith("tests/")]
        test, why = first_failure([again], copy, 600) if again else ("", "")
    print(f"\n{len(failed)} of {len(faults)} faults are caught", *survivors, sep="\n")  # noqa: T201
    if test:
        print(f"{test} fails without a fault, too:\n{why}")  # noqa: T201
    return 1 if survivors or test else 0


if __name__ == "__main__":
    sys.exit(main())
