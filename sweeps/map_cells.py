"""What does training without each named part of a cell cost?

A study for each cell that has named cuts, with all single cuts. `lmzoo ablate` measures what the
same cuts cost the trained whole cell, and `tools/map.py` compares both costs.

    python sweeps/map_cells.py map-gru
"""

import lmzoo
from lmzoo import Point, Study, main
from lmzoo.cells.base import CELLS
from lmzoo.train.cut_weights import Variant, variants


def study(cell: str) -> Study | None:
    """Return the study of all single cuts of a cell; None without named cuts."""
    whole = lmzoo.zoo.config("recurrent_lm", cell=cell, emission="vector")
    cuts = [each for each in variants(whole) if isinstance(each, Variant)]
    if not cuts:
        return None
    fields = {"cell": cell}
    points = [Point(each.label, "recurrent_lm", {**fields, **each.fields}) for each in cuts]
    return Study(
        name=f"map-{cell}",
        question=f"What does each cut of {cell} cost?",
        points=(Point("whole", "recurrent_lm", fields), *points),
        fields={"model.emission": "vector", "recipe.schedule": "cosine"},
        epochs=20,
        seeds=8,
    )


def studies() -> tuple[Study, ...]:
    """Return the studies of all cells that have named cuts."""
    found = []
    for cell in CELLS:
        own = study(cell)
        if own is not None:
            found.append(own)
    return tuple(found)


STUDIES = studies()

if __name__ == "__main__":
    main(*STUDIES)
