"""Which layer of four should be attention?

Four blocks of gated linear attention or of Gated DeltaNet, and the same with softmax attention in
one of them, on recall (as in `recall.py`, with 8 keys) and on characters of Shakespeare.

    python sweeps/hybrid.py hybrid_recall
    python sweeps/hybrid.py hybrid_text --data-dir DIR
"""

from typing import Any

from lmzoo import Point, Study, main

CELLS, LAYERS = {"GLA": "gla", "Gated DeltaNet": "gated_deltanet"}, 4


def stack(cell: str, attention: int) -> dict[str, object]:
    """Return a stack whose layer of this number is attention. DeltaNet has its own convolution."""

    def block(inner: Any, *cuts: str) -> dict[str, object]:
        return {"name": "block", "inner": inner, "cuts": ["output_gate", *cuts]}

    attending = block({"name": "attention", "heads": 1})
    recurrent = block(cell, *(["convolution"] if cell == "gated_deltanet" else []))
    layers = [attending if n + 1 == attention else recurrent for n in range(LAYERS)]
    return {"cell": {"name": "hybrid", "layers": layers}}


def study(name: str, **changes: Any) -> Study:
    """Return the comparison on one corpus."""
    return Study(
        name=name,
        question="Which layer of four should be attention?",
        points=tuple(
            Point(f"{label}, {f'layer {n}' if n else 'none'}", "hybrid", stack(cell, n))
            for label, cell in CELLS.items()
            for n in range(LAYERS + 1)
        ),
        search={},
        seeds=3,
        pruner="none",
        **changes,
    )


MQAR = {"length": 20, "pairs": 4, "keys": 8, "noise": False, "train": 4000, "valid": 100}
RECALL = {f"corpus.{name}": value for name, value in MQAR.items()} | {"recipe.batch": 32}
FIELDS = {
    "model.width": 16,
    "recipe.lr": 0.02,
    "recipe.warmup": 20,
    "recipe.schedule": "cosine",
}
TEXT = {"corpus.blocks": 1000, "recipe.batch": 16}
STUDIES = (
    study("hybrid_recall", corpus="mqar", fields={**FIELDS, **RECALL}, epochs=8),
    study("hybrid_text", corpus="shakespeare_char", fields={**FIELDS, **TEXT}, epochs=2),
)

if __name__ == "__main__":
    main(*STUDIES)
