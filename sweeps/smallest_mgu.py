"""Is the smallest minimal gated unit that a walk found as good as the whole one?

`lmzoo.shrink` cuts what is negligible, one part after the other. This study compares the cell where
the walk ended with the whole one, with seeds of its own, at another width or on another corpus:

    --set model.width=64
    --corpus multi30k_en --epochs 2 --samples 5 --seeds 6
"""

from lmzoo import FloatRange, Point, Study, main

CUTS = ["gate_bias", "input_to_candidate", "candidate_bias"]

STUDY = Study(
    name="smallest_mgu",
    question="Is the smallest minimal gated unit as good as the whole one?",
    points=(
        Point("whole", "DLM46"),
        Point("smallest", "DLM46", {"cell.cuts": CUTS}),
    ),
    fields={"model.emission": "vector", "recipe.schedule": "cosine"},
    search={"recipe.lr": FloatRange(0.01, 0.1, log=True)},
    samples=8,
    seeds=32,
    seed=100,  # not those of the walk, which are 1 to 4
)

if __name__ == "__main__":
    main(STUDY)
