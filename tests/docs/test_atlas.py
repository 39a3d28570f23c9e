"""The atlas: the command of a row plans the runs that the row has."""

import itertools
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

    def run(sweep, *_, **__):
        studies.append(sweep.study)
        return 0

    monkeypatch.setattr("lmzoo.lab.sweep.command.Sweep.run", run)
    _, script, *_ = command
    monkeypatch.setattr(sys, "argv", command[1:])
    with pytest.raises(SystemExit):
        runpy.run_path(script, run_name="__main__")
    (study,) = studies
    data = open_data(study)
    return {point.id for point in resolve(study, data.corpus, data.fields)}


@pytest.mark.parametrize("study", sorted(QUICK))
def test_a_command_plans_the_runs_of_its_row_unless_the_cell_has_changed(study, monkeypatch):
    monkeypatch.chdir(ROOT)
    rows = ATLAS.filter(study=study)
    recorded = load_study(RESULTS / f"records/{study}.parquet").study
    ids = {point["label"]: point["id"] for point in recorded["points"]}
    # Each command selects the points of its row; without that all are planned.
    command, *_ = rows["command"][0].split(" --points ")
    points = planned(shlex.split(command), monkeypatch)
    for row in rows.filter(changed=False).to_dicts():
        both = {ids[row["point"]], ids[row["against"]]}
        assert both <= points, row["point"]


def test_a_command_has_a_script_a_pruner_and_a_corpus():
    for row in ATLAS.filter(changed=False).to_dicts():
        words = shlex.split(row["command"])
        options = dict(itertools.pairwise(words))
        kind = options["--corpus"].partition(":")[0]
        fields = json.loads(row["corpus_fields"])
        assert (ROOT / words[1]).is_file()
        assert options.get("--pruner", "halving") in PRUNERS, row["study"]
        assert kind == fields["name"]


def test_the_page_has_every_decided_row_once():
    text = (RESULTS / "atlas.md").read_text(encoding="utf-8")
    is_open = pl.col("verdict").str.starts_with("undecided") | (pl.col("verdict") == "")
    assert text.count("python tools/repeat.py ") == ATLAS.filter(~is_open).height
    assert ATLAS.select("study", "point").is_unique().all()


@cases("docs/cases.toml", "carries", "verdicts, said")
def test_a_verdict_changes_only_if_two_exclude_each_other(verdicts, said):
    assert TOOL["carries"](verdicts) == said
