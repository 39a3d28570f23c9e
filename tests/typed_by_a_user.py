# pyright: strict
# ruff: noqa: T201
"""A user's script with the documented short forms; `make check` reads its types."""

import numpy as np
import torch

import lmzoo


def train(settings: dict[str, float], seed: int) -> dict[str, float]:
    generator = np.random.default_rng(seed)
    noise = float(generator.normal())
    loss = settings["lr"] + 1e-3 * noise
    return {"valid": loss, "test": loss}


recipe = lmzoo.Recipe(lr=0.03)
model = lmzoo.build("DLM46", "captions", width=64, recipe=recipe)
for record in model.stream(epochs=3):
    print(record["epoch"], record["valid_token"])
model.fit(3, progress=False)
loss: float = model.test().token
score: float = model.score("a man in a red hat is running")
texts: list[str] = model.sample(3, temperature=0.8)
print(loss, score, texts, model.corpus.vocabulary.tokens[:3])
folder = model.save("runs/mine")
again = lmzoo.load_run(folder)
print(again.to_frame().height, lmzoo.zoo.names()[:3])

command = lmzoo.Command("python train.py --lr {lr} --seed {seed}")
points = (
    lmzoo.Point("MGU", "DLM46"),
    lmzoo.Point("no carry", "DLM46", {"cell.cuts": ["carry"]}),
    lmzoo.Point("function", train, {"lr": 0.1}, search={"lr": (1e-3, 1e-1)}),
    lmzoo.Point("program", command),
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
inputs = torch.rand(3, 2, 4)
for name in lmzoo.cuts(module, inputs):
    print(name)
judged = lmzoo.judge("results.csv", by="variant", metric="loss")
ranked = lmzoo.rank(study)
runs = lmzoo.runs("carry")
curves = lmzoo.curves("runs/carry")
print(judged.height, ranked.height, runs.height, curves.height)
audit = lmzoo.audit(model.module, vocab=50)
print(audit.faults)
