"""Which recurrent cells can track a state, and do they still do it on longer inputs?

Theory: a linear recurrence whose coefficients are diagonal and positive cannot compute the parity
of a string at all lengths; a tanh RNN or an LSTM can (Merrill et al. 2024, arXiv:2404.08819; Sarrof
et al. 2024, arXiv:2405.17394), and so can a linear one with negative eigenvalues (Grazzi et al.
2025, arXiv:2411.12537): `beta_max=2` in the delta rule, `signed` in Mamba. A permutation of n + 1
things needs n reflections per token: DeltaProduct (Siems et al. 2025, arXiv:2502.10297). Linear
cells are in blocks with norms, residuals and a feed-forward part, of one layer or of four. Strings
of 1 to 40 bits train, strings of 100 bits test. The loss of a constant answer is ln 2, its accuracy
one half. Training stays at this loss for several epochs before it falls, so no run is pruned.
Other tasks:

    --corpus modular_arithmetic
    --corpus s5
    --corpus s3
"""

from typing import Any

from lmzoo import FloatRange, Point, Study, main


def block(label: str, cell: str, layers: int = 1, **fields: Any) -> Point:
    """Return a point with a cell in blocks, whose convolution and gate are those of the cell."""
    inner = {"name": cell, **fields}
    part = {"name": "block", "inner": inner, "cuts": ["convolution", "output_gate"]}
    return Point(label, "min_gru_block", {"cell": part, "num_layers": layers})


STUDY = Study(
    name="state_tracking",
    question="Which recurrent cells can track a state, and do they still do it on longer inputs?",
    points=(
        Point("tanh", "rnn_lm"),
        Point("LSTM", "lstm_lm"),
        Point("GRU", "gru"),
        block("minGRU", "min_gru"),
        block("LRU", "lru"),
        block("Mamba", "mamba"),
        block("Mamba, signed", "mamba", signed=True),
        block("Mamba-3", "mamba3"),
        block("Mamba-3 without rotation", "mamba3", cuts=["rotation"]),
        block("DeltaNet, β < 2", "deltanet", beta_max=2.0),
        block("Gated DeltaNet", "gated_deltanet"),
        block("Gated DeltaNet, β < 2", "gated_deltanet", beta_max=2.0),
        block("Gated DeltaNet, β < 2, 4 layers", "gated_deltanet", 4, beta_max=2.0),
        *(block(f"DeltaProduct, n = {n}", "deltaproduct", products=n) for n in (1, 2, 3, 4)),
        block("M²RNN", "m2rnn"),
        block("RWKV-7", "rwkv7"),
    ),
    corpus="parity",
    search={"recipe.lr": FloatRange(0.002, 0.02, log=True)},
    fields={
        "corpus.train": 4000,
        "corpus.valid": 300,
        "corpus.test": 300,
        "recipe.batch": 32,
        "recipe.schedule": "cosine",
    },
    epochs=25,
    pruner="none",
    # It solves the task with every seed, so that cells that never solve it are shown to differ.
    reference="LSTM",
)

if __name__ == "__main__":
    main(STUDY)
