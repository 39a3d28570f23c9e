"""Which recurrent cell is best, and does the answer depend on the text?

In S0 the MGRU with switches 4 and 6 beats LSTM and GRU on words, and loses to them on characters
and proteins. Here all cells have the same mixture emission, and no inputs leak. Other corpora:

    --corpus multi30k_en --set model.width=48 --set recipe.batch=280
    --corpus multi30k_en_char
    --corpus cath
"""

from lmzoo import Point, Study, main

STUDY = Study(
    name="recurrent_cells",
    question="Which recurrent cell is best, and does the answer depend on the text?",
    points=(
        Point("tanh", "DLM29"),
        Point("LSTM", "DLM26"),
        Point("GRU", "DLM44"),
        Point("MGU", "DLM46"),
        Point("MGU {4}", "DLM46", {"cell.cuts": [4]}),
        Point("MGRU", "DLM47"),
        Point("MGRU {4;6}", "DLM47", {"cell": {"name": "mgru", "mutations": [4, 6]}}),
    ),
    fields={"model.emission.components": 64},
    seeds=3,
    reference="LSTM",
)

if __name__ == "__main__":
    main(STUDY)
