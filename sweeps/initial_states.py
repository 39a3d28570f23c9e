"""Do several learned initial states help, and for which cell?

The model mixes the likelihoods of the sequence over W learned initial states. W=0 is a constant
state of ones.

Source: S0.
"""

from lmzoo import Point, Study, main

CELLS = {"tanh": "DLM29", "MGU": "DLM46"}
STARTS = (0, 1, 2, 4, 8)

STUDY = Study(
    name="initial_states",
    question="Do several learned initial states help, and for which cell?",
    points=tuple(
        Point(f"{cell} W={starts}", row, {"starts": starts})
        for cell, row in CELLS.items()
        for starts in STARTS
    ),
    fields={"model.emission.components": 64},
    reference="MGU W=1",
)

if __name__ == "__main__":
    main(STUDY)
