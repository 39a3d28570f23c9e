"""Which part of the LSTM matters?

The eight variants of Greff et al. 2015 (arXiv:1503.04069), each with one difference from the LSTM
with peepholes, and JANET (arXiv:1804.04849), which keeps the forget gate alone. The paper finds
that the forget gate and the output activation matter most, and that coupled gates and no peepholes
do no harm; it has music, speech and handwriting, and no language.

    python sweeps/lstm_variants.py lstm_variants          # words
    python sweeps/lstm_variants.py lstm_variants_char     # characters
"""

from lmzoo import Point, Study, main

VARIANTS = {
    "no input gate": "input_gate",
    "no forget gate": "forget_gate",
    "no output gate": "output_gate",
    "no input activation": "input_activation",
    "no output activation": "output_activation",
    "coupled gates": "coupled",
    "no peepholes": "peepholes",
}
CELL = {"name": "lstm_peephole", "peephole": "diagonal"}


def study(name: str, corpus: str) -> Study:
    """Return the study of a corpus."""
    return Study(
        name=name,
        question="Which part of the LSTM matters?",
        points=(
            Point("LSTM", "lstm_peephole", {"cell": CELL}),
            *(
                Point(label, "lstm_peephole", {"cell": {**CELL, "cuts": [cut]}})
                for label, cut in VARIANTS.items()
            ),
            Point(
                "full gate recurrence", "lstm_peephole", {"cell": {**CELL, "gate_recurrence": True}}
            ),
            Point("JANET", "janet"),
        ),
        corpus=corpus,
        fields={"recipe.schedule": "cosine"},
    )


STUDIES = (study("lstm_variants", "captions"), study("lstm_variants_char", "captions_char"))

if __name__ == "__main__":
    main(*STUDIES)
