"""`lmzoo embeddings`: norms, neighbours and analogies of the token embeddings of a run.

With --context, the vectors of the tokens of texts in their context (ELMo) are written to a file:
`tokens_0` (n), `vectors_0` (n, R), `tokens_1` and so on.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.console import Console

from lmzoo.cli.common import AsJson, DataDir, ModelSettings, new_table
from lmzoo.cli.opened import open_models
from lmzoo.cli.run_names import RUN_HELP, RUNS, Runs
from lmzoo.command_line import nest_settings, parse_settings
from lmzoo.contract import LanguageModel
from lmzoo.data.corpus import Corpus
from lmzoo.data.text import encode_sentence
from lmzoo.data.vocabulary import Vocabulary
from lmzoo.errors import UserError, writing
from lmzoo.inspect.word_vectors import analogy, counts_of, neighbours, norm_bands, token_vectors
from lmzoo.models.embedding.elmo import Elmo
from lmzoo.streams import echo


def show_embeddings(
    name: Annotated[str, typer.Argument(metavar="RUN_OR_ROW", help=f"{RUN_HELP}, or a row (its latest run, or else its initial weights).")],
    near: Annotated[list[str] | None, typer.Option(metavar="WORD", help="Show the nearest words; repeatable.")] = None,
    analogies: Annotated[list[str] | None, typer.Option("--analogy", metavar="A:B:C", help="Show which words are to C as B is to A; repeatable.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Number of words of each answer.")] = 5,
    context: Annotated[list[str] | None, typer.Option(metavar="TEXT", help="Write the vector of each token of TEXT in its context (elmo); repeatable.")] = None,
    out: Annotated[Path, typer.Option(help="File of the vectors of --context.")] = Path("vectors.npz"),
    corpus: Annotated[str, typer.Option(help="Corpus for a row that is not trained.")] = "captions",
    data_dir: DataDir = None,
    fields: ModelSettings = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the initial weights of a row.")] = 0,
    runs: Runs = RUNS,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Show the norms of the token embeddings by frequency, and nearest words and analogies."""
    rows = {name: (name, nest_settings(parse_settings(fields or []), "model"))}
    opened = open_models(rows, runs=runs, corpus=corpus, data_dir=data_dir, seed=seed)
    ((_, (model, data, *_)),) = opened
    if context:
        _write_context(model, data, context, out)
        return
    vectors, words = token_vectors(model), data.vocabulary
    bands, correlation = norm_bands(vectors, counts_of(data))
    answers: dict[str, list[tuple[str, float]]] = {}
    for word in near or []:
        (one,) = _ids(words, [word])
        answers[word] = _words(words, neighbours(vectors, one, count))
    for text in analogies or []:
        parts = text.split(":")
        if len(parts) != 3:
            raise UserError(f"--analogy {text!r} is not of the form A:B:C, such as man:men:dog")
        answers[text] = _words(words, analogy(vectors, *_ids(words, parts), count=count))
    if as_json:
        norms = {"bands": [asdict(band) for band in bands], "correlation": correlation}
        echo(json.dumps({"norms": norms, "answers": answers}))
        return
    console = Console()
    table = new_table("count of the token", right=("tokens", "mean norm", "spread"))
    for band in bands:
        seen = f"{band.most:,}" if band.most == band.least else f"{band.most:,} to {band.least:,}"
        table.add_row(seen, str(band.tokens), f"{band.mean:.3f}", f"{band.spread:.3f}")
    console.print(table)
    console.print(f"correlation of the norm with log count: {correlation:.3f}")
    for question, answer in answers.items():
        listed = ", ".join(f"{word} {cosine:.2f}" for word, cosine in answer)
        console.print(f"{question}: {listed}", markup=False, highlight=False)


@torch.no_grad()
def _write_context(model: LanguageModel, corpus: Corpus, texts: list[str], out: Path) -> None:
    if not isinstance(model, Elmo):
        raise UserError(f"--context: {model.name} has no vectors of tokens in context; use elmo")
    arrays: dict[str, Any] = {}
    for i, text in enumerate(texts):
        tokens, lengths = encode_sentence(corpus, text)
        arrays[f"tokens_{i}"] = np.array([corpus.vocabulary.tokens[t] for t in tokens[0].tolist()])
        arrays[f"vectors_{i}"] = model.eval().represent(tokens, lengths)[0].numpy()
    with writing(out), out.open("wb") as file:  # numpy would add a suffix to a name without one
        np.savez(file, **arrays)
    echo(str(out))


def _ids(vocabulary: Vocabulary, words: list[str]) -> list[int]:
    """Return the ids of words; raise a UserError for the first unknown one."""
    for word in words:
        if word not in vocabulary.ids:
            raise UserError(f"{word!r} is not in the vocabulary; choose a word of the corpus")
    return [vocabulary.ids[word] for word in words]


def _words(vocabulary: Vocabulary, found: list[tuple[int, float]]) -> list[tuple[str, float]]:
    return [(vocabulary.tokens[i], cosine) for i, cosine in found]
