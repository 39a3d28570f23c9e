"""Does any model know more of a protein than how frequent its residues are?

The study compares S0's architectures on domain sequences with count models, and one row with the
published normaliser, whose inputs leak. The default corpus has 20 uniform, independent letters: a
model below log 20 = 2.996 nats has read the token that it predicts.

Proteins, longer proteins, and S0's own release and split, with its files in DIR. Each needs a store
of its own, because a store keeps only the last options:

    --corpus cath
    --corpus cath --set corpus.length=100 --out runs/long
    --corpus cath --set corpus.release=S35-v4_3_0 --set corpus.split=seed --data-dir DIR \
        --set model.width=128 --epochs 20 --out runs/seed

In `recurrent_cells.py` all rows accept S0's normaliser: `--set model.norm=time_std`.
"""

from lmzoo import Point, Study, main

K = {"emission.components": 90}
MGRU = {"cell": {"name": "mgru", "mutations": [4, 6]}}

STUDY = Study(
    name="cath",
    question="Does any model know more of a protein than how frequent its residues are?",
    points=(
        Point("unigram count", "ngram_count", {"order": 1}),
        Point("trigram count", "ngram_count", {"order": 3}),
        Point("LSTM", "DLM26", K),
        Point("LSTM as published", "DLM26", {**K, "norm": "time_std"}),
        Point("MGU", "DLM46", K),
        Point("MGRU {4;6}", "DLM47", {**K, **MGRU}),
        Point("tanh", "DLM29", K),
        Point("minGPT W=8 D=1", "DLM40", {"attention.heads": 8, "layers": 1}),
        Point("minGPT W=8 D=6", "DLM40", {"attention.heads": 8, "layers": 6}),
    ),
    corpus="iid",
    seeds=3,
    reference="unigram count",
)

if __name__ == "__main__":
    main(STUDY)
