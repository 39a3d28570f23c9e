"""Which attention reads longer texts than it was trained on?

A decoder of two layers that sees all earlier characters, with rotary positions, without positions,
and with what replaces or joins them: a forget gate (FoX), stick-breaking, a sink. It trains on
blocks of 64 characters; `lmzoo score` gives its runs longer texts. The short convolution is cut,
since it tells the order too.

    python sweeps/positions.py --data-dir DIR
"""

from lmzoo import FloatRange, Point, Study, main


def decoder(label: str, *memory: str, rotary: bool = False) -> Point:
    """Return a decoder with these parts of the memory, and a rotation of queries and keys."""
    cuts = ["window", "convolution"] + ([] if rotary else ["rotation"])
    return Point(label, "modern_decoder", {"cuts": cuts, "memory": list(memory)})


STUDY = Study(
    name="positions",
    question="Which attention reads longer texts than it was trained on?",
    points=(
        decoder("rotary", rotary=True),
        decoder("no positions"),
        decoder("forget gate", "forget"),
        decoder("forget gate, rotary", "forget", rotary=True),
        decoder("stick-breaking", "stick_breaking"),
        decoder("sink, rotary", "sinks", rotary=True),
    ),
    corpus="shakespeare_char",
    fields={
        "corpus.blocks": 1600,
        "model.width": 32,
        "recipe.batch": 16,
        "recipe.warmup": 20,
        "recipe.schedule": "cosine",
    },
    search={"recipe.lr": FloatRange(4e-3, 3e-2, log=True)},
    epochs=2,
    samples=3,
    seeds=3,
)

if __name__ == "__main__":
    main(STUDY)
