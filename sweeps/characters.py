"""What does each architecture make of characters?

The rows of S0's character table (Multi30k, T=100, K=90), which has no number for DLM50 and DLM40.
By default the corpus is the characters of the built-in captions, at a quarter of S0's width. S0's
corpus and width, with our recipe and with S0's:

    --corpus multi30k_en_char --set corpus.split=seed --set model.width=128 --epochs 20
    --corpus multi30k_en_char --set corpus.split=seed --set model.width=128 --epochs 20 \
        --recipe published --set model.norm=time_std --search-space recipe.lr=off \
        --out runs/published --points "LSTM,LSTM E=64,MGU,MGU W=5,tanh W=1,tanh W=5,\
        MGRU wild type,MGRU {4;6},GRU-VAE,tanh-VAE"

S0's normaliser, `time_std`, divides inputs by their spread over the whole sequence, so they leak.
The transformer does not have it: run it without `model.norm`, into another store. The VAEs report
a bound, which is ranked separately. DLM47 with {4;6} is the best MGRU of S0 on words.
"""

from lmzoo import Point, Study, main

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
    seeds=3,
    reference="LSTM",
)

if __name__ == "__main__":
    main(STUDY)
