"""What does each row of the published word table cost where inputs do not leak?

The rows of S0's table of Multi30k words (T=20, K=400): cuts of the minimal gated unit, switches of
the MGRU, a tanh recurrence, and one VAE, whose bound is ranked separately. By default the corpus is
the words of the built-in captions, at a quarter of S0's width. S0's corpus and width, with sound
inputs and as published, in the two stores that `tools/published_table.py` reads:

    --corpus multi30k_en --set corpus.split=seed --set model.width=128 \
        --set model.emission.components=400 --epochs 20
    --corpus multi30k_en --set corpus.split=seed --set model.width=128 \
        --set model.emission.components=400 --epochs 20 \
        --recipe published --set model.norm=time_std --search-space recipe.lr=off \
        --out runs/published
"""

from lmzoo import Point, Study, main

CUTS = (*([i] for i in range(8)), [0, 2, 4, 5], [0, 4, 5], [2, 3, 4, 5])
SWITCHES = ([4], [5], [4, 6], [4, 6, 7], [4, 6, 8], [4, 6, 9], [4, 6, 10], [4, 6, 11])

STUDY = Study(
    name="words",
    question="What does each row of the published word table cost where inputs do not leak?",
    points=(
        Point("wild type", "DLM46"),
        *(Point(f"cut {','.join(map(str, c))}", "DLM46", {"cell.cuts": c}) for c in CUTS),
        *(
            Point(
                f"MGRU {{{';'.join(map(str, s))}}}",
                "DLM47",
                {"cell": {"name": "mgru", "mutations": s}},
            )
            for s in SWITCHES
        ),
        Point("tanh", "DLM29"),
        Point("VAE cut 0,4,5", "DLM51", {"cell": {"name": "mgu", "cuts": [0, 4, 5]}}),
    ),
    fields={"model.width": 32, "model.emission.components": 64},
    seeds=3,
    reference="wild type",
)

if __name__ == "__main__":
    main(STUDY)
