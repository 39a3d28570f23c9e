"""Does any model know more of a protein than how frequent its residues are?

S0's architectures on domain sequences, beside counts and beside the published normaliser.
By default the "residues" are twenty uniform, independent letters, of which nothing can be
known: every sound row must end at log 20 = 2.996, and what ends below has seen the answer.
The proteins, short and long, and S0's own release and split, which is not downloaded; each
into a store of its own, as a store keeps what was asked last:

    --corpus cath
    --corpus cath --set corpus.length=100 --storage runs/long
    --corpus cath --set corpus.release=S35-v4_3_0 --set corpus.split=seed --data-dir DIR \
        --set model.width=128 --epochs 20 --storage runs/seed

Among counts and a transformer one row alone has S0's inputs; `recurrent_cells.py` can be asked
for them (`--set model.norm=time_std`) for all of its rows.
"""

from lmzoo.sweep import Point, Study, main

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
    samples=2,
    seeds=3,
    reference="unigram count",
)

if __name__ == "__main__":
    main(STUDY)
