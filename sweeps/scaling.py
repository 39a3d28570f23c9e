"""How does the loss of classic and modern cells fall with their size?

Seven cells at four widths, all in a network of one layer with a tied softmax.
`tools/scaling_fits.py` fits a power law to each cell and compares them at equal parameters,
`--by state` at equal state and `--by compute` at equal compute: does the order change?
"""

from lmzoo import Point, Study, main

ROWS = ("lstm_lm", "gru", "rnn_lm", "min_gru", "gla", "gated_deltanet", "transformer_decoder")
WIDTHS = (16, 32, 64, 128)

STUDY = Study(
    name="scaling",
    question="How does the loss of classic and modern cells fall with their size?",
    points=tuple(
        Point(f"{row} E={width}", row, {"width": width}) for row in ROWS for width in WIDTHS
    ),
    fields={"recipe.schedule": "cosine"},
    reference="lstm_lm E=32",
)

if __name__ == "__main__":
    main(STUDY)
