"""A worker imports nothing that it does not use; its start is a part of every sweep."""

import subprocess
import sys

from .processes import ROOT

SCRIPT = """
import sys
import lmzoo.lab.sweep.worker.worker as worker
from lmzoo.lab.trainables.door import open_door
from lmzoo.lab.sweep.worker.pack import Pack

sys.path.insert(0, "benchmarks")
open_door()
from fuse import Shape, pack_members, packed_epoch, random_corpus

shape = Shape(2, 20, 4, 0, 4, 6, steps=2)
corpus = random_corpus(shape, 2)
packed_epoch(pack_members(shape, corpus), corpus)()
unused = {"pandas", "ray.data", "sympy", "triton", "optuna", "polars", "scipy.optimize"}
print(*sorted(unused & sys.modules.keys()))
import pandas, ray.data
print(pandas.DataFrame({"a": [1]}).shape, ray.data.Dataset.__name__, worker.tune.Trainable.__name__)
"""


def test_a_worker_imports_nothing_that_it_does_not_use():
    """What the user's code imports later is the real module."""
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["", "(1, 1) Dataset Trainable"]
