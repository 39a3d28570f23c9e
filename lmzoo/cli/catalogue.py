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
from lmzoo.lab.analysis.render import filled
from lmzoo.lab.cli.tables import AsJson, new_table
from lmzoo.train.pack_compatibility import reason_not_packable
from lmzoo.train.recipe import Recipe

Facts = dict[str, Any]
"""What a description says, as `--json` prints it."""
TASK = Task(vocab=1000, length=20, source_vocab=1000, source_length=20)
SIZES = f"V={TASK.vocab}, T={TASK.length}"
"""The sizes for which parameters are counted."""
COLUMNS = ("name", "aliases", "family", "score")
"""Facts of a row that `lmzoo list` shows in full."""

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
):
    """List every row of the zoo: name, aliases, family, kind of score, parameters, summary."""
    families = sorted({zoo.row(name).family for name in zoo.names()})
    if family and family not in families:
        raise UserError(f"no family {family!r}{near(family, families)}")
    # "" stands for all families.
    names = [name for name in zoo.names() if family in ("", zoo.row(name).family)]
    rows = [row_facts(zoo.row(name)) for name in names]
    if as_json:
        echo(json.dumps(rows, indent=1))
        return
    table = new_table()
    for column in COLUMNS:
        # Of a narrow terminal, the summary alone is shortened.
        width = max(len(_cell(row[column])) for row in rows)
        table.add_column(column, no_wrap=True, min_width=width)
    table.add_column("parameters", justify="right", no_wrap=True, min_width=10)
    table.add_column("summary", no_wrap=True, overflow="ellipsis")
    for row in rows:
        cells = [_cell(row[column]) for column in COLUMNS]
        count = ""
        if row["parameters"] is not None:
            count = f"{row['parameters']:,}"
        table.add_row(*cells, count, row["summary"])
    console = Console()
    if not console.is_terminal:
        console.width = 500  # a file has room for all columns
    console.print(table)
    console.print(f"{len(rows)} rows; parameters for {SIZES}", style="dim")


def _cell(value: str | list[str]) -> str:
    if isinstance(value, list):
        return " ".join(value)
    return value


def describe(
    name: Annotated[str, typer.Argument(help="A row, an id such as DLM46, a corpus, or text:FILE.")],
    fields: ModelSettings = None,
    as_json: AsJson = False,
):  # fmt: skip
    """Show a row: its default config, the search ranges of its fields, and its equations.

    With --set model.cell.cuts=[4], the equations of the cell, and what is cut, come first. For a corpus: its origin, its fields, and how its tokens are made; for text:FILE, fasta:FILE, pairs:FILE and stream:FILE, what is read, cut and left out.
    """
    settings = parse_settings(fields or [])
    if name == "recipe":
        form = "fields"
        facts = _recipe_facts()
    elif name.partition(":")[0] in CORPORA or Path(name).is_file():
        form = "fields"
        facts = _corpus_facts(name, settings)
    else:
        form = "row"
        facts = _description(zoo.row(name), settings)
    if as_json:
        echo(json.dumps(facts, indent=1, default=str))
        return
    config = json.dumps(facts.get("config"), indent=2)
    echo(filled(Path(__file__).with_name(f"{form}.txt"), **facts, sizes=SIZES, json=config))


def _description(row: Row, settings: Facts) -> Facts:
    """Return the facts of a row whose model has these settings."""
    fields = _model_fields(settings)
    facts = row_facts(row, **fields)
    facts["own_formula"] = OWN_FORMULAS.get(row.name)
    if row.model is None:
        return facts
    config = zoo.config(row.name, **fields)
    model = zoo.build(config, TASK)
    cell = []
    if settings:
        cell = _changed_cell(config, zoo.config(row.name))
    return facts | {
        "cell": cell,
        "state": describe_state(model),
        "not_packable": reason_not_packable(model),
        "config": to_dict(config),
        "search": _search(type(config)),
        "equations": list(equations(config)),
    }


def _model_fields(settings: Facts) -> Facts:
    """Return nested fields of the model; the paths may leave out "model."."""
    fields = {}
    for path, value in settings.items():
        # There is nothing else that can be set here.
        if not path.startswith("model."):
            path = f"model.{path}"
        fields[path] = value
    return nest_settings(fields, "model")


def _changed_cell(config: Any, default: Any) -> list[str]:
    """Return a cell's equations and cuts; an arrow marks what the default does not have."""
    cell = getattr(config, "cell", None)
    if not dataclasses.is_dataclass(cell):
        return []
    folders = [Path(str(sys.modules[type(cell).__module__].__file__)).parent]
    before = cell_equations(to_dict(default)["cell"], folders)
    lines = []
    for line in cell_equations(to_dict(config)["cell"], folders):
        mark = "→ "
        if line in before:
            mark = "  "
        lines.append(mark + line)
    return lines


def describe_state(model: LanguageModel) -> str:
    """Return what a model carries from token to token: "the last 4 tokens", "64 floats"."""
    window = model.context_length
    if window == 0:
        return "nothing"
    if window == 1:
        return "the last token"
    if window is not None:
        return f"the last {window} tokens"
    if model.state_size is None:
        return "grows with the sequence"
    return f"{model.state_size} floats"


def _recipe_facts() -> Facts:
    """Return the fields of a recipe, with their defaults and search ranges."""
    fields = dataclasses.asdict(Recipe())
    return {
        "name": "recipe",
        "summary": "of a training",
        "fields": {f"recipe.{field}": value for field, value in fields.items()},
        "search": _search(Recipe, "recipe."),
    }


def _search(kind: type, prefix: str = "") -> dict[str, str]:
    """Return the search ranges of a class of configs, as the command line writes them."""
    return {prefix + field: _range(bounds) for field, bounds in ranges(kind).items()}


def _range(bounds: Range) -> str:
    if isinstance(bounds, Choice):
        return ",".join(map(str, bounds.values))
    text = f"{bounds.low:g}:{bounds.high:g}"
    if bounds.log:
        text += ":log"
    return text


def _corpus_facts(name: str, settings: Facts) -> Facts:
    """Return what a corpus is; of a text of the user, what is read of it and what is lost."""
    if name not in CORPORA:
        fields = {path.removeprefix("corpus."): value for path, value in settings.items()}
        data = open_corpus(corpus_config(name, fields))
        return {"name": data.name, "summary": data.source, "facts": describe_data(data)}
    corpus = CORPORA[name]
    declared = dataclasses.fields(corpus.Config)
    texts = [str(sys.modules[corpus.__module__].__doc__).strip()]
    # Its vocabulary is made from the text.
    if any(field.name == "train_unk" for field in declared):
        texts.append(str(vocabulary.__doc__).strip())
    defaults = {}
    for field in declared:
        default = getattr(field.default, "default", field.default)  # of a pydantic field
        defaults[f"corpus.{field.name}"] = default
    summary = (corpus.__doc__ or "").strip()
    return {"name": name, "summary": summary, "fields": defaults, "texts": texts}


def equations(config: Any) -> Iterator[str]:
    """Yield the docstrings, with the equations, of a model config and of its parts."""
    part = PARTS.get(type(config), config)
    of_file = sys.modules[type(config).__module__].__doc__ or ""
    yield explanation(inspect.cleandoc(part.__doc__ or ""), of_file.strip())
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from equations(value)


def row_facts(row: Row, **fields: Any) -> Facts:
    """Return the facts of a row that `lmzoo list --json` prints, with these fields of its model."""
    names = ("name", "aliases", "family", "score", "document", "source", "summary", "model")
    facts: Facts = {name: getattr(row, name) for name in names}
    facts |= dict.fromkeys(("parameters", "unused_parameters", "state_size"))
    facts["aliases"] = list(row.aliases)
    # A technique is listed, but cannot be built.
    if row.model is not None:
        built = zoo.build(zoo.config(row.name, **fields), TASK)
        facts["parameters"] = sum(p.numel() for p in built.parameters())
        facts["unused_parameters"] = built.unused_parameters
        facts["state_size"] = built.state_size
    return facts
