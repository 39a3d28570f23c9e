"""Which layer of four should be attention?

Four blocks of gated linear attention or of Gated DeltaNet, and the same with softmax attention in
one of them. Recall is the default; a text:

    python sweeps/hybrid.py --corpus shakespeare_char --set corpus.blocks=800 --data-dir DIR
"""

from lmzoo import FloatRange, Point, Study, main

CELLS, LAYERS = {"GLA": "gla", "Gated DeltaNet": "gated_deltanet"}, 4
ATTENTION = {"name": "attention", "heads": 2}


def stack(cell: str, *attention: int) -> dict[str, object]:
    """Return the fields of a stack whose layers of these numbers are attention."""
    layers = [ATTENTION if n in attention else cell for n in range(1, LAYERS + 1)]
    cuts = ["convolution", "output_gate"]
    blocks = [{"name": "block", "inner": layer, "cuts": cuts} for layer in layers]
    return {"cell": {"name": "hybrid", "layers": blocks}}


def points(label: str, cell: str) -> list[Point]:
    """Return the stack of one cell without attention, and with it in each layer."""
    places = [Point(f"{label}, layer {n}", "hybrid", stack(cell, n)) for n in range(1, LAYERS + 1)]
    return [Point(f"{label}, none", "hybrid", stack(cell)), *places]


STUDY = Study(
    name="hybrid",
    question="Which layer of four should be attention?",
    points=tuple(point for label, cell in CELLS.items() for point in points(label, cell)),
    corpus="mqar",
    fields={
        "model.width": 16,
        "recipe.batch": 32,
        "recipe.warmup": 20,
        "recipe.schedule": "cosine",
    },
    search={"recipe.lr": FloatRange(3e-3, 3e-2, log=True)},
    epochs=5,
    samples=3,
    seeds=3,
    pruner="none",  # the loss stays near that of a guess before it falls
)

if __name__ == "__main__":
    main(STUDY)
