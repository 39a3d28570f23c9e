"""Draw the rooms of the package and their imports: `docs/assets/architecture.svg`.

    python tools/architecture.py             write the picture
    python tools/architecture.py --check     fail if the picture is not that of the imports

A room is a folder, or a module beside the folders. It stands above all rooms that it imports. An
arrow is left out if a longer way along other arrows says the same.
"""

import argparse
import ast
import functools
import sys
from collections import defaultdict
from html import escape
from pathlib import Path

TOP = Path(__file__).parents[1]
PICTURE = TOP / "docs/assets/architecture.svg"
COLOURS = {"lab": "#dbe9f6", "door": "#fdebc8", "zoo": "#e2f0d9", "base": "#e8e8e8"}
WIDTH = 118
HEIGHT = 26
GAP = 16
STEP = 64
"""Sizes of a room, and the distance of two rows, in pixels."""
PAGE = 980

Imports = dict[str, set[str]]


def room_of(module: str) -> str:
    """Return the room of a module: "lab.study" of "lmzoo.lab.study.planner"."""
    parts = module.split(".")[1:]
    if parts[:1] == ["lab"]:
        return ".".join(parts[:2])
    return ".".join(parts[:1])


def read_imports() -> Imports:
    """Return the rooms that each room imports, also inside functions."""
    found: Imports = defaultdict(set)
    for file in sorted((TOP / "lmzoo").rglob("*.py")):
        module = ".".join(file.relative_to(TOP).with_suffix("").parts)
        room = room_of(module.removesuffix(".__init__"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module in ("lmzoo", "lmzoo.lab"):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            for name in names:
                if name.startswith("lmzoo.") and _is_module(name):
                    found[room].add(room_of(name))
    # `lmzoo/__init__.py` and `lmzoo/lab/__init__.py` forward names lazily and are no rooms.
    hidden = {"", "__main__", "lab", "py", "types"}
    return {
        room: targets - hidden - {room} for room, targets in found.items() if room not in hidden
    }


@functools.cache
def _is_module(name: str) -> bool:
    path = TOP.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def rows_of(imports: Imports) -> list[list[str]]:
    """Return the rooms by row, the top row first; an error names a circle."""
    depth: dict[str, int] = {}

    def measure(room: str, above: tuple[str, ...]) -> int:
        if room in above:
            raise SystemExit(f"rooms import each other: {' -> '.join((*above, room))}")
        if room not in depth:
            below = [measure(target, (*above, room)) for target in imports.get(room, ())]
            depth[room] = 1 + max(below, default=-1)
        return depth[room]

    for room in imports:
        measure(room, ())
    rows: list[list[str]] = [[] for _ in range(1 + max(depth.values()))]
    for room in sorted(depth, key=lambda room: (not room.startswith("lab."), room)):
        rows[depth[room]].append(room)
    return rows[::-1]


def arrows_of(imports: Imports) -> list[tuple[str, str]]:
    """Return the imports that no longer way implies."""

    @functools.cache
    def reach(room: str) -> frozenset[str]:
        below = imports.get(room, set())
        return frozenset(below).union(*(reach(target) for target in below))

    arrows = []
    for room, targets in sorted(imports.items()):
        for target in sorted(targets):
            if not any(target in reach(other) for other in targets - {target}):
                arrows.append((room, target))
    return arrows


def kind_of(room: str) -> str:
    """Return the house of a room."""
    if room.startswith("lab."):
        return "lab"
    if room in ("trainables", "tune"):
        return "door"
    return "base" if room == "base" else "zoo"


def draw(imports: Imports) -> str:
    """Return the picture."""
    rows = rows_of(imports)
    place: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        left = (PAGE - len(row) * (WIDTH + GAP) + GAP) / 2
        for i, room in enumerate(row):
            place[room] = (left + i * (WIDTH + GAP), 10 + number * STEP)
    lines = []
    for room, target in arrows_of(imports):
        x, y = place[room]
        to_x, to_y = place[target]
        lines.append(
            f'<line x1="{x + WIDTH / 2:.0f}" y1="{y + HEIGHT:.0f}" x2="{to_x + WIDTH / 2:.0f}" '
            f'y2="{to_y:.0f}" stroke="#888" marker-end="url(#end)"/>'
        )
    for room, (x, y) in place.items():
        colour = COLOURS[kind_of(room)]
        lines.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="5" '
            f'fill="{colour}" stroke="#777"/>'
            f'<text x="{x + WIDTH / 2:.0f}" y="{y + 17:.0f}" text-anchor="middle">'
            f"{escape(room.replace('lab.', 'lab/'))}</text>"
        )
    body = "\n".join(lines)
    height = len(rows) * STEP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {PAGE} {height}" '
        'font-family="sans-serif" font-size="12" role="img" '
        'aria-label="Rooms of lmzoo and what they import, from top to bottom">\n'
        '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="6" '
        'markerHeight="6" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#888"/></marker></defs>\n'
        f'<rect width="{PAGE}" height="{height}" fill="white"/>\n{body}\n</svg>\n'
    )


def main() -> None:
    """Write or check the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    picture = draw(read_imports())
    if not check:
        PICTURE.write_text(picture, encoding="utf-8")
    elif not PICTURE.exists() or PICTURE.read_text(encoding="utf-8") != picture:
        sys.exit("docs/assets/architecture.svg is old: run python tools/architecture.py")


if __name__ == "__main__":
    main()
