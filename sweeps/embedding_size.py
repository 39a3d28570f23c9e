"""How much width does each recurrent cell need?

Four cells with mixture emission at four widths: where does doubling stop paying, and
does the ranking of the cells depend on the width?
"""

from lmzoo.sweep import Point, Study, main

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
