"""The benchmarks of whole sweeps: CPU time of process trees, and their ratios."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from lmzoo import zoo
from lmzoo.data.corpus import open_corpus
from lmzoo.errors import UserError
from lmzoo.train.recipe import Recipe
from lmzoo.train.run_config import run_config
from lmzoo.train.trainer import Training, fit

ROOT = Path(__file__).parents[2]
BUSY = """
import sys, time
while time.process_time() < 0.5:
    pass
print("done", flush=True)
sys.stdin.read()
"""
PLAIN = """
import json, sys
import plain_tune
from lmzoo.cells.base import Cell
from lmzoo.data.corpus import open_corpus
from lmzoo.kernels.dispatch import record_kernels

config, reports, kernels = json.loads(sys.argv[1]), [], []
plain_tune.tune.report = reports.append
with record_kernels(lambda *call: kernels.append(call)):
    plain_tune.trial({"at": 0, "configs": [config]}, open_corpus(config["corpus"]))
print(json.dumps([len(kernels), Cell.scan is Cell.naive_scan, reports]))
"""
SIDE = """
import json, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if options["--side"] == FAILS:
    sys.exit(3)
cost = {"off": 1.0, "auto": 0.5, "rays": 2.0}[options["--side"]]
marks = [dict.fromkeys(("seconds", "driver", "all", "megabytes"), cost * i) for i in range(1, 11)]
json.dump([{"done": 4 * i, **m} for i, m in enumerate(marks, 1)], open(options["--out"], "w"))
"""


def test_a_child_process_counts_while_it_runs_and_after_it_ends(bench):
    tree = bench("process_usage").ProcessTree(os.getpid())
    before = tree.seconds()
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        running = tree.seconds()
    assert running >= before + 0.4
    assert tree.seconds() >= running


def test_torch_and_tune_alone_run_no_kernel_and_have_the_same_losses():
    data = {"name": "captions", "train": 200, "valid": 40, "test": 40}
    corpus, recipe = open_corpus(data), Recipe(batch=20)
    model = zoo.config("DLM46", width=8, emission={"components": 8}, cell={"cuts": [3]})
    config = {**run_config(model, recipe, corpus, data, 5), "epochs": 2}
    ours = list(fit(Training(zoo.build(model, corpus.task, 5), recipe, 5), corpus, 2))
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, json.dumps(config)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'benchmarks'}"},
        capture_output=True,
        check=True,
    )
    kernels, naive, theirs = json.loads(done.stdout.splitlines()[-1])
    assert kernels == 0
    assert naive
    losses = [record["valid_token"] for record in ours]
    assert [report["loss"] for report in theirs] == pytest.approx(losses, abs=1e-5)
    assert [report["first"] for report in theirs] == [theirs[0]["loss"]] * 2
    assert theirs[1]["seconds"] > theirs[0]["seconds"] > 0


def test_a_rival_with_other_losses_is_refused(bench, monkeypatch):
    sweep = bench("sweep")
    ours = sweep.SweepCost(60.0, 110.0, 100.0, [{"loss": 2.0}, {"loss": 3.0}])

    def run_script(script: str, runs: str, out: str, *options: str) -> tuple[float, float]:
        assert script == "benchmarks/plain_tune.py"
        assert json.loads(Path(runs).read_text()) == ours.runs
        Path(out).write_text(json.dumps(theirs))
        return 240.0 if "--reuse" in options else 600.0, 0.0

    monkeypatch.setattr(sweep, "run_script", run_script)
    theirs = [{"first": 2.0, "seconds": 200.0}, {"first": 3.0, "seconds": 300.0}]
    rows = sweep.compare_with_plain_tune(ours, 2, "captions") + sweep.compare_with_plain_tune(
        ours, 2, "captions", "--reuse"
    )
    assert [(row.median, row.absolute) for row in rows] == [
        (10, "60 / 600 s"),
        (5, "50 / 250 s"),
        (4, "60 / 240 s"),
        (5, "50 / 250 s"),
    ]
    assert ["processes kept" in row.rival for row in rows] == [False, False, True, True]
    theirs[1]["first"] = 3.002
    with pytest.raises(AssertionError, match="losses after an epoch"):
        sweep.compare_with_plain_tune(ours, 2, "captions")


def test_a_process_outside_the_tree_does_not_count(bench):
    usage = bench("process_usage")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        child_tree = usage.ProcessTree(child.pid)
        assert child_tree.seconds() < usage.ProcessTree(os.getpid()).seconds()
        child.communicate(b"\n")


def test_each_tenth_after_the_first_is_one_round(bench):
    usage = bench("process_usage")
    clock = usage.Clock(total=40)
    for _ in range(40):
        clock.tick()
    assert [mark["done"] for mark in clock.marks] == list(range(4, 41, 4))
    marks = [{"done": 4 * i, "seconds": 8.0 * i * i} for i in range(1, 4)]
    assert usage.usage_per_item(marks, "seconds") == [6.0, 10.0]


def test_a_sweep_is_compared_with_its_training_over_the_cores(bench):
    sweep = bench("sweep")
    auto = sweep.SweepCost(wall=60.0, cpu=110.0, training=100.0, runs=[{}] * 9)
    off = sweep.SweepCost(wall=200.0, cpu=420.0, training=300.0, runs=[{}] * 9)
    rows = {(r.what, r.rival): asdict(r) for r in sweep.compare(auto, off, 8.0, 2, "captions")}
    wall = rows["sweep, --fuse auto: wall", "its training / cores"]
    assert (wall["median"], wall["holds"], wall["absolute"]) == (1.2, True, "60 / 50 s")
    alone = rows["sweep, --fuse off: wall", "its training / cores"]
    assert (alone["holds"], alone["absolute"]) == (False, "200 / 150 s")
    assert rows["sweep, --fuse off: CPU, all", "its training"]["median"] == pytest.approx(1.4)
    saved = rows["sweep, --fuse auto: wall", "--fuse off"]
    assert (saved["median"], saved["holds"]) == (pytest.approx(10 / 3), True)
    rest = rows["sweep, --fuse auto: all but training", "bare Tune"]
    assert (rest["median"], rest["absolute"]) == (1.25, "10 / 8 s")
    with pytest.raises(AssertionError, match="8 runs and 9 runs"):
        sweep.compare(sweep.SweepCost(1.0, 1.0, 1.0, [{}] * 8), off, 8.0, 2, "captions")


def test_trials_are_compared_with_the_rivals_by_tenths(bench):
    trials = bench("trials")

    def marks(seconds: float, growth: float) -> list[dict[str, float]]:
        return [
            {"done": 100 * i, "seconds": seconds * 100 * i, "driver": i, "all": i,
             "megabytes": 50 + growth * i}
            for i in range(1, 11)
        ]  # fmt: skip

    rows = trials.compare("off", 1000, marks(0.3, 0.5), marks(0.4, 4.0))
    by_name = {row.what.partition(": ")[2]: row for row in rows}
    assert by_name["clock"].median == pytest.approx(0.75)
    assert by_name["clock"].holds
    assert not trials.compare("off", 1000, marks(0.5, 1.0), marks(0.4, 1.0))[0].holds
    assert by_name["driver's growth per 1,000"].absolute == "5 / 40 MB"


@pytest.mark.parametrize("together", [False, True])
def test_each_side_runs_in_a_process_of_its_own(bench, monkeypatch, tmp_path, together):
    trials, script = bench("trials"), tmp_path / "side.py"
    monkeypatch.setattr(trials, "__file__", str(script))
    script.write_text(f"FAILS = ''\n{SIDE}")
    trials.main(40, tmp_path / "out.json", together=together)
    rows = json.loads((tmp_path / "out.json").read_text())
    clocks = [row["median"] for row in rows if row["what"].endswith("clock")]
    assert clocks == [0.5, 0.25]
    script.write_text(f"FAILS = 'rays'\n{SIDE}")
    with pytest.raises(UserError, match="side rays ended with code 3"):
        trials.main(40, tmp_path / "out.json", together=together)
