# pyright: strict
# ruff: noqa: T201
"""A user's script with the documented short forms; `make check` reads its types."""

import numpy as np
import torch

import lmzoo


def train(settings: dict[str, float], seed: int) -> dict[str, float]:
    generator = np.random.default_rng(seed)
    loss = settings["lr"] + float(generator.normal()) * 1e-3
    return {"valid": loss, "test": loss}


model = lmzoo.build("DLM46", "captions", width=64, recipe=lmzoo.Recipe(lr=0.03))
for record in model.stream(epochs=3):
    print(record["epoch"], record["valid_token"])
model.fit(3, progress=False)
loss: float = model.test().token
score: float = model.score("a man in a red hat is running")
texts: list[str] = model.sample(3, temperature=0.8)
print(loss, score, texts, model.corpus.vocabulary.tokens[:3])
again = lmzoo.load_run(model.save("runs/mine"))
print(again.to_frame().height, lmzoo.zoo.names()[:3])

points = (
    lmzoo.Point("MGU", "DLM46"),
    lmzoo.Point("no carry", "DLM46", {"cell.cuts": ["carry"]}),
    lmzoo.Point("function", train, {"lr": 0.1}, search={"lr": (1e-3, 1e-1)}),
    lmzoo.Point("program", lmzoo.Command("python train.py --lr {lr} --seed {seed}")),
)
study = lmzoo.Study(
    name="carry",
    question="Does the unit need its carry?",
    points=points,
    search={
        "recipe.lr": (1e-3, 1e-1),
        "model.width": [64, 128],
        "recipe.batch": lmzoo.IntRange(8, 32),
        "recipe.clip": lmzoo.FloatRange(0.1, 10, log=True),
        "recipe.init": lmzoo.Choice(("default", "xavier")),
    },
)
ranking = lmzoo.run_study(study, epochs=2, samples=2, seeds=2)
print(ranking["label"].to_list(), ranking.columns)
module = torch.nn.GRU(4, 4)
for name in lmzoo.cuts(module, torch.rand(3, 2, 4)):
    print(name)
print(lmzoo.judge("results.csv", by="variant", metric="loss").height)
print(lmzoo.rank(study).height, lmzoo.runs("carry").height, lmzoo.curves("runs/carry").height)
print(lmzoo.audit(model.module, vocab=50).faults)
