"""Is normalising "on the unit sphere" what makes a model good?

In S0 the normaliser matters more than the architecture: LSTM and lagged mixture score far lower
with it (DLM23, DLM22) than without (DLM12, DLM20). Its code divides by the spread over the whole
sentence, future words included: `time_std`. The study compares it with the spread over the past
only, `time_std_causal`, and with normalisers of a single vector.
"""

from lmzoo import Point, Study, main

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
    seeds=3,
    reference="LSTM, none",
)

if __name__ == "__main__":
    main(STUDY)
