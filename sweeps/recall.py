"""Which sequence models recall a value by its key?

Multi-query associative recall (Arora et al. 2023, arXiv:2312.04927): 64 symbols, 4 pairs of a key
and a value, then each key again; the accuracy is that of the values that follow. Attention can look
a key up; a recurrent state must hold all pairs.

As in the paper: width 64, two layers of a sequence mixer in residual blocks without a feed-forward
part, blanks between the queries. The code that was published with the figure has four layers of H3
and BaseConv, and two since May 2024; both are points here. Unlike the paper: 64 keys and 64 values
instead of 4,096 each, so that a CPU learns the task in a minute, and one learning rate. RetNet,
minGRU and RG-LRU have the block's short convolution, Mamba-2 and Gated DeltaNet their own.

    python sweeps/recall.py
    python sweeps/recall.py --set corpus.pairs=8 --out runs/pairs8

No run is pruned: the loss stays near that of a guess before it falls.
"""

from lmzoo import Point, Study, main


def attention(label: str, *cuts: str) -> Point:
    """Return a decoder of two layers with one head that sees all earlier tokens."""
    fields = {"heads": 1, "groups": 1, "cuts": ["window", "feed_forward", *cuts]}
    return Point(label, "modern_decoder", fields)


def recurrent(label: str, cell: str, *kept: str) -> Point:
    """Return two layers of a cell in residual blocks with the `kept` parts."""
    cuts = {"convolution", "output_gate", "feed_forward"} - set(kept)
    block = {"name": "block", "inner": {"name": cell}, "cuts": sorted(cuts)}
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
        recurrent("minGRU", "min_gru", "convolution", "output_gate"),
        recurrent("RG-LRU", "rg_lru", "convolution", "output_gate"),
        recurrent("RetNet", "retention", "convolution"),
        recurrent("Mamba-2", "mamba2"),
        recurrent("Gated DeltaNet", "gated_deltanet"),
        Point("H3", "h3", {"layers": 2}),
        Point("H3 of 4 layers", "h3", {"layers": 4}),
        Point("BaseConv", "base_conv", {"layers": 2}),
        Point("BaseConv of 4 layers", "base_conv", {"layers": 4}),
    ),
    corpus="mqar",
    search={},
    fields={
        "corpus.pairs": 4,
        "corpus.noise": False,
        "corpus.train": 16000,
        "corpus.valid": 500,
        "corpus.test": 1000,
        "model.width": 64,
        "recipe.lr": 0.005,
        "recipe.batch": 32,
        "recipe.warmup": 100,
        "recipe.schedule": "cosine",
    },
    epochs=2,
    seeds=3,
    pruner="none",
    reference="attention",
)

if __name__ == "__main__":
    main(STUDY)
