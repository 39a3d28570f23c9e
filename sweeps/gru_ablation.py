"""Which path of the minimal gated unit can be cut at least cost?

The central table of S0: each of the eight paths of its "GRU" (DLM46) is cut, and so are the
combinations that it published. The cuts 2,3,4,5 leave the same function as the cuts 2,7.
"""

from lmzoo.sweep import Point, Study, main

PUBLISHED = ([0, 2, 4, 5], [0, 4, 5], [2, 3, 4, 5])

STUDY = Study(
    name="gru_ablation",
    question="Which path of the minimal gated unit can be cut at least cost?",
    points=(
        Point("wild type", "DLM46"),
        *(Point(f"cut {i}", "DLM46", {"cell.cuts": [i]}) for i in range(8)),
        *(Point(f"cut {','.join(map(str, c))}", "DLM46", {"cell.cuts": c}) for c in PUBLISHED),
    ),
    fields={"model.emission.components": 64},
)

if __name__ == "__main__":
    main(STUDY)
