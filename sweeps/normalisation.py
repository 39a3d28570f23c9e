"""Is normalising "on the unit sphere" what makes a model good?

S0 found its normaliser to be worth more than any architecture: LSTM and lagged mixture
with it (DLM23, DLM22) far below the same without (DLM12, DLM20). What its code divides by
is the spread over the whole sentence, the words to come included: `time_std`. Beside it the
same spread over the past alone, and the normalisers of one vector. zoo.md 1.5 to 1.7.
"""

from lmzoo.sweep import Point, Study, main

NORMS = ("rms", "l2", "std", "time_std", "time_std_causal")
ROWS = {"LSTM": ("DLM12", "DLM23"), "four lags": ("DLM20", "DLM22")}

STUDY = Study(
    name="normalisation",
    question='Is normalising "on the unit sphere" what makes a model good?',
    points=tuple(
        point
        for name, (bare, normalised) in ROWS.items()
        for point in (
            Point(f"{name}, none", bare),
            *(Point(f"{name}, {norm}", normalised, {"norm": norm}) for norm in NORMS),
        )
    ),
    samples=2,
    seeds=3,
    reference="LSTM, none",
)

if __name__ == "__main__":
    main(STUDY)
