"""The GPU benchmark without a GPU: its parts run, its lower bounds and rows are correct."""

import importlib
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lmzoo import zoo
from lmzoo.base.errors import UserError
from lmzoo.cells.base import Cell
from lmzoo.contract import Task
from lmzoo.kernels.cpu import blas
from tests.user_errors import raises_user_error

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bench(monkeypatch):
    """Return a function that imports a script of `benchmarks/`, which is not a package."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


def test_the_lower_bounds_count_weights_and_products_exactly(bench, monkeypatch):
    shape = bench("fuse").Shape(P=3, V=23, E=6, K=5, B=4, T=7)
    task = Task(vocab=shape.V, length=shape.T)
    fields = {"width": shape.E, "emission": {"components": shape.K}}
    model = zoo.build(zoo.config("DLM46", **fields), task)
    roofline = bench("roofline")
    assert roofline.count_weights(shape) == sum(weight.numel() for weight in model.parameters())
    # The counter sees products of torch only, not those of kernels.
    monkeypatch.setattr(Cell, "scan", Cell.naive_scan)
    monkeypatch.setattr(blas, "HAS_PRODUCTS", False)
    with FlopCounterMode(display=False) as counted:
        model.log_prob(torch.ones(shape.B, shape.T, dtype=torch.int64), torch.full((4,), 7))
    rates = roofline.Rates(flops=1.0, bytes=1.0)
    assert roofline.compute_bound(shape, rates) == 3 * 3 * counted.get_total_flops()


def test_a_part_that_fails_or_takes_too_long_does_not_end_the_others(bench, tmp_path, monkeypatch):
    gpu = bench("gpu")

    def fail(*_):
        raise RuntimeError("no kernel image")

    monkeypatch.setattr(gpu, "equality", fail)
    monkeypatch.setattr(gpu, "scans", lambda *_: time.sleep(60))
    monkeypatch.setattr(gpu, "growth", lambda *_: [])
    with raises_user_error("equal (RuntimeError: no kernel image", "scan (", "longer than 1 s"):
        gpu.main("equal,scan,growth", "cpu", 1, tiny=True, out=tmp_path, limit=1)
    assert [path.name for path in tmp_path.iterdir()] == ["gpu-growth.json"]


@pytest.mark.slow
def test_the_error_is_that_of_float32(bench):
    rows = bench("gpu").equality(torch.device("cpu"))
    assert len(rows) == 5 * 2 * 3
    float32 = [row for row in rows if "tf32x3" in row.at]
    assert all(row.holds and row.median > 0 for row in float32)


def test_unknown_parts_and_devices_are_refused(bench, tmp_path):
    gpu = bench("gpu")
    rest = {"rounds": 1, "tiny": True, "out": tmp_path, "limit": 600}
    with pytest.raises(UserError, match="no part 'fuesd'; known: equal, scan, fused"):
        gpu.main("scan,fuesd", "cpu", **rest)
    with pytest.raises(UserError, match="--device 'tpu' is neither cuda nor cpu"):
        gpu.main("scan", "tpu", **rest)
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="torch finds no GPU"):
            gpu.main("scan", "cuda", **rest)


def test_work_is_recorded_after_the_warm_up(bench, monkeypatch):
    gpu, calls = bench("gpu"), []

    class Recorder:
        warmup_steps = 2

        def run(self, work):
            calls.append("run")
            return ""

        def record(self, work):
            calls.append("record")
            return lambda: calls.append("replay")

    monkeypatch.setattr(gpu.stepper, "device_recorder", lambda device: Recorder())
    gpu._replayed(lambda: None, torch.device("cpu"))()
    assert calls == ["run", "run", "record", "replay"]


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_whole_script_runs_without_ray_and_writes_rows(tmp_path):
    absent = "import sys; sys.modules.update(dict.fromkeys(('ray', 'optuna', 'polars')));"
    script = f"{absent} sys.argv[0] = 'gpu.py'; import runpy; sys.path.insert(0, 'benchmarks');"
    script += "runpy.run_path('benchmarks/gpu.py', run_name='__main__')"
    # A process started by `spawn` imports the script again, so this part runs as a file.
    options = ["--device", "cpu", "--tiny", "--rounds", "1", "--out", str(tmp_path)]
    for command in (
        [sys.executable, "-c", script, *options, "--parts", "equal,scan,growth"],
        [sys.executable, "benchmarks/gpu.py", *options, "--parts", "fused"],
    ):
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=700)
    rows = {file.stem: json.loads(file.read_text()) for file in tmp_path.glob("*.json")}
    assert rows.keys() == {"gpu-equal", "gpu-scan", "gpu-fused", "gpu-growth"}
    scan, growth = rows["gpu-scan"], rows["gpu-growth"]
    assert {row["rival"] for row in scan} == {"torch.nn.GRU", "published loop"}
    assert [row["at"][0] for row in growth] == ["1"] * 3 + ["2"] * 3
    assert all(0 < row["low"] <= row["median"] <= row["high"] for row in scan + growth)
    assert growth[0]["median"] == 1
    # Tiny sizes have no goals.
    assert all(row["holds"] is None for row in scan + growth)


@pytest.mark.slow
def test_jax_trains_the_same_unit(bench):
    """Its loss falls to that of our pack: both fit the same few sequences."""
    pytest.importorskip("jax")
    rivals, fuse = bench("rivals"), bench("fuse")
    shape = fuse.Shape(2, 20, 8, 0, 4, 6, steps=3)
    corpus = fuse.random_corpus(shape, shape.steps)
    members = fuse.pack_members(shape, corpus)
    ours, theirs = (
        fuse.packed_epoch(members, corpus),
        rivals.jax_epoch(shape, corpus, torch.device("cpu")),
    )
    for _ in range(100):
        ours()
        loss = theirs()
    mean = sum(t.record["train_token"] for t in members) / len(members)
    assert loss == pytest.approx(mean, rel=0.2)


def test_without_jax_the_part_says_so(bench, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with raises_user_error("rivals (", "pip install jax"):
        bench("gpu").main("rivals", "cpu", 1, tiny=True, out=tmp_path, limit=600)
