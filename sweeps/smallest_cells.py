"""Are the smallest cells that walks found as good as the whole ones?

`lmzoo shrink` cuts what is good enough, one part after the other. These studies compare the cell
where a walk ended with the whole one, with seeds of their own, at another width or on another
corpus. `smallest_mgu.py` is that of the minimal gated unit on captions.

    python sweeps/smallest_cells.py smallest_mgu_parity
    python sweeps/smallest_cells.py smallest_gla --set model.width=64 --seeds 16
"""

from collections.abc import Mapping
from typing import Any

from lmzoo import FloatRange, Point, Study, main


def study(
    name: str,
    row: str,
    cuts: str,
    fields: Mapping[str, Any],
    rates: FloatRange,
    *,
    samples: int = 8,
    seeds: int = 32,
    epochs: int = 20,
    **options: Any,
) -> Study:
    """Return the study of a walk's last cell, the row without `cuts`."""
    common = {"model.emission": "vector", "recipe.schedule": "cosine"}
    return Study(
        name=f"smallest_{name}",
        question=f"Is the smallest cell of {name} as good as the whole one?",
        points=(Point("whole", row), Point("smallest", row, {"cell.cuts": cuts.split()})),
        fields={**common, **fields},
        search={"recipe.lr": rates},
        samples=samples,
        seeds=seeds,
        seed=100,  # those of a walk are the numbers of its steps
        epochs=epochs,
        **options,
    )


PARITY = {
    "recipe.batch": 32,
    "corpus.train": 4000,
    "corpus.valid": 300,
    "corpus.test": 300,
}
RECALL = {
    "recipe.batch": 32,
    "corpus.pairs": 4,
    "corpus.noise": False,
    "corpus.keys": 16,
    "corpus.length": 24,
    "corpus.train": 4000,
    "corpus.valid": 200,
    "corpus.test": 500,
}

STUDIES = (
    study(
        "mgu_parity",
        "DLM46",
        "input_to_candidate carry",
        PARITY,
        FloatRange(0.004, 0.016, log=True),
        corpus="parity",
        samples=6,
        seeds=48,
        margin=0.05,
    ),
    study(
        "lstm_parity",
        "recurrent_lm",
        "output_gate output_activation coupled peepholes",
        PARITY | {"model.cell": "lstm_peephole"},
        FloatRange(0.002, 0.016, log=True),
        corpus="parity",
        samples=6,
        seeds=48,
        margin=0.05,
    ),
    study(
        "lstm",
        "recurrent_lm",
        "forget_gate input_activation output_activation peepholes",
        {"model.cell": "lstm_peephole"},
        FloatRange(0.005, 0.05, log=True),
    ),
    study(
        "gla",
        "recurrent_lm",
        "decay gate norm",
        {"model.cell": "gla"},
        FloatRange(0.005, 0.1, log=True),
    ),
    study(
        "mamba",
        "recurrent_lm",
        "delta",
        {"model.cell": "mamba"},
        FloatRange(0.005, 0.1, log=True),
    ),
    study(
        "gated_deltanet_recall",
        "recurrent_lm",
        "beta unit norm alpha gate",
        RECALL | {"model.cell": "gated_deltanet"},
        FloatRange(0.002, 0.03, log=True),
        corpus="mqar",
        samples=6,
        seeds=48,
        margin=0.05,
        epochs=8,
    ),
    study(
        "mgu_text",
        "DLM46",
        "gate_bias candidate_bias carry",
        {"recipe.batch": 16, "corpus.blocks": 4000},
        FloatRange(0.001, 0.1, log=True),
        corpus="shakespeare_char",
        epochs=8,
    ),
)

if __name__ == "__main__":
    main(*STUDIES)
