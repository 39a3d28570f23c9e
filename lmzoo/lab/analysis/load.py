"""Read a study's folder into one frame of runs and one of events, and make those of its curves.

    runs     one row per run: identity, point, stage, seed, kind of score, last status
    events   one row per (run, event, epoch): the lines of all records.ndjson; the last line wins

All record files are joined and parsed in one pass, and the number of lines of each file tells which
lines belong to which run. If a line is damaged (a run was killed while it wrote), the lines are
parsed one by one, and the damaged ones are left out and named. Folders without a config are left
out and named too.

`lmzoo/lab/store/records.py` documents the files. From these frames comes

    learning_curves   mean validation loss of a point's confirm runs by epoch, with its t-interval

Records hold minus a metric that is maximized. Its sign is turned here, once: all frames have the
metric as the program reported it.
"""

import itertools
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from polars import DataFrame, Float64, Int64, LazyFrame, Series, String, col, lit, when

from lmzoo.base.errors import UserError
from lmzoo.base.plain import Fields, FieldsDict, Texts
from lmzoo.base.streams import said
from lmzoo.lab.analysis.copies import copy_warnings, without_replaced
from lmzoo.lab.analysis.environments import environment_warnings
from lmzoo.lab.analysis.formatting import add_columns, asked_of, labels_of
from lmzoo.lab.analysis.stored import StoredRuns, packed_study, stored_runs
from lmzoo.lab.analysis.study_parquet import SUFFIX
from lmzoo.lab.statistics.intervals import mean_interval
from lmzoo.lab.store import records as files
from lmzoo.lab.store.address import open_store
from lmzoo.lab.store.labels import find_point, named_points
from lmzoo.lab.store.whole import read_fields

TYPES = {
    "text": String,
    "json": String,
    "number": Float64,
    "whole": Int64,
}


def _schema(table: str) -> pl.Schema:
    """Return the columns of a table of `read_fields`."""
    schema = pl.Schema()
    for name, kind in read_fields(table).items():
        schema[name] = TYPES[kind]
    return schema


RUN_SCHEMA = _schema("run")
"""Columns of the runs; model, corpus, setting and recipe are JSON, and environment: a list, as
recorded at the start and at the end. `program` is "function" or "command". `state_size` is null if
the state grows, `flops` if it is not known (`lmzoo/train/flops.py`). `status` and `ended`, the
epoch of the last end, are joined; they are null while a run has not ended."""
KEY = {"run": String, "event": String, "epoch": Int64}
EVENT_SCHEMA = pl.Schema(KEY | _schema("event"))
LOSSES = ("train_token", "valid_token", "valid_sentence", "token", "sentence")
"""Columns of events that have minus the metric, if it is maximized."""
TABLE_FILES = (files.CONFIG, files.RECORDS, files.STUDY, files.ABLATIONS)
"""Names of the files that tables are computed from."""
OTHER_REFERENCE = (
    "this is not the reference that the study asked for; if it was chosen because of its loss, "
    "differences from it look larger than they are"
)
PART = 1000
REMEDY = "run the sweep again, which writes it; else delete the folder"


class StudyFolder(NamedTuple):
    """The content of a study's folder."""

    study: FieldsDict
    """The content of `study.json`, with the labels of points for people (`named_points`)."""
    runs: LazyFrame
    events: LazyFrame
    damaged: Texts
    """What is left out: configs that are missing or damaged, lines that are not valid records."""
    path: Path
    """The folder, or the Parquet file; for a study in a bucket, a local copy of it."""
    address: Path
    """The folder, bucket or Parquet file that was read."""


def load_study(path: Path) -> StudyFolder:
    """Read a study from its folder, a bucket, or the Parquet file of its records.

    A `UserError` says that there is none, or that it or a run has another schema or numerics.
    """
    address = path
    is_file = str(path).endswith(SUFFIX)
    if is_file:
        content, stored = packed_study(path)
        study = _checked(content, path / files.STUDY)
    else:
        path = open_store(path).local_copy(TABLE_FILES)
        study = read_study(path)
        stored = stored_runs(path)
    with said(f"reading {stored.total:,} runs of {address}"):
        return _read(study, stored, path, address)


def _read(study: FieldsDict, stored: StoredRuns, path: Path, address: Path) -> StudyFolder:
    runs, events, damaged = _frames(study, stored, path)
    runs = _with_ends(runs, events)
    # An edit of a file that a program reads makes new runs; the old ones count no more.
    superseded = _superseded(study, runs, events)
    runs = runs.filter(~col("run").is_in(superseded))
    models = {point: json.loads(text) for point, text in runs.select("point", "model").iter_rows()}
    runs, events = _without_other_metrics(runs, events, models.values())
    copied, _ = read_events(without_replaced(path, stored.copies))
    if is_maximized(study):
        turned = -col(LOSSES) + 0.0  # not −0.0
        events = events.with_columns(turned)
        copied = copied.with_columns(turned)
    study = named_points(study, models, [path / files.USER_CODE])
    labels = labels_of(study)
    names = {}
    facts = runs.select("run", "point", "seed")
    for run, point, seed in facts.iter_rows():
        # A point may have left the study.
        names[run] = f"{labels.get(point, point)}, seed {seed}"
    confirmed = _confirmed(study, runs, events)
    warnings = list(_version_warnings(study))
    warnings += environment_warnings(study, runs, confirmed)
    warnings += copy_warnings(events, copied, names)
    return StudyFolder(
        study=_with_warnings(study, warnings),
        runs=runs.lazy(),
        events=events.lazy(),
        damaged=tuple(damaged),
        path=path,
        address=address,
    )


def _frames(
    study: FieldsDict, stored: StoredRuns, path: Path
) -> tuple[DataFrame, DataFrame, list[str]]:
    """Return runs, events and what is damaged; the files of `PART` runs are in memory at once."""
    known = [DataFrame(schema=RUN_SCHEMA)]
    events = [DataFrame(schema=EVENT_SCHEMA)]
    damaged = []
    torn = Counter()
    for _ in range(0, stored.total, PART):
        rows = []
        texts = []
        part = itertools.islice(stored.runs, PART)
        for run, config, records in part:
            if isinstance(config, dict):
                # A config of another schema is not damaged, so its version is said first.
                _check_schema(config, f"{path}/{run}/{files.CONFIG}")
            if not files.is_config(config, run):
                damaged.append(f"{run} has no readable {files.CONFIG}; if it was a run, {REMEDY}")
                continue
            _check_numerics(config, study, path)
            rows.append(_run_row(config))
            texts.append((run, records))
        own, lines = read_events(texts)
        known.append(DataFrame(rows, RUN_SCHEMA))
        events.append(own)
        torn += lines
    damaged += stored.damage
    runs = pl.concat(known)
    if damaged and runs.is_empty():
        raise UserError(f"{damaged[0]}; no run of {path} is readable: run the sweep again")
    for run, count in torn.items():
        damaged.append(f"{run}/{files.RECORDS} has {count} damaged lines")
    return runs, pl.concat(events), damaged


def _with_ends(runs: DataFrame, events: DataFrame) -> DataFrame:
    """Return runs with the status, the epoch and the environment of their last end."""
    ends = events.filter(event="end").group_by("run")
    last = ends.agg(
        col("status", "time").last(),
        ended=pl.last("epoch"),
        later=pl.last("environment"),
    )
    later = col("later").fill_null("{}")
    both = pl.format("[{}, {}]", "environment", later)
    joined = add_columns(runs, last, "run")
    return joined.with_columns(environment=both).drop("later")


def _check_numerics(config: Fields, study: Fields, path: Path):
    own = config.get("numerics")
    expected = study.get("numerics")
    if own != expected:
        raise UserError(
            f"{path}/{config['run']} has numerics version {own!r}, but the study has version "
            f"{expected!r}, so their losses are not comparable; delete these runs, or run the "
            "sweep into another --out"
        )


def _version_warnings(study: Fields) -> Iterator[str]:
    then = study.get("numerics")
    # A newer version may have trained the study.
    if then not in range(1, files.NUMERICS + 1):
        now = f"this version has {files.NUMERICS}: its losses may differ"
        yield f"trained by numerics {then!r}; {now}"


def is_maximized(study: Fields) -> bool:
    """Return whether the highest metric of a study is the best."""
    return asked_of(study).get("direction") == "maximize"


def _without_other_metrics(
    runs: DataFrame, events: DataFrame, models: Iterable[Fields]
) -> tuple[DataFrame, DataFrame]:
    """Count runs that never reported the test metric as failed, if others of the study did."""
    names = {model.get("test_metric") for model in models}
    names.discard(None)
    if not events["metric"].is_in(names).any():
        return runs, events
    is_other = ~col("metric").is_in(names).fill_null(value=True)
    others = events.filter(is_other)["run"]
    has_failed = col("run").is_in(others.implode())
    status = when(has_failed).then(lit("failed")).otherwise("status")
    return runs.with_columns(status=status), events.filter(~is_other)


def against(folder: StudyFolder, reference: str | None) -> StudyFolder:
    """Return a study whose points are compared with this point; None: with its own reference.

    More seeds would go to the comparisons with its own one, so `given`, its command, is left out;
    and a warning says that a reference chosen by its loss makes differences look larger. A
    `UserError` says that there is no such point.
    """
    if reference is None:
        return folder
    point = find_point(folder.study["points"], reference)["id"]
    if point == folder.study.get("reference"):
        return folder
    study = folder.study | {"reference": point}
    # More seeds would go to the comparisons with the study's own reference.
    study.pop("given", None)
    study = _with_warnings(study, [OTHER_REFERENCE])
    return folder._replace(study=study)


def _superseded(study: Fields, runs: DataFrame, events: DataFrame) -> list[str]:
    """Return the runs that have read other files than those that confirm their point.

    The sweep has trained others in their place (`docs/how/files_of_a_run.md`).
    """
    noted = events.select("run", files.FILES).drop_nulls()
    read = defaultdict(dict)
    for run, text in noted.iter_rows():
        own = files.parse_json(text.encode())
        if isinstance(own, dict):
            read[run].update(own)
    now = defaultdict(dict)
    for point, run in _newest(study, runs, events):
        for name, content in read[run].items():
            now[point].setdefault(name, []).append(content)
    found = []
    for run, point in runs.select("run", "point").iter_rows():
        for name, content in read[run].items():
            known = now[point].get(name)
            # A file that only this run has read supersedes nothing.
            if known and content not in known:
                found.append(run)
                break
    return found


def _newest(study: Fields, runs: DataFrame, events: DataFrame) -> list[tuple[str, str]]:
    """Return the runs, (point, run), that have read the files of now."""
    newest = chosen_runs(study).rows()
    confirmed = {point for point, _ in newest}
    # Before a point has a chosen setting, its last run has read the files of now.
    ends = events.filter(event="end").drop_nulls("time")
    ended = ends.sort("time").select("run")
    ended = ended.join(runs, on="run", maintain_order="left")
    last = ended.group_by("point").agg(pl.last("run"))
    for point, run in last.iter_rows():
        if point not in confirmed:
            newest.append((point, run))
    return newest


def _with_warnings(study: FieldsDict, lines: Iterable[str]) -> FieldsDict:
    data = study.get("data") or {}
    warnings = list(data.get("warnings", ()))
    warnings += lines
    if not warnings:
        return study
    data = data | {"warnings": warnings}
    return study | {"data": data}


def _confirmed(study: Fields, runs: DataFrame, events: DataFrame) -> DataFrame:
    """Return point, run, seed and test loss of the confirm runs."""
    tests = events.filter(event="test").group_by("run")
    losses = tests.agg(loss=pl.last("token"))
    seeds = runs.select("run", "seed")
    tested = seeds.join(losses, on="run")
    return chosen_runs(study).join(tested, on="run")


def status_at(epoch: int) -> pl.Expr:
    """Return the status of a run at an epoch: one that was stopped later counts as finished."""
    is_stopped = col("status").is_in(["pruned", "diverged"])
    is_later = col("ended") > epoch
    return when(is_later & is_stopped).then(lit("finished")).otherwise("status")


def read_study(path: Path) -> FieldsDict:
    """Return the content of a study's `study.json`; errors are those of `load_study`."""
    if not path.is_dir():
        raise UserError(f"no folder {str(path)!r}; give the folder of a study, as in runs/NAME")
    study = files.read_json(path / files.STUDY)
    if not isinstance(study, dict):
        # The folder may be one of Ray Tune's, which another command reads.
        hint = "run a sweep first; lmzoo judge ranks results of Ray Tune and other programs"
        studies = path.glob(f"*/{files.STUDY}")
        # It may be the folder of several studies.
        inside = sorted(file.parent.name for file in studies)
        if inside:
            hint = f"the studies inside it are: {', '.join(inside)}"
        raise UserError(f"{str(path)!r} has no readable {files.STUDY}; {hint}")
    return _checked(study, path / files.STUDY)


def _checked(study: Any, path: Path) -> FieldsDict:
    if isinstance(study, dict):
        _check_schema(study, path)
    if not files.is_study(study):
        raise UserError(f"{path} is damaged; run the sweep again, which writes it")
    return study


def read_events(texts: Iterable[tuple[str, bytes]]) -> tuple[DataFrame, Counter[str]]:
    """Parse the record files of runs, (run, content).

    Returned are the events, the last of those with equal (run, event, epoch), and the numbers of
    damaged lines by run.
    """
    texts = list(texts)
    damaged = Counter()
    try:
        frame = _parse_together(texts)
    except pl.exceptions.ComputeError:
        # One damaged line must not hide the others, so each is tried by itself.
        frame, damaged = _parse_lines(texts)
    known = frame.drop_nulls(KEY)
    # A run that failed in its last epoch and finished later has two ends.
    last = known.unique(list(KEY), keep="last", maintain_order=True)
    return last, damaged


def _parse_together(texts: list[tuple[str, bytes]]) -> DataFrame:
    """Parse all lines in one pass; a polars ComputeError if one is damaged or is no record."""
    closed = []
    for _, text in texts:
        if text:  # the last line of a run that was killed may have no end
            text = text.removesuffix(b"\n") + b"\n"
        closed.append(text)
    data = b"".join(closed)
    if not all(map(files.is_sealed, data.split(b"\n"))):
        raise pl.exceptions.ComputeError("a line has no checksum, or another one")
    frame = pl.read_ndjson(data, schema=EVENT_SCHEMA)
    names = []
    for (run, _), text in zip(texts, closed, strict=True):
        names += [run] * text.count(b"\n")
    if len(frame) != len(names):
        raise pl.exceptions.ComputeError("not every line is a record")
    runs = Series(names, dtype=String)
    if (frame["run"] != runs).any():  # null in old files
        raise pl.exceptions.ComputeError("a line is of another run")
    return frame.with_columns(run=runs)


def _parse_lines(texts: list[tuple[str, bytes]]) -> tuple[DataFrame, Counter[str]]:
    """Parse line by line; return the events and the numbers of damaged lines by run."""
    rows = []
    damaged = Counter()
    for run, text in texts:
        for record in files.parse_lines(text, run):
            if record is None:
                damaged[run] += 1
                continue
            for name in (files.ENVIRONMENT, files.FILES):
                if name in record:  # a text, as `read_ndjson` has
                    record[name] = json.dumps(record[name])
            record["run"] = run
            rows.append(record)
    return DataFrame(rows, EVENT_SCHEMA, strict=False), damaged


def _run_row(config: Fields) -> FieldsDict:
    row = {name: config.get(name) for name in RUN_SCHEMA}
    for name in ("model", "corpus", "setting"):
        row[name] = _text(config[name])
    for name in ("recipe", files.ENVIRONMENT):
        row[name] = _text(config.get(name) or {})
    row["point"] = config["point"]["id"]
    # Only generated data have an entropy that is known.
    floor = config["floor"] or {}
    row["floor_token"] = floor.get("token")
    row["floor_sentence"] = floor.get("sentence")
    row["program"] = config.get(files.PROGRAM)
    return row


def _text(value: Any) -> str:
    """Return a value as JSON; equal texts of many runs are one object."""
    # Thousands of runs share a few texts.
    return sys.intern(json.dumps(value))


def _check_schema(content: Fields, path: str | Path):
    if content.get("schema") not in files.READABLE:
        known = " and ".join(map(str, files.READABLE))
        raise UserError(
            f"{path} has schema {content.get('schema')!r}, but this version reads {known}; use the "
            "version that wrote it"
        )


def chosen_runs(study: Fields) -> DataFrame:
    """Return one row (point, run) for each confirm run of a chosen setting."""
    pairs = []
    for point, chosen in study.get("chosen", {}).items():
        for run in chosen["runs"]:
            pairs.append((point, run))
    schema = {"point": String, "run": String}
    return DataFrame(pairs, schema, orient="row")


def point_labels(study: Fields) -> DataFrame:
    """Return one row (point, label) for each point of a study, in its order."""
    labels = list(labels_of(study).items())
    schema = {"point": String, "label": String}
    return DataFrame(labels, schema, orient="row")


def confirm_runs(
    runs: LazyFrame, events: LazyFrame, study: Fields, metric: str
) -> tuple[DataFrame, int]:
    """Return the confirm runs, a row (point, facts of the run, loss) each, and the losses' epoch.

    The loss is the test loss at the study's budget, or, while no run has been tested there, at the
    largest smaller epoch that has a test. It is infinite for a diverged run and null for a missing
    one. A `UserError` says that no point has a chosen setting yet, or no run such a loss.
    """
    chosen = chosen_runs(study)
    if chosen.is_empty():
        raise UserError(
            f"study {study['name']!r} has no confirmed point yet; "
            "run its sweep again to continue it; --points LABEL,LABEL leaves out one that fails"
        )
    tests = events.filter(event="test").collect()
    # A run of a setting that is no longer chosen does not count.
    tests = tests.join(chosen, on="run", how="semi")
    losses = tests.select("run", "epoch", loss=metric).drop_nulls()
    epoch = _test_epoch(study, losses)
    of_epoch = losses.filter(epoch=epoch).unique("run")
    facts = runs.drop("point").with_columns(status=status_at(epoch))
    known = add_columns(facts.collect(), of_epoch.drop("epoch"), "run")
    confirm = add_columns(chosen, known, "run")
    has_diverged = col("status") == "diverged"
    # Infinite, so that a diverged run is counted and enters no mean.
    loss = when(has_diverged).then(inf).otherwise("loss")
    return confirm.with_columns(loss=loss), epoch


def _test_epoch(study: Fields, tests: DataFrame) -> int:
    if tests.is_empty():
        raise UserError(
            f"study {study['name']!r} has no test results yet; run its sweep again until the "
            "confirm stage is done"
        )
    budget = study["budget"]["epochs"]
    # An earlier sweep with more epochs left results beyond today's budget.
    reached = [epoch for epoch in tests["epoch"] if epoch <= budget]
    if not reached:
        tested = sorted(set(tests["epoch"]))
        raise UserError(
            f"the last sweep of study {study['name']!r} had a budget of {budget} epochs, but its "
            f"test results are at epochs {', '.join(map(str, tested))} only; "
            f"run its sweep again with --epochs {tested[-1]}"
        )
    return max(reached)


def learning_curves(folder: StudyFolder, metric: str = "token") -> DataFrame:
    """Return label, epoch, loss, low, high, runs; low and high are null for a single run.

    A run that confirms several points (they are the same function) belongs to the point for which
    it was made.
    """
    named = point_labels(folder.study).lazy()
    confirm = chosen_runs(folder.study).lazy()
    runs = folder.runs.join(confirm, on="run", how="semi")
    labels = runs.join(named, on="point").select("run", "label")
    events = folder.events.filter(event="epoch")
    events = events.join(labels, on="run")
    losses = events.select("label", "epoch", loss=f"valid_{metric}", order="run")
    # Joins keep no order, on which the last digits of a mean depend.
    losses = losses.drop_nulls("loss").sort("label", "order", "epoch")
    by_epoch = losses.collect().group_by("label", "epoch", maintain_order=True)
    rows = []
    for (label, epoch), part in by_epoch:
        interval = mean_interval(part["loss"].to_numpy())
        mean, low, high = map(float, interval)
        rows.append((label, epoch, mean, low, high, len(part)))
    schema = {
        "label": String,
        "epoch": Int64,
        "loss": Float64,
        "low": Float64,
        "high": Float64,
        "runs": Int64,
    }
    curves = DataFrame(rows, schema, orient="row").sort("label", "epoch")
    ends = col("low", "high")
    return curves.with_columns(ends.fill_nan(None))


def distinct_ranges(study: Fields) -> dict[str, list[Fields]]:
    """Return field -> the different ranges in which points search it.

    A range has `low`, `high` and `log`, or `values`, as in `study.json`.
    """
    searches = [point["search"] for point in study["points"] if "search" in point]
    if not searches:
        searches.append(study["search"])
    ranges = {}
    for search in searches:
        for name, searched in search.items():
            known = ranges.setdefault(name, [])
            if searched not in known:
                known.append(searched)
    return ranges
