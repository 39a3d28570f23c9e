"""Find the runs that reproduce the rows of a published table of S0.

Two defects of the published code changed its numbers. Four variants of a run separate them:

    published     inputs divided by their standard deviation over time, gradients accumulated for an
                  epoch
    leaking       the same inputs, gradients cleared at every step
    accumulated   sound inputs, gradients accumulated for an epoch
    sound         neither

The published numbers are the mean over sentences of the mean loss on a held-out part, after 20 and
30 epochs. The runs have the same metric on the validation split at the last epoch up to 20, as a
mean over the confirm runs of one point with its t-interval. A diverged run has no loss and is
counted.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from published_rows import (
    KIND_OF_MODEL,
    LEAKING,
    PublishedRow,
    PublishedTable,
    matches_row,
)

from lmzoo.lab.analysis.formatting import format_value
from lmzoo.lab.analysis.load import StudyFolder
from lmzoo.lab.analysis.ranking import FIVE_GRAM
from lmzoo.lab.analysis.stored import stored_runs
from lmzoo.lab.analysis.study_parquet import SUFFIX, read_rows
from lmzoo.lab.statistics.intervals import mean_interval
from lmzoo.lab.store.records import CONFIG, parse_json

UNIGRAM = {"name": "ngram_count", "order": 1, "smoothing": "kneser_ney"}
VARIANTS = ("published", "leaking", "accumulated", "sound")
PUBLISHED_EPOCH = 20
"""Epoch of the first published column."""


class EndedRun(NamedTuple):
    """A confirm run that has ended."""

    config: dict[str, Any]
    loss: float | None
    """Mean over sentences of the mean loss at `epoch`; None for a diverged run."""
    epoch: int


def compare_with_published(
    table: PublishedTable, studies: Sequence[StudyFolder], *, any_corpus: bool = False
) -> pl.DataFrame:
    """Return one row per published row: the published numbers, and the runs of each variant.

    Columns: row, model, kind, e20, e30; for each variant `VARIANT` (the mean loss), `VARIANT_half`,
    `VARIANT_seeds`, `VARIANT_diverged`, `VARIANT_epoch`; `config`, the JSON of one run's config, of
    a sound run if there is one; `recipes`, the fields in which the recipe of the sound runs differs
    from that of the others; `unigram` and `kn5`, the losses of n-gram models on the same data.

    Args:
        table: the published table.
        studies: studies that may have runs of its rows.
        any_corpus: include runs on another corpus with the same unit. Their losses cannot be
            compared with the published ones, but the order of the rows can.
    """
    candidates = (
        run for study in studies for run in _ended_runs(study, table, any_corpus=any_corpus)
    )
    runs = _deduplicate(candidates)
    ngrams = _ngram_losses(runs)
    rows = [_row_cells(table, row, runs, ngrams) for row in table.rows()]
    return pl.DataFrame(rows, infer_schema_length=None)


def variant_of(config: Mapping[str, Any], row: PublishedRow) -> str:
    """Return which of the four variants a run is."""
    accumulates = config["recipe"].get("accumulate", "step") == "epoch"
    if row.model not in LEAKING:
        return "published" if accumulates else "sound"
    if config["model"].get("norm") == "time_std":
        return "published" if accumulates else "leaking"
    return "accumulated" if accumulates else "sound"


def _ended_runs(
    folder: StudyFolder, table: PublishedTable, *, any_corpus: bool
) -> Iterator[EndedRun]:
    """Yield the ended confirm runs that may belong to the table.

    Epochs after the last end belong to a budget that the run has not finished; they do not count.
    The first epoch counts even if it is after `PUBLISHED_EPOCH`: a count model has one epoch only,
    the last.
    """
    epoch = pl.col("epoch")
    ended = pl.col("status").is_in(["finished", "diverged"])
    ends = (
        folder.events.filter((pl.col("event") == "end") & ended)
        .group_by("run")
        .agg(end=epoch.max(), diverged=epoch.filter(pl.col("status") == "diverged").min())
    )
    valid = (
        folder.events.filter(pl.col("event") == "epoch")
        .join(ends, on="run")
        .filter(epoch <= pl.col("end"))
        .filter((epoch <= PUBLISHED_EPOCH) | (epoch == epoch.min().over("run")))
        .sort("epoch")
        .group_by("run")
        .agg(pl.col("valid_sentence").last(), epoch.last(), pl.col("diverged").last())
        .with_columns(diverged=(pl.col("diverged") <= PUBLISHED_EPOCH).fill_null(value=False))
        .filter(pl.col("diverged") | pl.col("valid_sentence").is_not_null())
        .collect()
    )
    confirm = {run for point in folder.study.get("chosen", {}).values() for run in point["runs"]}
    if folder.path.suffix == SUFFIX:
        rows = read_rows(folder.path)
        configs = {run: parse_json(content) for run, name, content in rows if name == CONFIG}
    else:
        configs = {run: config for run, config, _ in stored_runs(folder.path).runs}
    for row in valid.filter(pl.col("run").is_in(list(confirm))).sort("run").to_dicts():
        config = configs[row["run"]]
        same_data = config["corpus"]["name"] in table.corpora and config["length"] == table.length
        if same_data or (any_corpus and config["unit"] == table.unit):
            loss = None if row["diverged"] else row["valid_sentence"]
            yield EndedRun(config, loss, row["epoch"])


def _deduplicate(runs: Iterable[EndedRun]) -> list[EndedRun]:
    """Return each run once; of equal runs in several studies, the one with the most epochs."""
    unique: dict[str, EndedRun] = {}
    for run in runs:
        known = unique.get(run.config["run"])
        if known is None or known.epoch < run.epoch:
            unique[run.config["run"]] = run
    return list(unique.values())


def _ngram_losses(runs: Sequence[EndedRun]) -> dict[str, dict[str, float]]:
    """Return fingerprint of the data -> losses of the unigram and the Kneser-Ney 5-gram."""
    losses: dict[str, dict[str, float]] = {}
    for config, loss, _ in runs:
        for name, fields in (("unigram", UNIGRAM), ("kn5", FIVE_GRAM)):
            if fields.items() <= config["model"].items() and loss is not None:
                losses.setdefault(config["fingerprint"], {})[name] = loss
    return losses


def _row_cells(
    table: PublishedTable,
    row: PublishedRow,
    runs: Sequence[EndedRun],
    ngrams: Mapping[str, Mapping[str, float]],
) -> dict[str, Any]:
    own = [run for run in runs if matches_row(run.config["model"], row, table)]
    cells: dict[str, Any] = {
        "row": row.label, "model": row.model, "kind": KIND_OF_MODEL.get(row.model, "exact"),
        "e20": row.e20, "e30": row.e30,
    }  # fmt: skip
    config, recipes = None, {}
    for name in VARIANTS:
        chosen = _runs_of_one_setting([run for run in own if variant_of(run.config, row) == name])
        losses = [run.loss for run in chosen if run.loss is not None]
        mean, low, _ = mean_interval(np.array(losses, np.float64))
        cells[name] = float(mean) if losses else None
        cells[f"{name}_half"] = float(mean - low) if len(losses) > 1 else None
        cells[f"{name}_seeds"] = len(chosen)
        cells[f"{name}_diverged"] = len(chosen) - len(losses)
        cells[f"{name}_epoch"] = max((run.epoch for run in chosen), default=None)
        if chosen:
            config = chosen[0].config
            recipes[name] = config["recipe"]
    ngram = ngrams.get(config["fingerprint"], {}) if config else {}
    return {
        **cells,
        "config": json.dumps(config) if config else None,
        "recipes": _recipe_differences(recipes),
        "unigram": ngram.get("unigram"),
        "kn5": ngram.get("kn5"),
    }


def _recipe_differences(recipes: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the fields in which the sound recipe differs, except `accumulate`; None if not run."""
    other = recipes.get("accumulated", recipes.get("published"))
    if other is None or "sound" not in recipes:
        return None
    return ", ".join(
        f"{field} {format_value(value)} instead of {format_value(other.get(field))}"
        for field, value in recipes["sound"].items()
        if field != "accumulate" and value != other.get(field)
    )


def _runs_of_one_setting(runs: Sequence[EndedRun]) -> list[EndedRun]:
    """Return the runs of the setting with the most epochs, then of the widest, then the first.

    All returned losses are of one epoch, the last of any of these runs.
    """
    if not runs:
        return []
    best = max(runs, key=lambda run: (run.epoch, run.config["model"]["width"]))
    keys = ("model", "recipe", "corpus")
    same = [run for run in runs if all(run.config[key] == best.config[key] for key in keys)]
    last = max((run.epoch for run in same if run.loss is not None), default=None)
    return [run for run in same if run.loss is None or run.epoch == last]
