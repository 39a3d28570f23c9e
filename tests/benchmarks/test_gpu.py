"""The GPU benchmark without a GPU: its parts run, its lower bounds and rows are correct."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lmzoo import zoo
from lmzoo.cells.base import Cell
from lmzoo.contract import Task
from lmzoo.kernels.cpu import blas

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bench(monkeypatch):
    """Return a function that imports a script of `benchmarks/`, which is not a package."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


def test_the_lower_bounds_count_weights_and_products_exactly(bench, monkeypatch):
    shape = bench("fuse").Shape(P=3, V=23, E=6, K=5, B=4, T=7)
    config = zoo.config("DLM46", width=shape.E, emission={"components": shape.K})
    model = zoo.build(config, Task(vocab=shape.V, length=shape.T))
    roofline = bench("roofline")
    weights = sum(weight.numel() for weight in model.parameters())
    assert roofline.count_weights(shape) == weights
    # The counter sees products of torch only, not those of kernels.
    monkeypatch.setattr(Cell, "scan", Cell.naive_scan)
    monkeypatch.setattr(blas, "HAS_PRODUCTS", False)
    tokens = torch.ones(shape.B, shape.T).long()
    lengths = torch.full((shape.B,), shape.T)
    with FlopCounterMode(display=False) as counted:
        model.log_prob(tokens, lengths)
    of_a_member = counted.get_total_flops()
    rates = roofline.Rates(flops=1.0, bytes=1.0)
    # The gradients of a product are two more.
    of_a_pack = shape.P * 3 * of_a_member
    assert roofline.compute_bound(shape, rates) == of_a_pack


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_whole_script_runs_without_ray_and_writes_rows(tmp_path):
    absent = "import sys; sys.modules.update(dict.fromkeys(('ray', 'optuna', 'polars')));"
    script = f"{absent} sys.argv[0] = 'gpu.py'; import runpy; sys.path.insert(0, 'benchmarks');"
    script += "runpy.run_path('benchmarks/gpu.py', run_name='__main__')"
    # A process started by `spawn` imports the script again, so this part runs as a file.
    options = ["--device", "cpu", "--tiny", "--rounds", "1", "--out", str(tmp_path)]
    without = [sys.executable, "-c", script, "--parts", "equal,scan,growth"]
    as_a_file = [sys.executable, "benchmarks/gpu.py", "--parts", "fused"]
    for command in (without, as_a_file):
        subprocess.run(command + options, cwd=ROOT, check=True, capture_output=True, timeout=700)
    rows = {file.stem: json.loads(file.read_text()) for file in tmp_path.glob("*.json")}
    assert rows.keys() == {"gpu-equal", "gpu-scan", "gpu-fused", "gpu-growth"}
    scan = rows["gpu-scan"]
    growth = rows["gpu-growth"]
    rivals = {row["rival"] for row in scan}
    assert rivals == {"torch.nn.GRU", "published loop"}
    places = [row["at"][0] for row in growth]
    assert places == ["1", "1", "1", "2", "2", "2"]
    # The first row is what the others are compared with.
    assert growth[0]["median"] == 1
    for row in scan + growth:
        assert 0 < row["low"] <= row["median"] <= row["high"]
        # Tiny sizes have no goals.
        assert row["holds"] is None
