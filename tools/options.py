"""Write docs/guarantees/options.md: which laws run at which values of which options.

    python tools/options.py, in the root of the repository

`tests/laws/test_options.py` runs the laws
and compares the page.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from lmzoo import zoo  # noqa: E402
from lmzoo.cells.base import CELLS  # noqa: E402
from lmzoo.laws.cells import law_equal_functions_have_equal_configs  # noqa: E402
from lmzoo.laws.options import UNPROMISED, Case, option_values, unpromised  # noqa: E402
from lmzoo.laws_of_training.parts import part_cases, row_cases  # noqa: E402
from tests.laws import test_options as tested  # noqa: E402
from tests.tiny import one_row_per_model  # noqa: E402

PAGE = ROOT / "docs/guarantees/options.md"
TEXT = """# Laws at each option

A law that holds at the defaults of a part may fail at another value of an option. An option is a field with few values: a bool, an enum, a
literal, a choice, or a set of parts such as cuts. The laws run at each value of each option of every cell and row, one at a time, and at pairs of
values. A pair is two options, or two parts of a set. Cases that a part refuses, or that are the same function by config, are left out.

`lmzoo check FILE.py` does the same for your own parts: all laws at each value, and the laws of a cell at 12 random pairs.

{laws}

A number without a choice, such as a width, has its tiny value in all cases. Three options at once are tested for cuts only
(`test_one_function_has_one_config`, slow). Devices other than the CPU are tested at the defaults.

## What is not promised

{unpromised}

## Cells

{cells}

## Rows

One row of each model class in `make test`; all rows are slow. The cell of a recurrent row has the options above.

{rows}
"""


def page() -> str:
    """Return the page."""
    both = [("`make test`: each value, 2 random pairs; slow: all pairs", tested.ALONE, "cells")]
    both += [("the same, in `recurrent_lm`", tested.IN_A_MODEL, "cells")]
    both += [
        (
            "`make test`: each value, 1 random pair; slow: all pairs, all rows",
            tested.OF_A_ROW,
            "rows",
        )
    ]
    both += [
        (
            "`make test`: 1 random pair; slow: each value, all pairs, all rows",
            tested.ONLY_PAIRS,
            "rows",
        )
    ]
    both += [("`make test`: defaults; slow: each value", (tested.HALF,), "cells")]
    both += [
        (
            "`make test`: defaults, all pairs of cuts",
            (law_equal_functions_have_equal_configs,),
            "cells",
        )
    ]
    laws = [(kind, _words(law), where) for where, some, kind in both for law in some]
    cells = {name: (CELLS[name].Config, part_cases(CELLS, name)) for name in CELLS}
    rows = {name: (type(zoo.config(name)), row_cases(name)) for name in one_row_per_model()}
    return TEXT.format(
        laws=_table(("of", "law", "where it runs"), laws),
        unpromised=_table(("case", "why"), ((_case(x), why) for x, why in UNPROMISED.items())),
        cells=_table(HEAD, _parts(cells)),
        rows=_table(HEAD, _parts(rows)),
    )


HEAD = ("part", "options", "values", "pairs", "left out")


def _parts(parts: Mapping[str, tuple[type, tuple[list[Case], list[Case]]]]) -> Iterable[Any]:
    for name, (config, (one, both)) in parts.items():
        options = ", ".join(
            f"`{path}` {_shown(own)}" for path, own in option_values(config).items()
        )
        left = sum(bool(unpromised(label)) for label, _ in [*one, *both])
        yield f"`{name}`", options or "none", len(one), len(both), left


def _shown(values: list[Any]) -> str:
    return " ".join(str(value[0] if isinstance(value, list) else value) for value in values)


def _case(pattern: str) -> str:
    text = pattern.replace("(,|$)", "").replace("^", "").replace(".*", "cuts=")
    return f"`{text}`"


def _words(law: Callable[..., None]) -> str:
    return law.__name__.removeprefix("law_").replace("_", " ")


def _table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    lines = [[*head]]
    lines += [["---"] * len(lines[0]), *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    PAGE.write_text(page(), encoding="utf-8")
