"""Does the package reach nanoGPT's loss on Shakespeare, and how do recurrent cells compare?

nanoGPT's setting for CPUs (github.com/karpathy/nanoGPT, README): 4 layers, 4 heads, width 128, 64
characters, 2,000 steps of 12 blocks, no dropout, AdamW whose rate falls from 1e-3 to 1e-4. Its
validation loss is 1.88 nats per character. Eight epochs of 3,000 random blocks are 2,000 steps. In
`nanogpt` nothing is searched. In `nanogpt_cells` six recurrent cells, in four residual blocks, have
as many parameters as GPT, and each point has its own rate; a convolution and an output gate are
those of the cell, if it has them, or those of the block:

    python sweeps/nanogpt.py nanogpt --data-dir DIR
    python sweeps/nanogpt.py nanogpt_cells --data-dir DIR
"""

import dataclasses
from typing import Any

from lmzoo import FloatRange, Point, Study, main

GPT = {"attention.heads": 4, "tied": True, "dropout": 0.0}


def block(label: str, cell: str, *cuts: str) -> Point:
    """Return a point with a cell in four blocks without the parts `cuts`."""
    part: dict[str, Any] = {"name": "block", "inner": {"name": cell}}
    return Point(label, "min_gru_block", {"num_layers": 4, "cell": part | {"cuts": list(cuts)}})


ONE_RATE = Study(
    name="nanogpt",
    question="Does the package reach nanoGPT's loss, and how do recurrent cells compare?",
    points=(
        Point("GPT", "gpt", {**GPT, "layers": 4}),
        Point("minGRU", "min_gru_block", {"num_layers": 4}),
        Point(
            "minLSTM",
            "min_gru_block",
            {"num_layers": 4, "cell": {"name": "block", "inner": {"name": "min_lstm"}}},
        ),
    ),
    corpus="shakespeare_char",
    search={},
    fields={
        "corpus.split": "nanogpt",
        "corpus.blocks": 3000,
        "model.width": 128,
        "recipe.optimiser": "adamw",
        "recipe.lr": 1e-3,
        "recipe.beta2": 0.99,
        "recipe.weight_decay": 0.1,
        "recipe.batch": 12,
        "recipe.warmup": 100,
        "recipe.schedule": "cosine",
        "recipe.final_lr": 0.1,
    },
    epochs=8,
    samples=1,
    seeds=2,
    pruner="none",
    reference="GPT",
)

OWN = ("convolution", "output_gate")
CELLS = dataclasses.replace(
    ONE_RATE,
    name="nanogpt_cells",
    question="How do recurrent cells in blocks compare with GPT, each with its own learning rate?",
    points=(
        ONE_RATE.points[0],
        block("LSTM", "lstm"),
        block("GRU", "gru"),
        block("minGRU", "min_gru"),
        block("minLSTM", "min_lstm"),
        block("Mamba", "mamba", *OWN),
        block("Gated DeltaNet", "gated_deltanet", *OWN),
    ),
    search={"recipe.lr": FloatRange(5e-4, 2e-2, log=True)},
    fields={name: value for name, value in ONE_RATE.fields.items() if name != "model.width"},
    parameters=810_112,  # those of GPT in `nanogpt`
    pruner="halving",
    samples=4,
    seeds=3,
)

STUDIES = (ONE_RATE, CELLS)

if __name__ == "__main__":
    main(*STUDIES)
