"""Do cells change rank between AdamW and Muon?

Eight cells in a network of one layer, at equal parameters, each with its own learning rate. One
study trains all weights with AdamW, the other those of linear maps with Muon. Captions are the
default; a text:

    python sweeps/optimisers.py optimisers_muon
    python sweeps/optimisers.py optimisers_muon --corpus shakespeare_char --set corpus.blocks=800 \
        --set recipe.batch=20 --epochs 3 --data-dir DIR
"""

from lmzoo import FloatRange, Point, Study, main

CELLS = {
    "tanh": "rnn_lm",
    "LSTM": "lstm_lm",
    "GRU": "gru",
    "MGU": "DLM46",
    "minGRU": "min_gru",
    "GLA": "gla",
    "Gated DeltaNet": "gated_deltanet",
    "Mamba": "mamba",
}


def study(optimiser: str) -> Study:
    """Return the comparison of the cells under one optimiser."""
    return Study(
        name=f"optimisers_{optimiser}",
        question=f"Which recurrent cell is best with {optimiser}?",
        points=tuple(Point(cell, row) for cell, row in CELLS.items()),
        fields={
            "model.emission": "vector",
            "recipe.optimiser": optimiser,
            "recipe.weight_decay": 0.1,
            "recipe.schedule": "cosine",
        },
        search={"recipe.lr": FloatRange(2e-3, 1e-1, log=True)},
        parameters=12_000,
        samples=4,
        seeds=4,
        reference="LSTM",
    )


STUDIES = (study("adamw"), study("muon"))

if __name__ == "__main__":
    main(*STUDIES)
