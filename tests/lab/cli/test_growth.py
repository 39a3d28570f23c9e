"""The commands on a store read each file once: counts of calls at two sizes, no times."""

import os
import zipfile
from collections import Counter

import numpy as np
import pytest

from lmzoo.lab.store import archive
from tests.lab.analysis.toy_study import ToyStudy

SMALL, FACTOR = 6, 4
COMMANDS = {
    "rank": (),
    "report": ("--out", "page.html"),
    "figure": ("--out", "forest.svg"),
    "plan": ("--effect", "0.1"),
}


def store_of(folder, seeds):
    """Write a study with these seeds of two points, half of the runs in archives of one run."""
    toy = ToyStudy(folder)
    random = np.random.default_rng(0)
    for name, level in (("full", 3.0), ("gate", 3.2)):
        losses = level + 0.1 * random.normal(size=seeds)
        runs = toy.add_point(name, [*map(float, losses)])
        for run in runs[::2]:
            archive.archive_runs(toy.path, [run])
    return toy.path


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    return [store_of(folder / str(n), n) for n in (SMALL, SMALL * FACTOR)]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_calls_of_a_command_grow_with_the_runs(
    command, stores, lmzoo, tmp_path, monkeypatch, no_charts
):
    monkeypatch.chdir(tmp_path)
    calls = Counter()
    for place, name in ((os, "stat"), (os, "open"), (os, "scandir"), (zipfile.ZipFile, "read")):
        real = getattr(place, name)

        def counted(*args, real=real, name=name, **options):
            calls[name] += 1
            return real(*args, **options)

        monkeypatch.setattr(place, name, counted)
    totals = []
    for store in stores:
        archive._open.cache_clear()
        calls.clear()
        assert lmzoo(command, store, *COMMANDS[command])[0] == 0
        totals.append(sum(calls.values()))
    assert totals[1] < 1.2 * FACTOR * totals[0], "each archive is listed for each run"
