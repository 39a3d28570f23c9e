"""What does a discrete latent parent or state buy over an n-gram at equal parameters?

The study compares latent parents (which earlier token), latent states (which soft class) and slots
(soft pointers) with log-bilinear n-grams and one gated recurrence. Each model is as wide as the
parameter budget allows.
"""

from lmzoo import Point, Study, main

ROWS = {
    "bigram (log-bilinear)": ("DLM1", {"window": 1}),
    "5-gram (log-bilinear)": ("DLM1", {"window": 4}),
    "uniform parent": ("DLM2", {}),
    "parent with positional prior": ("DLM5", {}),
    "typed parent": ("DLM6", {}),
    "unigram mixture (control)": ("DLM9", {}),
    "soft classes": ("DLM10", {}),
    "soft classes, aligned parent": ("DLM13", {}),
    "local HMM": ("DLM15", {}),
    "latent CRF, one token": ("DLM16", {}),
    "latent CRF, two tokens": ("DLM17", {}),
    "prototypes or rotation": ("DLM18", {}),
    "four lags": ("DLM20", {}),
    "four lags on the sphere": ("DLM22", {}),
    "mean-field slots": ("DLM30", {}),
    "chained slots": ("DLM31", {}),
    "MGU (recurrent)": ("DLM46", {}),
}

STUDY = Study(
    name="mixtures",
    question="What does a discrete latent parent or state buy over an n-gram at equal parameters?",
    points=tuple(Point(label, row, fields) for label, (row, fields) in ROWS.items()),
    parameters=20_000,
    seeds=3,
    reference="bigram (log-bilinear)",
)

if __name__ == "__main__":
    main(STUDY)
