"""Is the smallest cell that a walk found as good as the whole one?

`lmzoo shrink` cuts what is negligible, one part after the other. These studies compare the cell
where a walk ended with the whole one, with seeds of their own, at another width or on another
corpus:

    python sweeps/smallest_cells.py smallest_mgu
    python sweeps/smallest_cells.py smallest_mgu --set model.width=64
    python sweeps/smallest_cells.py smallest_mgu --corpus multi30k_en --epochs 2 --seeds 6
"""

from typing import Any

from lmzoo import FloatRange, Point, Study, main


def study(name: str, row: str, cuts: str, **options: Any) -> Study:
    """Return the study of a walk's last cell, the row without `cuts`."""
    given = {
        "fields": {"model.emission": "vector", "recipe.schedule": "cosine"},
        "samples": 8,
        "seeds": 32,
        "seed": 100,  # those of a walk are the numbers of its steps
    }
    return Study(
        name=f"smallest_{name}",
        question=f"Is the smallest {name} as good as the whole one?",
        points=(Point("whole", row), Point("smallest", row, {"cell.cuts": cuts.split()})),
        **given | options,
    )


STUDIES = (
    study(
        "mgu",
        "DLM46",
        "gate_bias input_to_candidate candidate_bias",
        search={"recipe.lr": FloatRange(0.01, 0.1, log=True)},
    ),
)

if __name__ == "__main__":
    main(*STUDIES)
