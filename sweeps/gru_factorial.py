"""What does every mutant of the two minimal gated units cost, and do the cuts interact?

The study compares all combinations of the MGU's eight cuts (DLM46) and of the MGRU's twelve
switches (DLM47). Each function is trained once. Mutants whose state stays zero or that do not read
their input are left out. `analysis/epistasis.py` estimates the effects of the cuts.
"""

from collections.abc import Iterator
from itertools import chain, combinations
from typing import Any

from lmzoo import Point, Study, UserError, main
from lmzoo.cells.base import CELLS

SWITCHES = {"mgu": 8, "mgru": 12}
ROWS = {"mgu": "DLM46", "mgru": "DLM47"}


def mutants(cell: str) -> Iterator[Point]:
    """Each distinct, valid, input-seeing mutant under its shortest name, the wild type first."""
    seen: set[Any] = set()
    positions = range(SWITCHES[cell])
    for numbers in chain.from_iterable(
        combinations(positions, n) for n in range(len(positions) + 1)
    ):
        fields = {"name": cell, "mutations": list(numbers)}
        try:
            mutant = CELLS.parse(fields)
        except UserError:  # the state would stay zero
            continue
        if mutant not in seen:
            seen.add(mutant)
            if not CELLS.build(mutant, 1, 2).input_blind:
                name = ",".join(map(str, numbers)) or "wild type"
                yield Point(f"{cell} {name}", ROWS[cell], {"cell": fields})


STUDY = Study(
    name="gru_factorial",
    question="What does every mutant of the two minimal gated units cost?",
    points=(*mutants("mgu"), *mutants("mgru")),
    fields={"model.width": 16, "model.emission.components": 16},
    epochs=4,
    samples=3,
)

if __name__ == "__main__":
    main(STUDY)
