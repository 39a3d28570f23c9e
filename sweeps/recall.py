"""Which sequence models recall a value by its key, and at which width?

Multi-query associative recall (Arora et al. 2023, arXiv:2312.04927): 64 symbols, 4 pairs of a key
and a value, then each key again; the accuracy is that of the values that follow. Attention can look
a key up; a recurrent state must hold all pairs. All points have two layers. A recurrent cell is in
a residual block with a feed-forward part, with a convolution and an output gate where its paper has
them. The figure of the paper is accuracy against width:

    python sweeps/recall.py --set corpus.pairs=8
    python sweeps/recall.py --set model.width=128

Each epoch has 20,000 sequences. No run is pruned: the loss stays near that of a guess before it
falls.
"""

from lmzoo.search_space import FloatRange
from lmzoo.sweep import Point, Study, main

PLAIN = ("convolution", "output_gate")
"""Parts of the block that are left out, because the cell has its own or its paper has none."""


def attention(label: str, *cuts: str) -> Point:
    """Return a decoder of two layers with one head that sees all earlier tokens."""
    return Point(label, "modern_decoder", {"heads": 1, "groups": 1, "cuts": ["window", *cuts]})


def recurrent(label: str, cell: str, left_out: tuple[str, ...] = PLAIN) -> Point:
    """Return two layers of a cell in a residual block."""
    block = {"name": "block", "inner": {"name": cell}, "cuts": list(left_out)}
    return Point(label, "min_gru_block", {"num_layers": 2, "cell": block})


STUDY = Study(
    name="recall",
    question="Which sequence models recall a value by its key?",
    points=(
        attention("attention"),
        attention("attention without convolution", "convolution"),
        recurrent("tanh", "rnn"),
        recurrent("MGU", "mgu"),
        recurrent("MGRU", "mgru"),
        recurrent("GRU", "gru"),
        recurrent("LSTM", "lstm"),
        recurrent("minGRU", "min_gru", ()),
        recurrent("RG-LRU", "rg_lru", ()),
        recurrent("RetNet", "retention"),
        recurrent("GLA", "gla"),
        recurrent("mLSTM", "mlstm"),
        recurrent("Gated DeltaNet", "gated_deltanet"),
    ),
    corpus="mqar",
    search={"recipe.lr": FloatRange(0.001, 0.01, log=True)},
    fields={
        "corpus.pairs": 4,
        "corpus.noise": False,
        "corpus.train": 20000,
        "corpus.valid": 500,
        "corpus.test": 1000,
        "model.width": 64,
        "recipe.batch": 64,
    },
    epochs=3,
    samples=2,
    seeds=3,
    pruner="none",
    reference="attention",
)

if __name__ == "__main__":
    main(STUDY)
