"""`lmzoo list` and `lmzoo describe`: the rows of the zoo, and what a corpus is."""

import dataclasses
import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from lmzoo import zoo
from lmzoo.base.command_line import nest_settings, parse_settings
from lmzoo.base.config import to_dict
from lmzoo.base.docstrings import cell_equations, explanation
from lmzoo.base.errors import UserError, near
from lmzoo.base.registry import PARTS, Row
from lmzoo.base.search_space import Choice, Range, ranges
from lmzoo.base.streams import echo
from lmzoo.cli.common import ModelSettings
from lmzoo.contract import LanguageModel, Task
from lmzoo.data import vocabulary
from lmzoo.data.corpus import CORPORA, corpus_config, describe_data, open_corpus
from lmzoo.lab.cli.tables import AsJson, new_table
from lmzoo.train.pack_compatibility import reason_not_packable
from lmzoo.train.recipe import Recipe

MODEL = "model"
TASK = Task(vocab=1000, length=20, source_vocab=1000, source_length=20)
"""The sizes for which parameters are counted."""


OWN_FORMULAS = {
    "interpolated_bigram": "text of S0: model.weights=uniform model.unigram=free",
    "gru": "S3: model.cell.reset=input; S4: model.cell.reset=before",
    "lstm_peephole": "Gers & Schmidhuber 2000: model.cell.peephole=diagonal",
    "positional_encoding": "S3: model.positions=concat",
    "hamming_emission": "S1: model.emission.codes=free",
    "seq2seq_dot_attention": "S3: model.folded=false",
}
"""Options that hold a document's own formula, of rows whose default is another one."""


def list_rows(
    as_json: AsJson = False,
    family: Annotated[str, typer.Option(help="Only the rows of this family.")] = "",
) -> None:
    """List every row of the zoo: name, aliases, family, kind of score, parameters, summary."""
    families = sorted({zoo.row(name).family for name in zoo.names()})
    if family and family not in families:
        raise UserError(f"no family {family!r}{near(family, families)}")
    names = [name for name in zoo.names() if family in ("", zoo.row(name).family)]
    rows = [row_facts(zoo.row(name)) for name in names]
    if as_json:
        echo(json.dumps(rows, indent=1))
        return
    table, columns = new_table(), ("name", "aliases", "family", "score")
    cells = [
        [{**row, "aliases": " ".join(row["aliases"])}[name] for name in columns] for row in rows
    ]
    for name, column in zip(columns, zip(*cells, strict=True), strict=True):
        table.add_column(name, no_wrap=True, min_width=max(map(len, column)))
    table.add_column("parameters", justify="right", no_wrap=True, min_width=10)
    table.add_column("summary", no_wrap=True, overflow="ellipsis")
    for row, own in zip(rows, cells, strict=True):
        count = f"{row['parameters']:,}" if row["parameters"] is not None else ""
        table.add_row(*own, count, row["summary"])
    console = Console()
    if not console.is_terminal:
        console.width = 500  # a file has room for all columns
    console.print(table)
    console.print(f"{len(rows)} rows; parameters for V={TASK.vocab}, T={TASK.length}", style="dim")


def describe(
    name: Annotated[str, typer.Argument(help="A row, an id such as DLM46, a corpus, or text:FILE.")],
    fields: ModelSettings = None,
) -> None:  # fmt: skip
    """Show a row: its default config, the search ranges of its fields, and its equations.

    With --set model.cell.cuts=[4], the equations of the cell, and what is cut, come first. For a corpus: its origin, its fields, and how its tokens are made; for text:FILE, fasta:FILE, pairs:FILE and stream:FILE, what is read, cut and left out.
    """
    settings = parse_settings(fields or [])
    if name in CORPORA:
        _describe_corpus(name)
        return
    if name == "recipe":
        _describe_recipe()
        return
    if name.partition(":")[0] in CORPORA:
        _describe_text(name, settings)
        return
    row = zoo.row(name)
    facts = row_facts(row)
    console = Console(highlight=False)
    console.print(f"[bold]{row.name}[/] {' '.join(row.aliases)}  {row.summary}")
    console.print(f"family {row.family}, score {row.score or '—'}, source {row.source}")
    if row.name in OWN_FORMULAS:
        console.print(f"own formula of {OWN_FORMULAS[row.name]}")
    if row.model is None:
        return
    config = zoo.config(row.name, **_model_fields(settings))
    if settings:
        _print_cell(console, config, zoo.config(row.name))
    count, unused = facts["parameters"], facts["unused_parameters"]
    size = f"{count:,} parameters for V={TASK.vocab}, T={TASK.length}"
    console.print(size + (f"; no score depends on {unused:,} of them" if unused else ""))
    model = zoo.build(config, TASK)
    console.print(f"state between steps: {describe_state(model)}")
    reason = reason_not_packable(model)
    console.print(f"packed training: {f'no, {reason}' if reason else 'yes'}")
    console.print_json(data=to_dict(config))
    for field, search_range in ranges(type(config)).items():
        console.print(f"search {field}: {_range(search_range)}")
    for text in equations(config):
        console.print(f"\n{text}", markup=False, soft_wrap=True)


def _model_fields(settings: dict[str, Any]) -> dict[str, Any]:
    """Return nested fields of the model; the paths may leave out "model."."""
    prefixes = {path: "" if path.startswith(f"{MODEL}.") else f"{MODEL}." for path in settings}
    return nest_settings({prefixes[path] + path: value for path, value in settings.items()}, MODEL)


def _print_cell(console: Console, config: Any, default: Any) -> None:
    """Print a cell's equations and cuts; an arrow marks what the default does not have."""
    cell = getattr(config, "cell", None)
    if not dataclasses.is_dataclass(cell):
        return
    folders = [Path(str(sys.modules[type(cell).__module__].__file__)).parent]
    before, after = (cell_equations(to_dict(c)["cell"], folders) for c in (default, config))
    for line in after:
        console.print(f"{'  ' if line in before else '→ '}{line}", markup=False, soft_wrap=True)


def describe_state(model: LanguageModel) -> str:
    """Return what a model carries from token to token: "the last 4 tokens", "64 floats"."""
    window, size = model.context_length, model.state_size
    if window is not None:
        return ("nothing", "the last token")[window] if window < 2 else f"the last {window} tokens"
    return "grows with the sequence" if size is None else f"{size} floats"


def _describe_recipe() -> None:
    console = Console(highlight=False)
    for field, value in dataclasses.asdict(Recipe()).items():
        searched = ranges(Recipe).get(field)
        text = f"; search {_range(searched)}" if searched else ""
        shown = "none" if value is None else f"{value:g}" if isinstance(value, float) else value
        console.print(f"recipe.{field}={shown}{text}", markup=False)


def _range(bounds: Range) -> str:
    if isinstance(bounds, Choice):
        return ",".join(map(str, bounds.values))
    return f"{bounds.low:g}:{bounds.high:g}{':log' if bounds.log else ''}"


def _describe_corpus(name: str) -> None:
    console, corpus = Console(highlight=False), CORPORA[name]
    console.print(f"[bold]{name}[/] {(corpus.__doc__ or '').strip()}")
    fields = dataclasses.fields(corpus.Config)
    texts = [str(sys.modules[corpus.__module__].__doc__).strip()]
    if any(field.name == "train_unk" for field in fields):
        texts.append(str(vocabulary.__doc__).strip())
    for field in fields:
        default = getattr(field.default, "default", field.default)  # of a pydantic field
        console.print(f"corpus.{field.name}={default}", markup=False)
    for text in texts:
        console.print(f"\n{text}", markup=False, soft_wrap=True)


def _describe_text(spec: str, settings: dict[str, Any]) -> None:
    console = Console(highlight=False)
    fields = {path.removeprefix("corpus."): value for path, value in settings.items()}
    corpus = open_corpus(corpus_config(spec, fields))
    console.print(f"[bold]{corpus.name}[/] {corpus.source}")
    for line in describe_data(corpus):
        console.print(line, markup=False, soft_wrap=True)


def equations(config: Any) -> Iterator[str]:
    """Yield the docstrings, with the equations, of a model config and of its parts."""
    own = PARTS.get(type(config), config)
    whole = sys.modules[type(config).__module__].__doc__ or ""
    yield explanation(inspect.cleandoc(own.__doc__ or ""), whole.strip())
    for field in dataclasses.fields(config):
        part = getattr(config, field.name)
        if dataclasses.is_dataclass(part):
            yield from equations(part)


def row_facts(row: Row) -> dict[str, Any]:
    """Return the facts of a row that `lmzoo list --json` prints."""
    names = ("name", "aliases", "family", "score", "document", "source", "summary", "model")
    facts: dict[str, Any] = {name: getattr(row, name) for name in names}
    facts |= dict.fromkeys(("parameters", "unused_parameters", "state_size"))
    facts["aliases"] = list(row.aliases)
    if row.model is not None:
        built = zoo.build(zoo.config(row.name), TASK)
        facts["parameters"] = sum(p.numel() for p in built.parameters())
        facts["unused_parameters"] = built.unused_parameters
        facts["state_size"] = built.state_size
    return facts
