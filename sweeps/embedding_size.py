"""How much width does each recurrent cell need?

The study compares four cells with a mixture emission at four widths. It shows where a doubled
width no longer helps, and whether the ranking of the cells depends on the width.
"""

from lmzoo import Point, Study, main

CELLS = {"LSTM": "DLM26", "GRU": "DLM44", "MGU": "DLM46", "tanh": "DLM29"}
WIDTHS = (8, 16, 32, 64)

STUDY = Study(
    name="embedding_size",
    question="How much width does each recurrent cell need?",
    points=tuple(
        Point(f"{cell} E={width}", row, {"width": width})
        for cell, row in CELLS.items()
        for width in WIDTHS
    ),
    fields={"model.emission.components": 64},
    reference="LSTM E=32",
)

if __name__ == "__main__":
    main(STUDY)
