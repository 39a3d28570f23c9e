"""Do tuned learning rates and verdicts carry from one width to another, with μP and without?

Three cells in a network of one layer at widths 32, 64 and 256, each with its own learning rate. One
study has the usual draws and rates; in the other both follow the width
(`lmzoo/train/optimisers.py`), which changes nothing at width 32.

    python sweeps/widths.py widths_standard
    python sweeps/widths.py widths_mup
"""

from lmzoo import FloatRange, Point, Study, main

CELLS = {"tanh": "rnn_lm", "GRU": "gru", "minGRU": "min_gru"}
WIDTHS = (32, 64, 256)


def study(parametrisation: str) -> Study:
    """Return the cells at all widths under one parametrisation."""
    return Study(
        name=f"widths_{parametrisation}",
        question=f"Which rate is best at which width, with parametrisation={parametrisation}?",
        points=tuple(
            Point(f"{cell} E={width}", row, {"width": width})
            for cell, row in CELLS.items()
            for width in WIDTHS
        ),
        fields={
            "corpus.train": 1500,
            "recipe.batch": 50,
            "recipe.parametrisation": parametrisation,
            "recipe.schedule": "cosine",
        },
        search={"recipe.lr": FloatRange(3e-3, 0.3, log=True)},
        epochs=4,
        samples=5,
        seeds=3,
        pruner="none",
        reference="GRU E=32",
    )


STUDIES = (study("standard"), study("mup"))

if __name__ == "__main__":
    main(*STUDIES)
