"""What does each architecture make of characters?

The rows of S0's character table (Multi30k, T=100, K=90), of which DLM50 and DLM40 had no
number. By default on the characters of the embedded captions, at a quarter of S0's width; its
own setting, with our recipe and with S0's:

    --corpus multi30k_en_char --set corpus.split=seed --set model.width=128 --epochs 20
    --corpus multi30k_en_char --set corpus.split=seed --set model.width=128 --epochs 20 \
        --recipe published --set model.norm=time_std --search-space recipe.lr=off \
        --storage runs/published --points "LSTM,LSTM E=64,MGU,MGU W=5,tanh W=1,tanh W=5,\
        MGRU wild type,MGRU {4;6},GRU-VAE,tanh-VAE"

The latter divides inputs by their spread over time, and leaks. The transformer has no such
normaliser, so it is not among the points named; ask for it without `model.norm`, into a store of
its own. VAEs report a bound, which ranks apart. DLM47 with {4;6} is the MGRU that S0 found
best on words.
"""

from lmzoo.sweep import Point, Study, main

K = {"emission.components": 90}
MGRU = {"cell": {"name": "mgru", "mutations": [4, 6]}}

STUDY = Study(
    name="characters",
    question="What does each architecture make of characters?",
    points=(
        Point("LSTM", "DLM26", K),
        Point("LSTM E=64", "DLM26", {**K, "width": 64}),
        Point("MGU", "DLM46", K),
        Point("MGU W=5", "DLM46", {**K, "starts": 5}),
        Point("tanh W=1", "DLM29", {**K, "starts": 1}),
        Point("tanh W=5", "DLM29", {**K, "starts": 5}),
        Point("MGRU wild type", "DLM47", K),
        Point("MGRU {4;6}", "DLM47", {**K, **MGRU}),
        Point("minGPT W=8 D=6", "DLM40", {"attention.heads": 8, "layers": 6}),
        Point("GRU-VAE", "DLM51", K),
        Point("tanh-VAE", "DLM50", K),
    ),
    corpus="captions_char",
    fields={"model.width": 32},
    epochs=5,
    samples=2,
    seeds=3,
    reference="LSTM",
)

if __name__ == "__main__":
    main(STUDY)
