"""Which path of the minimal gated unit can be cut at least cost, at the published size?

S0's question at S0's size: E=128, K=400, batches of 280. Besides the twelve points of
`gru_ablation.py`, the study has the cells that S0 compares with; all points are tuned alike. The
rate falls to zero over four epochs: the wild type's validation loss at the default rate is then
3.65, and 3.65 after six. A point has five seeds, and up to ten while its difference is undecided.
The words of Multi30k in the official splits, on which S0 published:

    --corpus multi30k_en

The same points on proteins and on characters, at a width of 64:

    --corpus cath --set model.width=64 --set model.emission.components=90
    --corpus multi30k_en_char --set model.width=64 --set model.emission.components=90

`make reference` runs these studies in sittings (`tools/reference.py`).
"""

from lmzoo import Point, Study, main

PUBLISHED = ([0, 2, 4, 5], [0, 4, 5], [2, 3, 4, 5])

STUDY = Study(
    name="reference",
    question="Which path of the minimal gated unit can be cut at least cost, "
    "at the published size?",
    points=(
        Point("wild type", "DLM46"),
        *(Point(f"cut {i}", "DLM46", {"cell.cuts": [i]}) for i in range(8)),
        *(Point(f"cut {','.join(map(str, c))}", "DLM46", {"cell.cuts": c}) for c in PUBLISHED),
        Point("GRU", "DLM44"),
        Point("LSTM", "DLM26"),
        Point("tanh", "DLM29"),
        Point("MGRU", "DLM47"),
        Point("MGRU {4;6}", "DLM47", {"cell": {"name": "mgru", "mutations": [4, 6]}}),
    ),
    fields={
        "model.width": 128,
        "model.emission.components": 400,
        "recipe.batch": 280,
        "recipe.schedule": "cosine",
    },
    epochs=4,
    max_seeds=10,
)

if __name__ == "__main__":
    main(STUDY)
