"""What a trial has given away is known to it, in Ray's own store, until it is over."""

import os
import subprocess
import sys

import ray

from lmzoo.sweep import reassign as handover

SCRIPT = """
from lmzoo.sweep.cluster import cluster
from lmzoo.sweep import handover
import ray

with cluster():
    heard = ray.remote(handover.reassigned)
    told = []
    for give in ((), ("a", "b"), ("c",)):
        if give:
            handover.reassign("one", give)
        told.append(sorted(ray.get(heard.remote("one"))))
    told.append(sorted(ray.get(heard.remote("two"))))
    handover.forget("one")
    told.append(sorted(ray.get(heard.remote("one"))))
print(told)
"""


def test_a_trial_hears_what_it_gave_away():
    """Asked in another process, as a trial is one."""
    env = {**os.environ, "RAY_ADDRESS": "local"}
    said = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=env)
    assert said.returncode == 0, said.stderr
    told = [[], ["a", "b"], ["a", "b", "c"], [], []]
    assert said.stdout.strip().splitlines()[-1] == str(told)


def test_without_ray_nothing_was_given_away():
    assert not ray.is_initialized()
    assert handover.reassigned("one") == set()
    handover.forget("one")
