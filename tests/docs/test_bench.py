"""Recorded studies as tabular benchmarks: curves are those of the records, and are paid once."""

import contextlib
import io
import re

import numpy as np
import polars as pl
import pytest

from lmzoo import bench
from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.records.load import load_study
from tests.docs.pages import ROOT, blocks

RECORDS = ROOT / "docs/results/records"
PARITY = RECORDS / "state_tracking-parity.parquet"
PRUNED = RECORDS / "modern_mamba-captions.parquet"


@pytest.fixture(scope="module")
def parity():
    return bench.load(PARITY)


def test_curves_and_settings_are_those_of_the_records():
    for file in (PARITY, PRUNED):
        study = load_study(file)
        events = study.events.filter(pl.col("event") == "epoch").collect()
        runs = {run.name: run for run in bench.load(file).runs}
        counts = [run.name for run in runs.values() if not run.losses]
        assert {runs[name].point for name in counts} <= {"unigram count", "Kneser-Ney 5-gram"}
        own = events.filter(pl.col("run").is_in([*runs]), ~pl.col("run").is_in(counts))
        recorded = own.drop_nulls("valid_token").height
        assert sum(np.isfinite(run.losses).sum() for run in runs.values()) == recorded > 500
        for run, epoch, loss in own.select("run", "epoch", "valid_token").rows()[::37]:
            assert runs[run].losses[epoch - 1] == loss
        chosen = {p["label"]: study.study["chosen"].get(p["id"]) for p in study.study["points"]}
        for run in runs.values():
            if run.stage == "confirm":
                assert chosen[run.point]["setting"] == run.setting


def test_an_epoch_is_paid_once(parity):
    replay = bench.Replay(parity)
    run, other = replay.candidates[:2]
    assert replay.train(run, 5) == run.losses[4]
    assert replay.train(run, 3) == run.losses[2]
    assert (replay.epochs, replay.seconds) == (5, pytest.approx(sum(run.seconds[:5])))
    replay.train(run, 7)
    replay.train(other, 1)
    assert replay.epochs == 8
    best = min(replay.candidates, key=lambda candidate: candidate.losses[-1])
    assert replay.regret(best) == 0 < replay.regret(max(replay.candidates, key=replay.regret))


def test_what_is_not_recorded_is_refused(parity):
    replay = bench.Replay(parity)
    with pytest.raises(UserError, match="it has 1 to 25"):
        replay.train(replay.candidates[0], 26)
    with pytest.raises(UserError, match="not one of tune, confirm"):
        parity.candidates("test")
    few, all_ = (len(bench.load(PRUNED).candidates(complete=c)) for c in (True, False))
    assert few < all_


def test_the_example_of_the_page_prints_what_the_page_says(monkeypatch):
    page = ROOT / "docs/how/bench.md"
    monkeypatch.chdir(ROOT)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(next(block.code for block in blocks(page) if block.kind == "python"), {})
    assert f"```text\n{printed.getvalue()}```" in page.read_text()
    regrets = [float(number) for number in re.findall(r"regret (\S+)", printed.getvalue())]
    assert regrets[1] < regrets[0]
