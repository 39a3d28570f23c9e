"""What do the switches of the minimal gated recurrent unit buy?

The sets of switches that S0 published for its MGRU (DLM47): Bernoulli candidates (4), centred gate
and output (6), and switches that undo or replace them.
"""

from lmzoo import Point, Study, main

PUBLISHED = ([4], [5], [4, 6], [4, 6, 7], [4, 6, 8], [4, 6, 9], [4, 6, 10], [4, 6, 11])

STUDY = Study(
    name="mgru_ablation",
    question="What do the switches of the minimal gated recurrent unit buy?",
    points=(
        Point("wild type", "DLM47"),
        *(
            Point(",".join(map(str, s)), "DLM47", {"cell": {"name": "mgru", "mutations": s}})
            for s in PUBLISHED
        ),
    ),
    fields={"model.emission.components": 64},
)

if __name__ == "__main__":
    main(STUDY)
