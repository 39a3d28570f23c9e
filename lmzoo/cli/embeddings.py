"""`lmzoo embeddings`: norms, neighbours and analogies of the token embeddings of a run."""

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from lmzoo.base.errors import UserError
from lmzoo.base.streams import echo
from lmzoo.cli.common import DataDir, ModelSettings
from lmzoo.cli.subject import CorpusName, RunOrRow, Seed, open_subject
from lmzoo.data.vocabulary import Vocabulary
from lmzoo.inspect.word_vectors import analogy, counts_of, neighbours, norm_bands, token_vectors
from lmzoo.lab.cli.options import AsJson, new_table
from lmzoo.lab.cli.run_names import Runs, warn_untrained
from lmzoo.lab.store.studies import RUNS


def show_embeddings(
    name: RunOrRow,
    near: Annotated[list[str] | None, typer.Option(metavar="WORD", help="Show the nearest words; repeatable.")] = None,
    analogies: Annotated[list[str] | None, typer.Option("--analogy", metavar="A:B:C", help="Show which words are to C as B is to A; repeatable.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Number of words of each answer.")] = 5,
    corpus: CorpusName = "captions",
    data_dir: DataDir = None,
    fields: ModelSettings = None,
    seed: Seed = 0,
    runs: Runs = RUNS,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Show the norms of the token embeddings by frequency, and nearest words and analogies."""
    model, data, found, _ = open_subject(name, corpus, data_dir, fields, seed, runs)
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
    warn_untrained([] if found else [name])
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


def _ids(vocabulary: Vocabulary, words: list[str]) -> list[int]:
    """Return the ids of words; raise a UserError for the first unknown one."""
    for word in words:
        if word not in vocabulary.ids:
            raise UserError(f"{word!r} is not in the vocabulary; choose a word of the corpus")
    return [vocabulary.ids[word] for word in words]


def _words(vocabulary: Vocabulary, found: list[tuple[int, float]]) -> list[tuple[str, float]]:
    return [(vocabulary.tokens[i], cosine) for i, cosine in found]
