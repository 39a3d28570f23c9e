r"""Reconstruction loss of a flat autoencoder whose code is disturbed by noise σ.

    z = encode(s)        NLL(σ) = mean over ε ~ N(0, 1) of −log P(s | z + σ ε), per token
    spread               root mean square over channels of z's standard deviation over sentences

σ is also given as a share of the spread, because an encoder that doubles z halves the effect of σ.
The noise with which a model was trained is not applied here. All sequences and all σ share the
same draws of ε.

`main` trains the linear autoencoder without noise, with noise σ, and with a learned Gaussian, and
evaluates each of them under every noise. The trainings are ordinary runs and are made only once.

Source: S0, in which DLM55 reconstructs best without noise and "collapses" with noise; Vincent et
al. 2008.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from statistics import mean, stdev
from typing import Annotated, Any

import torch
import typer
from jaxtyping import Float
from rich.console import Console
from torch import Tensor

from lmzoo import zoo
from lmzoo.data.batches import gather_batch
from lmzoo.data.corpus import CORPORA, Corpus, Sequences, open_corpus, parse_spec
from lmzoo.functional.noise import normal, shared_uniforms
from lmzoo.functional.token_scores import mask_scores
from lmzoo.models.latent.flat import FlatAutoencoder
from lmzoo.store.records import RunFolder, is_pending
from lmzoo.train.recipe import Recipe
from lmzoo.train.run import Run
from lmzoo.train.run_config import run_config

BATCH = 500
"""Sequences evaluated at once."""

TRAINING_NOISE: Mapping[str, Mapping[str, Any]] = {
    "no noise": {},
    "σ = 0.3": {"noise_std": 0.3},
    "σ = 1": {"noise_std": 1.0},
    "σ = 3": {"noise_std": 3.0},
    "learned Gaussian": {"gaussian": True},
}
"""Config fields of each trained model, by the label of its table row."""
SIGMAS = (0.0, 0.3, 1.0, 3.0)
"""Noise of the evaluations."""
SPREAD_SHARES = (0.1, 0.3, 1.0)
"""Noise of the evaluations as a share of the spread."""


@torch.no_grad()
def encode_sequences(model: FlatAutoencoder, part: Sequences) -> Float[Tensor, "N E"]:
    """Return the code z of each sequence, without noise."""
    model.eval()
    return torch.cat([model.encode(batch.tokens, batch.lengths) for batch in _batches(part)])


def spread(z: Float[Tensor, "N E"]) -> float:
    """Return the root mean square over channels of the standard deviation of codes."""
    return float(z.double().var(0).mean().sqrt())


@torch.no_grad()
def loss_under_noise(
    model: FlatAutoencoder, part: Sequences, sigma: float, *, draws: int = 8
) -> float:
    """Return NLL(σ) in nats per scored token."""
    model.eval()
    width = model.config.width
    eps = normal(shared_uniforms((draws, 1, width), model.embedding.weight))
    nll = 0.0
    for batch in _batches(part):
        y = model.decode(model.encode(batch.tokens, batch.lengths) + sigma * eps)
        scores = model.emission.log_prob(
            y[:, :, : batch.tokens.shape[1] - 1], batch.tokens[:, 1:], model.embedding.weight
        )
        nll -= float(mask_scores(scores.mean(0), batch.lengths).double().sum())
    return nll / part.num_scored


def _batches(part: Sequences) -> Iterator[Sequences]:
    for rows in torch.arange(len(part)).split(BATCH):
        yield gather_batch(part, rows)


def train_autoencoder(
    fields: Mapping[str, Any], corpus: Corpus, spec: Mapping[str, Any], store: Path, epochs: int,
    seed: int,
) -> FlatAutoencoder:  # fmt: skip
    """Train the linear autoencoder, or continue its run, and return its best weights."""
    config = run_config(zoo.config("DLM55", **fields), Recipe(), corpus, spec, seed)
    folder = RunFolder(store / config["run"])
    with closing(Run(folder, config, corpus)) as run:
        for _ in run.train(epochs):
            pass
        if is_pending(folder, epochs, test=True):
            run.test()
            run.end("finished")
        model = run.training.model
        model.load_state_dict(run.training.best_weights)
    assert isinstance(model, FlatAutoencoder)
    return model


def evaluate_noise(model: FlatAutoencoder, corpus: Corpus) -> list[float]:
    """Return the columns of the table: the spread of the codes and the loss under each noise."""
    code_spread = spread(encode_sequences(model, corpus.test))
    sigmas = [*SIGMAS, *(share * code_spread for share in SPREAD_SHARES)]
    return [code_spread, *(loss_under_noise(model, corpus.test, sigma) for sigma in sigmas)]


def format_table(columns_by_seed: Mapping[str, list[list[float]]]) -> Iterator[str]:
    """Yield the lines of a Markdown table with means over seeds."""
    heads = ["trained with", "spread", *(f"σ={s:g}" for s in SIGMAS)]
    heads += [f"{share:g} spread" for share in SPREAD_SHARES]
    yield "| " + " | ".join(heads) + " |"
    yield "| --- |" + " ---: |" * (len(heads) - 1)
    for label, seeds in columns_by_seed.items():
        yield "| " + " | ".join([label, *map(_cell, zip(*seeds, strict=True))]) + " |"


def _cell(values: tuple[float, ...]) -> str:
    return f"{mean(values):.3f}" + (f" ±{stdev(values):.3f}" if len(values) > 1 else "")


def main(
    corpus: Annotated[str, typer.Option(help="captions, multi30k_en, text:PATH, ...")] = "captions",
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the corpus files.")] = None,
    width: Annotated[int, typer.Option(min=2, help="Size E of the code.")] = 32,
    components: Annotated[int, typer.Option(min=1, help="Components K of the emission.")] = 64,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of training.")] = 20,
    seeds: Annotated[
        int, typer.Option(min=1, help="Runs per row; ± is their standard deviation.")
    ] = 3,
    storage: Annotated[Path, typer.Option(help="Folder of the run stores.")] = Path("runs"),
) -> None:
    """Train the linear autoencoder with and without noise and evaluate it under noise."""
    torch.set_num_threads(1)
    spec = CORPORA.dump(CORPORA.parse(parse_spec(corpus)))
    data = open_corpus(spec, data_dir)
    store = storage / f"code_noise-{data.name}"
    sizes = {"width": width, "emission": {"components": components}}
    console, columns = Console(stderr=True, highlight=False), {}
    for label, noise in TRAINING_NOISE.items():
        for seed in range(seeds):
            with console.status(f"trained with {label}, seed {seed}"):
                model = train_autoencoder({**sizes, **noise}, data, spec, store, epochs, seed)
                columns.setdefault(label, []).append(evaluate_noise(model, data))
            console.print(f"trained with {label}, seed {seed}: done")
    sys.stdout.write("\n".join(format_table(columns)) + "\n")
