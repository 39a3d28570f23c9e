"""How small a vector holds a sentence, and what does noise on it cost?

The study compares the autoencoders of S0 at its widths (E=128 and 20). Variants of the linear one
have fewer mixture components, noise of standard deviation σ on the vector, or a learned Gaussian.
Scores are reconstruction losses, which can be compared only with each other. The corpora of S0:

    --corpus multi30k_en --set corpus.split=seed --set model.emission.components=400
    --corpus multi30k_en_char --set corpus.split=seed --set model.emission.components=90
"""

from lmzoo import Point, Study, main

PUBLISHED = {"linear": "DLM55", "GRU": "DLM53", "MLP": "DLM56", "tanh": "DLM54"}
NOISES = (0.1, 0.3, 1.0)

STUDY = Study(
    name="autoencoders",
    question="How small a vector holds a sentence, and what does noise on it cost?",
    points=(
        *(Point(f"{kind} E=128", row, {"width": 128}) for kind, row in PUBLISHED.items()),
        *(Point(f"{kind} E=20", row, {"width": 20}) for kind, row in PUBLISHED.items()),
        *(
            Point(f"linear E=20 K={k}", "DLM55", {"width": 20, "emission.components": k})
            for k in (8, 16)
        ),
        *(
            Point(f"linear E=20 σ={noise}", "DLM55", {"width": 20, "noise_std": noise})
            for noise in NOISES
        ),
        Point("linear E=20 Gaussian", "DLM55", {"width": 20, "gaussian": True}),
    ),
    fields={"model.emission.components": 64},
    seeds=3,
    reference="linear E=20",
)

if __name__ == "__main__":
    main(STUDY)
