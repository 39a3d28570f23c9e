r"""Which path of the minimal gated unit can be cut at least cost?

The central table of S0: each of the eight paths of its "GRU" (DLM46) is cut, and so are the
combinations that it published. The cuts 2,3,4,5 leave the same function as the cuts 2,7.

The emission is a softmax tied to the embeddings, and the rate falls to zero: with the mixture of
S0 on a small vocabulary, seeds differ more than most cuts. The rates searched are a decade around
the best ones of all points. S0's own emission, as in `reference.py`, and the question with a
constant rate:

    --set model.emission=mixture --set model.emission.components=64
    --set model.emission=mixture --set model.emission.components=64 \
        --set recipe.schedule=constant --search-space recipe.lr=0.001:0.1:log
"""

from lmzoo import FloatRange, Point, Study, main

PUBLISHED = ([0, 2, 4, 5], [0, 4, 5], [2, 3, 4, 5])

STUDY = Study(
    name="gru_ablation",
    question="Which path of the minimal gated unit can be cut at least cost?",
    points=(
        Point("wild type", "DLM46"),
        *(Point(f"cut {i}", "DLM46", {"cell.cuts": [i]}) for i in range(8)),
        *(Point(f"cut {','.join(map(str, c))}", "DLM46", {"cell.cuts": c}) for c in PUBLISHED),
    ),
    fields={"model.emission": "vector", "recipe.schedule": "cosine"},
    search={"recipe.lr": FloatRange(0.01, 0.1, log=True)},
    seeds=4,  # 13 of the wild type: 57 runs, where five of every point were 60
)

if __name__ == "__main__":
    main(STUDY)
