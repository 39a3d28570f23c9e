"""A worker imports nothing that it does not use; its start is a part of every sweep."""

import subprocess
import sys

from .processes import ROOT

SCRIPT = """
import importlib, sys
from lmzoo.lab.cluster.forks import MODULES

for name in MODULES:
    importlib.import_module(name)
forked = {"ray", "grpc"} & sys.modules.keys()
import lmzoo.lab.sweep.worker.worker
from lmzoo.lab.study.trainable import open_door

sys.path.insert(0, "benchmarks")
open_door()
from fuse import Shape, pack_members, packed_epoch, random_corpus

shape = Shape(2, 20, 4, 0, 4, 6, steps=2)
corpus = random_corpus(shape, 2)
packed_epoch(pack_members(shape, corpus), corpus)()
unused = {"pandas", "ray.data", "ray.tune", "sympy", "triton", "optuna", "polars", "scipy.optimize"}
print(*sorted(forked | (unused & sys.modules.keys())))
"""


def test_a_worker_imports_nothing_that_it_does_not_use():
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
