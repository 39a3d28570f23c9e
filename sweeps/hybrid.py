"""Which layer should be attention?

Four blocks of gated linear attention, and the same with softmax attention in one of them. Recall is
the default data; a text is `--corpus text:shakespeare.txt --set corpus.unit=char`.
"""

from lmzoo import FloatRange, Point, Study, main

CELL, LAYERS = "gla", 4


def stack(*attention: int) -> dict[str, object]:
    """Return the fields of a stack whose layers of these numbers are attention."""
    names = ["attention" if n in attention else CELL for n in range(1, LAYERS + 1)]
    cuts = ["convolution", "output_gate"]
    blocks = [{"name": "block", "inner": name, "cuts": cuts} for name in names]
    return {"cell": {"name": "hybrid", "layers": blocks}}


STUDY = Study(
    name="hybrid",
    question="Which layer should be attention?",
    points=(
        Point("no attention", "hybrid", stack()),
        *(Point(f"layer {n}", "hybrid", stack(n)) for n in range(1, LAYERS + 1)),
    ),
    corpus="mqar",
    fields={"recipe.schedule": "cosine"},
    search={"recipe.lr": FloatRange(1e-3, 3e-2, log=True)},
)

if __name__ == "__main__":
    main(STUDY)
