"""Which architecture is the best density at equal parameters?

The study compares every model row whose score is an exact log-likelihood. Each model is as wide as
the parameter budget allows. Rows that are the same function are trained once. A model without a
width (a count model, a grammar) keeps its own size, which the table shows.
"""

from lmzoo import Point, Study, main, zoo
from lmzoo.contract import Score

EXACT = [
    name
    for name in zoo.names()
    if zoo.row(name).model is not None and zoo.row(name).score == Score.EXACT
]

STUDY = Study(
    name="architectures",
    question="Which architecture is the best density at equal parameters?",
    points=tuple(Point(name, name) for name in EXACT),
    parameters=20_000,
    epochs=6,
    seeds=3,
    reference="lstm_lm",
)

if __name__ == "__main__":
    main(STUDY)
