"""`lmzoo posterior`: the latents, attention maps and boundaries of sentences of a trained run.

Writes a JSON file and PNG plots for each kind that the model has.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from torch import Tensor

from lmzoo.base.errors import UserError, writing
from lmzoo.base.foreign import below
from lmzoo.base.streams import echo
from lmzoo.cli.common import DataDir, open_run
from lmzoo.cli.sample import encode_source, encode_text
from lmzoo.contract import END, START
from lmzoo.data.corpus import Corpus
from lmzoo.inspect.posterior import (
    HasAttentionMaps,
    as_json,
    attention_maps,
    boundaries,
    has_boundaries,
    keep_largest,
    posterior,
    prior,
)
from lmzoo.lab.cli.run_names import RUN_HELP, Runs, find_run
from lmzoo.lab.store.records import RUNS
from lmzoo.train.trained import TrainedRun

PLOTTED_VALUES = 20
"""Values of the latent in a plot; the JSON file has all of them."""


@dataclass(frozen=True)
class Sentence:
    """A sentence as ids and as text, with its source if the row reads one."""

    ids: list[int]
    tokens: list[str]
    text: str
    sources: tuple[Tensor, ...]
    source_tokens: list[str]


Facts = dict[str, Any]


def write_posterior(
    name: Annotated[str, typer.Argument(metavar="RUN_OR_ROW", help=f"{RUN_HELP}, or a row (its latest run).")],
    sentences: Annotated[int, typer.Option(min=1, help="Number of test sentences.")] = 4,
    text: Annotated[str | None, typer.Option(help="Use this sentence instead of test sentences.")] = None,
    source: Annotated[str | None, typer.Option(help="Source of the sentence in --text, for rows that read one.")] = None,
    out: Annotated[Path | None, typer.Option(help="Output folder. Default: RUN/posterior.")] = None,
    data_dir: DataDir = None,
    runs: Runs = RUNS,
) -> None:  # fmt: skip
    """Write the posterior and prior of the latent, the attention maps, and the segment boundaries."""
    run = find_run(name, runs)
    trained = open_run(run, data_dir)
    model = trained.model
    kinds = (
        *([_write_latent] if model.latent else []),
        *([_write_attention] if isinstance(model, HasAttentionMaps) else []),
        *([_write_boundaries] if has_boundaries(model) else []),
    )
    if not kinds:
        raise UserError(
            f"{model.name} has no discrete latent, attention map or boundary; use a mixture (DLM5, "
            "DLM30, or a recurrent row with model.emission=mixture), a decoder (gpt, "
            "seq2seq_dot_attention) or hm_lstm"
        )
    chosen = list(_sentences(trained, sentences, text, source))
    folder = out or run / "posterior"
    with writing(folder / "plot"):
        for write in kinds:
            write(folder, trained, chosen)


def _write_latent(folder: Path, trained: TrainedRun, sentences: list[Sentence]) -> None:
    # Imported here, as altair is slow to import and optional.
    from lmzoo.inspect.plots import plot_posterior, plot_prior, save_png

    model, run_title = trained.model, f"{trained.row_name} on {trained.corpus.name}"
    title = f"{run_title}: P({model.latent} | tokens so far)"

    def plot(sentence: Sentence) -> tuple[Facts, Any]:
        table = posterior(model, sentence.ids, sentence.tokens)
        shown = keep_largest(table, PLOTTED_VALUES)
        return as_json(table), plot_posterior(shown, title, sentence.text)

    facts: Facts = {"latent": model.latent, "prior": None}
    if (table := prior(model)) is not None:
        facts["prior"], path = as_json(table), folder / "prior.png"
        save_png(plot_prior(table, run_title, f"prior of the {model.latent}"), path)
        echo(path)
    _write(folder, "posterior", "sentence", trained, sentences, plot, **facts)


def _write_attention(folder: Path, trained: TrainedRun, sentences: list[Sentence]) -> None:
    from lmzoo.inspect.plots import plot_attention_maps

    title = f"{trained.row_name} on {trained.corpus.name}: attention weights"

    def plot(sentence: Sentence) -> tuple[Facts, Any]:
        given = sentence.ids, sentence.tokens, sentence.sources, sentence.source_tokens
        maps = attention_maps(trained.model, *given)
        facts = {"axes": ["layer", "head", *maps.axes], "weight": maps.weight.tolist()}
        return {**asdict(maps), **facts}, plot_attention_maps(maps, title, sentence.text)

    _write(folder, "attention", "attention", trained, sentences, plot)


def _write_boundaries(folder: Path, trained: TrainedRun, sentences: list[Sentence]) -> None:
    from lmzoo.inspect.plots import plot_boundaries

    title = f"{trained.row_name} on {trained.corpus.name}: segment boundaries"

    def plot(sentence: Sentence) -> tuple[Facts, Any]:
        found = boundaries(trained.model, sentence.ids, sentence.tokens)
        facts = {"axes": ["layer", "token"], **asdict(found), "ended": found.ended.int().tolist()}
        return facts, plot_boundaries(found, title, sentence.text)

    _write(folder, "boundaries", "boundaries", trained, sentences, plot)


def _write(
    folder: Path,
    name: str,
    stem: str,
    trained: TrainedRun,
    sentences: list[Sentence],
    plot: Callable[[Sentence], tuple[Facts, Any]],
    **facts: Any,
) -> None:
    """Write a plot of each sentence, and the numbers of all to a JSON file."""
    from lmzoo.inspect.plots import save_png

    written = []
    for number, sentence in enumerate(sentences, 1):
        own, chart = plot(sentence)
        written.append({"sentence": sentence.text, **own})
        path = below(folder, f"{stem}_{number}.png")
        save_png(chart, path)
        echo(f"{path}  {sentence.text}")
    run = {"row": trained.row_name, "run": trained.config["run"], "corpus": trained.corpus.name}
    text = json.dumps({**run, **facts, "sentences": written}, indent=1, allow_nan=False)
    path = below(folder, f"{name}.json")
    path.write_text(text + "\n")
    echo(path)


def _sentences(
    trained: TrainedRun, count: int, text: str | None, source: str | None
) -> Iterator[Sentence]:
    """Yield the first test sentences, or the user's sentence."""
    corpus, conditional = trained.corpus, trained.model.conditional
    user_source = encode_source(trained, source) if source is not None else ()
    if conditional and (text is None) is not (source is None):
        raise UserError(f"{trained.row_name} reads a source: give both --text and --source")
    test = corpus.test
    lengths = test.lengths[:count].tolist()
    rows = [ids[:n] for ids, n in zip(test.tokens[:count].tolist(), lengths, strict=True)]
    rows = rows if text is None else [_encode_text(text, corpus)]
    for number, ids in enumerate(rows):
        sources = user_source
        if conditional and not user_source:
            source_row, length = (column[number : number + 1] for column in test.sources)
            sources = (source_row[:, : int(length)], length)
        tokens, decoded = [corpus.vocabulary.tokens[i] for i in ids], corpus.vocabulary.decode(ids)
        if not sources or corpus.source_vocabulary is None:
            yield Sentence(ids, tokens, decoded, (), [])
            continue
        source_ids = sources[0][0].tolist()
        decoded = f"{corpus.source_vocabulary.decode(source_ids)}  →  {decoded}"
        source_tokens = [corpus.source_vocabulary.tokens[i] for i in source_ids]
        yield Sentence(ids, tokens, decoded, sources, source_tokens)


def _encode_text(text: str, corpus: Corpus) -> list[int]:
    """Encode the user's sentence as the corpus does; refuse one that is empty or too long."""
    end = [END] if bool((corpus.test.tokens == END).any()) else []
    room = corpus.task.length - 1 - len(end)
    ids = encode_text("--text", text, corpus.vocabulary, corpus.name, room)
    if not ids:
        raise UserError("--text is empty; give a sentence, as in --text 'a man is sleeping'")
    return [START, *ids, *end]
