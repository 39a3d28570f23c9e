"""A trial reads the runs that were removed from it in Ray's key-value store, until it ends."""

import os
import subprocess
import sys

import ray

from lmzoo.sweep import reassign

SCRIPT = """
from lmzoo.sweep.cluster import cluster
from lmzoo.sweep import reassign
import ray

with cluster():
    read = ray.remote(reassign.removed_runs)
    answers = []
    for runs in ((), ("a", "b"), ("c",)):
        if runs:
            reassign.remove_runs("one", runs)
        answers.append(sorted(ray.get(read.remote("one"))))
    answers.append(sorted(ray.get(read.remote("two"))))
    reassign.clear("one")
    answers.append(sorted(ray.get(read.remote("one"))))
print(answers)
"""


def test_another_process_reads_the_removed_runs_of_a_trial():
    env = {**os.environ, "RAY_ADDRESS": "local"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    answers = [[], ["a", "b"], ["a", "b", "c"], [], []]
    assert done.stdout.strip().splitlines()[-1] == str(answers)


def test_without_ray_no_runs_are_removed():
    assert not ray.is_initialized()
    assert reassign.removed_runs("one") == set()
    reassign.clear("one")
