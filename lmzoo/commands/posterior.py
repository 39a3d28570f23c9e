"""`posterior`: what a trained run's discrete latent was, as numbers and pictures."""

from pathlib import Path
from typing import Annotated

import typer

from lmzoo.contract import END, START
from lmzoo.data.corpus import Corpus
from lmzoo.data.vocabulary import SPECIALS
from lmzoo.diagnostics.posterior import as_json, largest, posterior, prior, require_latent
from lmzoo.errors import UserError
from lmzoo.record import write_json
from lmzoo.trained import open_run

SHOWN = 20
"""Values of the latent in a picture; the file of numbers has all."""


def write_posterior(
    run: Annotated[Path, typer.Argument(help="A run's folder, as `train` prints it.")],
    sentences: Annotated[int, typer.Option(min=1, help="How many test sentences.")] = 4,
    text: Annotated[str | None, typer.Option(help="A sentence of your own instead.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write.  [default: RUN/posterior]")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where the corpus's files lie.")] = None,
) -> None:  # fmt: skip
    """Show what each token came from: P(latent | sentence so far), and the latent's prior."""
    # Drawing is loaded here: no other command should wait for it.
    from lmzoo.diagnostics.picture import posterior_picture, prior_picture, save_png

    trained = open_run(run, data_dir)
    model, corpus = trained.model, trained.corpus
    require_latent(model)
    rows = test_rows(corpus, sentences) if text is None else [encoded(text, corpus)]
    folder = out or run / "posterior"
    folder.mkdir(parents=True, exist_ok=True)
    title = f"{trained.row} on {corpus.name}: P({model.latent} | tokens so far)"
    told = []
    for number, ids in enumerate(rows, 1):
        found = posterior(model, ids, [corpus.vocabulary.tokens[i] for i in ids])
        sentence = corpus.vocabulary.decode(ids)
        told.append({"sentence": sentence, **as_json(found)})
        path = folder / f"sentence_{number}.png"
        save_png(posterior_picture(largest(found, SHOWN), title, sentence), path)
        typer.echo(f"{path}  {sentence}")
    before = prior(model)
    if before is not None:
        path = folder / "prior.png"
        heading = f"{trained.row} on {corpus.name}"
        save_png(prior_picture(before, heading, f"prior of the {model.latent}"), path)
        typer.echo(path)
    summary = {
        "row": trained.row, "run": trained.config["run"], "corpus": corpus.name,
        "latent": model.latent, "sentences": told,
        "prior": None if before is None else as_json(before),
    }  # fmt: skip
    write_json(folder / "posterior.json", summary)
    typer.echo(folder / "posterior.json")


def test_rows(corpus: Corpus, count: int) -> list[list[int]]:
    """The first sentences of the test split, without pads."""
    part = corpus.test
    pairs = zip(part.tokens[:count].tolist(), part.lengths[:count].tolist(), strict=True)
    return [ids[:length] for ids, length in pairs]


def encoded(text: str, corpus: Corpus) -> list[int]:
    """The user's sentence as the corpus would encode it.

    Raises:
        UserError: it is empty, too long, or has a token that the corpus does not know.
    """
    vocabulary = corpus.vocabulary
    tokens = text.split() if vocabulary.joiner else list(text)
    unknown = [t for t in tokens if t not in vocabulary.ids or t in SPECIALS]
    if unknown:
        raise UserError(
            f"--text: corpus {corpus.name} does not know {', '.join(map(repr, unknown))}; "
            f"it knows {len(vocabulary) - len(SPECIALS)} others of the unit {corpus.unit}"
        )
    if not tokens:
        raise UserError("--text is empty; give a sentence, as in --text 'a man is sleeping'")
    end = [END] if bool((corpus.test.tokens == END).any()) else []
    ids = [START, *vocabulary.encode(tokens), *end]
    if len(ids) > corpus.task.length:
        raise UserError(
            f"--text has {len(tokens)} tokens; the run has places for "
            f"{corpus.task.length - 1 - len(end)}"
        )
    return ids
