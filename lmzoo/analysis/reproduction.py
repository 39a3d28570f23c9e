"""Printed rows beside our runs of them: one frame for each of S0's tables.

What two things did to the published numbers is told apart by four ways to run a row:

    published   inputs divided by their deviation over time, gradients kept for an epoch
    leaking     the same inputs, gradients cleared at every step
    kept        sound inputs, gradients kept for an epoch
    sound       neither

S0's numbers are the mean of sentences' means on its held-out part, after 20 epochs and 30; ours
are the same metric on the validation split at the last epoch up to 20, over the confirm runs of
one point, with their t-interval. A diverged run has no loss and is counted.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from lmzoo.analysis.baseline_comparison import COUNTED
from lmzoo.analysis.load import Folder
from lmzoo.analysis.published_rows import KINDS, LEAKING, Row, Table, is_row
from lmzoo.analysis.statistics import mean_interval
from lmzoo.store.records import CONFIG, read_json

UNIGRAM = {"name": "ngram_count", "order": 1, "smoothing": "kneser_ney"}
WAYS = ("published", "leaking", "kept", "sound")
EPOCH = 20
"""Where S0's first column stands."""


class Measured(NamedTuple):
    """A run that has ended."""

    config: dict[str, Any]
    loss: float | None
    """Mean of sentences' means at `epoch`; None where it diverged."""
    epoch: int


def reproduction(
    table: Table, studies: Sequence[Folder], *, any_corpus: bool = False
) -> pl.DataFrame:
    """One row per printed row: what was printed, and what each way to run it gave.

    Columns: row, model, kind, e20, e30; for each way `WAY` (the mean), `WAY_half`, `WAY_seeds`,
    `WAY_diverged`, `WAY_epoch`; `config`, the JSON of one run's config, sound if there is one;
    `recipes`, in which fields of their recipe the sound runs differ from the published or kept;
    `unigram` and `kn5`, what counting has on the same data.

    Args:
        table: which of S0's.
        studies: those that may hold runs of its rows.
        any_corpus: take runs on another corpus of the same unit, where losses cannot be
            compared but the order of rows may be.
    """
    found = (run for folder in studies for run in _runs(folder, table, any_corpus=any_corpus))
    runs = _once(found)
    counts = _counted(runs)
    return pl.DataFrame(
        [_beside(table, row, runs, counts) for row in table.rows()], infer_schema_length=None
    )


def way(config: Mapping[str, Any], row: Row) -> str:
    """Which of the four ways a run is."""
    leaks = config["model"].get("norm") == "time_std"
    kept = config["recipe"].get("accumulate", "step") == "epoch"
    if row.model not in LEAKING:
        return "published" if kept else "sound"
    return {(True, True): "published", (True, False): "leaking", (False, True): "kept"}.get(
        (leaks, kept), "sound"
    )


def _runs(folder: Folder, table: Table, *, any_corpus: bool) -> Iterator[Measured]:
    """The confirm runs that may belong to the table, of those that have ended.

    What a run did after its last end is of a budget that it has not finished. The first epoch
    counts even behind `EPOCH`: counting has but one, the last.
    """
    epoch = pl.col("epoch")
    ended = pl.col("status").is_in(["finished", "diverged"])
    ends = (
        folder.events.filter((pl.col("event") == "end") & ended)
        .group_by("run")
        .agg(end=epoch.max(), lost=epoch.filter(pl.col("status") == "diverged").min())
    )
    valid = (
        folder.events.filter(pl.col("event") == "epoch")
        .join(ends, on="run")
        .filter(epoch <= pl.col("end"))
        .filter((epoch <= EPOCH) | (epoch == epoch.min().over("run")))
        .sort("epoch")
        .group_by("run")
        .agg(pl.col("valid_sentence").last(), epoch.last(), pl.col("lost").last())
        .with_columns(lost=(pl.col("lost") <= EPOCH).fill_null(value=False))
        .filter(pl.col("lost") | pl.col("valid_sentence").is_not_null())
        .collect()
    )
    confirmed = {r for chosen in folder.study.get("chosen", {}).values() for r in chosen["runs"]}
    for row in valid.filter(pl.col("run").is_in(list(confirmed))).sort("run").to_dicts():
        config = read_json(folder.path / row["run"] / CONFIG)
        here = config["corpus"]["name"] in table.corpora and config["length"] == table.length
        if here or (any_corpus and config["unit"] == table.unit):
            yield Measured(config, None if row["lost"] else row["valid_sentence"], row["epoch"])


def _once(runs: Iterable[Measured]) -> list[Measured]:
    """Each run once, though several studies hold it: where it went furthest."""
    found: dict[str, Measured] = {}
    for run in runs:
        known = found.get(run.config["run"])
        if known is None or known.epoch < run.epoch:
            found[run.config["run"]] = run
    return list(found.values())


def _counted(runs: Sequence[Measured]) -> dict[str, dict[str, float]]:
    """Body of data -> what the unigram and the Kneser-Ney 5-gram have on it."""
    found: dict[str, dict[str, float]] = {}
    for config, loss, _ in runs:
        for name, counted in (("unigram", UNIGRAM), ("kn5", COUNTED)):
            if counted.items() <= config["model"].items() and loss is not None:
                found.setdefault(config["fingerprint"], {})[name] = loss
    return found


def _beside(
    table: Table, row: Row, runs: Sequence[Measured], counts: Mapping[str, Mapping[str, float]]
) -> dict[str, Any]:
    own = [run for run in runs if is_row(run.config["model"], row, table)]
    cells: dict[str, Any] = {
        "row": row.label, "model": row.model, "kind": KINDS.get(row.model, "exact"),
        "e20": row.e20, "e30": row.e30,
    }  # fmt: skip
    shown, recipes = None, {}
    for name in WAYS:
        found = _one_point([run for run in own if way(run.config, row) == name])
        losses = [run.loss for run in found if run.loss is not None]
        mean, low, _ = mean_interval(np.array(losses, np.float64))
        cells[name] = float(mean) if losses else None
        cells[f"{name}_half"] = float(mean - low) if len(losses) > 1 else None
        cells[f"{name}_seeds"] = len(found)
        cells[f"{name}_diverged"] = len(found) - len(losses)
        cells[f"{name}_epoch"] = max((run.epoch for run in found), default=None)
        if found:
            shown = found[0].config
            recipes[name] = shown["recipe"]
    count = counts.get(shown["fingerprint"], {}) if shown else {}
    return {
        **cells,
        "config": json.dumps(shown) if shown else None,
        "recipes": _recipes(recipes),
        "unigram": count.get("unigram"),
        "kn5": count.get("kn5"),
    }


def _recipes(of: Mapping[str, Mapping[str, Any]]) -> str | None:
    """What the sound recipe has otherwise than S0's, but for the gradients kept; None: not run."""
    theirs = of.get("kept", of.get("published"))
    if theirs is None or "sound" not in of:
        return None
    return ", ".join(
        f"{field} {_short(value)} for {_short(theirs.get(field))}"
        for field, value in of["sound"].items()
        if field != "accumulate" and value != theirs.get(field)
    )


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _one_point(found: Sequence[Measured]) -> list[Measured]:
    """The runs of one setting: of the most epochs, then of the widest, then the first given.

    Its losses are those of one epoch, the last that any of its runs has.
    """
    if not found:
        return []
    best = max(found, key=lambda run: (run.epoch, run.config["model"]["width"]))
    alike = ("model", "recipe", "corpus")
    own = [run for run in found if all(run.config[k] == best.config[k] for k in alike)]
    last = max((run.epoch for run in own if run.loss is not None), default=None)
    return [run for run in own if run.loss is None or run.epoch == last]
