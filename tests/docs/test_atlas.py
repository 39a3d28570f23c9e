"""The atlas: the command of a row plans the runs that the row has."""

import json
import runpy
import shlex
import sys

import polars as pl
import pytest

from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.study.search import PRUNERS
from lmzoo.trainables.resolve import open_data, resolve
from tests.cases import cases
from tests.docs.pages import ROOT

RESULTS = ROOT / "docs/results"
ATLAS = pl.read_parquet(RESULTS / "atlas.parquet")
QUICK = {"gru_ablation-captions", "modern_mamba-captions", "recall-pairs8"}
TOOL = runpy.run_path(str(ROOT / "tools/atlas.py"))


def planned(command, monkeypatch):
    """Return the points that a command would train: id -> labels."""
    studies = []
    monkeypatch.setattr(
        "lmzoo.lab.sweep.command.Sweep.run",
        lambda sweep, *_, **__: studies.append(sweep.study) or 0,
    )
    monkeypatch.setattr(sys, "argv", command[1:])
    with pytest.raises(SystemExit):
        runpy.run_path(command[1], run_name="__main__")
    data = open_data(studies[0])
    return {p.id for p in resolve(studies[0], data.corpus, data.fields)}


@pytest.mark.parametrize("study", sorted(QUICK))
def test_a_command_plans_the_runs_of_its_row_unless_the_cell_has_changed(study, monkeypatch):
    monkeypatch.chdir(ROOT)
    rows = ATLAS.filter(study=study)
    recorded = load_study(RESULTS / f"records/{study}.parquet").study
    ids = {point["label"]: point["id"] for point in recorded["points"]}
    words = shlex.split(rows["command"][0])
    points = planned(
        words[: words.index("--points")] if "--points" in words else words, monkeypatch
    )
    for row in rows.to_dicts():
        both = {ids[row["point"]], ids[row["against"]]}
        assert row["changed"] or both <= points, row["point"]


def test_a_command_names_the_point_and_its_reference():
    for row in ATLAS.filter(~pl.col("changed")).to_dicts():
        words = shlex.split(row["command"])
        assert (ROOT / words[1]).is_file()
        given = "halving"
        if "--pruner" in words:
            given = words[words.index("--pruner") + 1]
        assert given in PRUNERS, row["study"]
        corpus = words[words.index("--corpus") + 1]
        assert corpus.partition(":")[0] == json.loads(row["corpus_fields"])["name"]


def test_the_page_has_every_decided_row_once():
    text = (RESULTS / "atlas.md").read_text(encoding="utf-8")
    is_open = pl.col("verdict").str.starts_with("undecided") | (pl.col("verdict") == "")
    assert text.count("python tools/repeat.py ") == ATLAS.filter(~is_open).height
    assert ATLAS.select("study", "point").is_unique().all()


@cases("docs/cases.toml", "carries", "verdicts, said")
def test_a_verdict_changes_only_if_two_exclude_each_other(verdicts, said):
    assert TOOL["carries"](verdicts) == said
