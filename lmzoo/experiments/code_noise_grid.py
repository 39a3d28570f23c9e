"""Does the linear autoencoder compress best because nothing disturbs its code?

S0: without noise DLM55 reconstructs best, with noise on its code it collapses. Here the same
autoencoder is trained without noise, with noise σ, and with a learned Gaussian, and
each is then scored under noise of every size, in absolute terms and as a share of the
spread of its own codes (`lmzoo/experiments/code_noise.py`).

One model scored many times is no comparison of points, so this script stands beside the
engine; its trainings are ordinary runs, resumable, and trained once. zoo.md 2.4.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from statistics import mean, stdev
from typing import Annotated, Any

import torch
import typer
from rich.console import Console

from lmzoo import zoo
from lmzoo.data.corpus import CORPORA, Corpus
from lmzoo.data.open import open_corpus, read_spec
from lmzoo.experiments.code_noise import codes, loss_under_noise, spread
from lmzoo.models.latent.flat import FlatAutoencoder
from lmzoo.store.records import RunFolder, is_pending
from lmzoo.train.recipe import Recipe
from lmzoo.train.run import Run, run_config

TRAINED: Mapping[str, Mapping[str, Any]] = {
    "no noise": {},
    "σ = 0.3": {"noise_std": 0.3},
    "σ = 1": {"noise_std": 1.0},
    "σ = 3": {"noise_std": 3.0},
    "learned Gaussian": {"gaussian": True},
}
ABSOLUTE = (0.0, 0.3, 1.0, 3.0)
SHARES = (0.1, 0.3, 1.0)


def trained(
    fields: Mapping[str, Any], corpus: Corpus, spec: Mapping[str, Any], store: Path, epochs: int,
    seed: int,
) -> FlatAutoencoder:  # fmt: skip
    """The autoencoder at its best validation epoch, trained as far as it is not yet."""
    described = run_config(zoo.config("DLM55", **fields), Recipe(), corpus, spec, seed)
    folder = RunFolder(store / described["run"])
    with closing(Run(folder, described, corpus)) as one:
        for _ in one.train(epochs):
            pass
        if is_pending(folder, epochs, test=True):
            one.test()
            one.end("finished")
        model = one.training.model
        model.load_state_dict(one.training.best_weights)
    assert isinstance(model, FlatAutoencoder)
    return model


def measure(model: FlatAutoencoder, corpus: Corpus) -> list[float]:
    """The spread of the codes, then the losses under each noise of the table."""
    apart = spread(codes(model, corpus.test))
    sigmas = [*ABSOLUTE, *(share * apart for share in SHARES)]
    return [apart, *(loss_under_noise(model, corpus.test, sigma) for sigma in sigmas)]


def table(measured: Mapping[str, list[list[float]]]) -> Iterator[str]:
    """Means over seeds, as lines of Markdown."""
    heads = ["trained with", "spread", *(f"σ={s:g}" for s in ABSOLUTE)]
    heads += [f"{share:g} spread" for share in SHARES]
    yield "| " + " | ".join(heads) + " |"
    yield "| --- |" + " ---: |" * (len(heads) - 1)
    for label, seeds in measured.items():
        yield "| " + " | ".join([label, *map(_cell, zip(*seeds, strict=True))]) + " |"


def _cell(values: tuple[float, ...]) -> str:
    return f"{mean(values):.3f}" + (f" ±{stdev(values):.3f}" if len(values) > 1 else "")


def main(
    corpus: Annotated[str, typer.Option(help="captions, multi30k_en, text:PATH, ...")] = "captions",
    data_dir: Annotated[Path | None, typer.Option(help="Where the corpus's files lie.")] = None,
    width: Annotated[int, typer.Option(min=2, help="E, the size of the code.")] = 32,
    components: Annotated[int, typer.Option(min=1, help="K of the emission.")] = 64,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of training.")] = 20,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each; ± is their spread.")] = 3,
    storage: Annotated[Path, typer.Option(help="Folder of the run stores.")] = Path("runs"),
) -> None:
    """Train the linear autoencoder with and without noise, score it under noise."""
    torch.set_num_threads(1)
    spec = CORPORA.write(CORPORA.read(read_spec(corpus)))
    data = open_corpus(spec, data_dir)
    store = storage / f"code_noise-{data.name}"
    sizes = {"width": width, "emission": {"components": components}}
    say, measured = Console(stderr=True, highlight=False), {}
    for label, noise in TRAINED.items():
        for seed in range(seeds):
            with say.status(f"trained with {label}, seed {seed}"):
                model = trained({**sizes, **noise}, data, spec, store, epochs, seed)
                measured.setdefault(label, []).append(measure(model, data))
            say.print(f"trained with {label}, seed {seed}: done")
    sys.stdout.write("\n".join(table(measured)) + "\n")
