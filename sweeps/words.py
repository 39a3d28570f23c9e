"""What does each row of the published word table cost where inputs do not leak?

The rows of S0's table of Multi30k words (T=20, K=400): the minimal gated unit's cuts, the
MGRU's switches, a tanh recurrence, and one VAE, whose bound ranks apart. By default on the
words of the embedded captions, at a quarter of S0's width; its own setting, with sound inputs
and as published, into two stores, which `analysis/published.py` reads:

    --corpus multi30k_en --set corpus.split=seed --set model.width=128 \
        --set model.emission.components=400 --epochs 20
    --corpus multi30k_en --set corpus.split=seed --set model.width=128 \
        --set model.emission.components=400 --epochs 20 \
        --recipe published --set model.norm=time_std --search-space recipe.lr=off \
        --storage runs/published
"""

from lmzoo.sweep import Point, Study, main
from sweeps.gru_ablation import STUDY as MGU
from sweeps.mgru_ablation import PUBLISHED as SWITCHES

MGRU = tuple(
    Point(f"MGRU {{{';'.join(map(str, s))}}}", "DLM47", {"cell": {"name": "mgru", "mutations": s}})
    for s in SWITCHES
)

STUDY = Study(
    name="words",
    question="What does each row of the published word table cost where inputs do not leak?",
    points=(
        *MGU.points,
        *MGRU,
        Point("tanh", "DLM29"),
        Point("VAE cut 0,4,5", "DLM51", {"cell": {"name": "mgu", "cuts": [0, 4, 5]}}),
    ),
    fields={"model.width": 32, "model.emission.components": 64},
    samples=2,
    seeds=3,
    reference="wild type",
)

if __name__ == "__main__":
    main(STUDY)
