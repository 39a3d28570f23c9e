"""The commands on a store are linear in its runs: counts of calls and of lines, no times."""

import json
import os
import sys
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import lmzoo
from lmzoo.lab.analysis import load, stored
from lmzoo.lab.analysis.report.figure import WRITERS
from lmzoo.lab.store import archive
from tests.cases import rows
from tests.lab.analysis.toy_study import ToyStudy

SIZES = (8, 16, 32)
FILES = ((os, "stat"), (os, "open"), (os, "scandir"), (zipfile.ZipFile, "read"))
HERE = str(Path(lmzoo.__file__).parent)
COMMANDS = rows("lab/cli/cases.toml", "growing")
MOST = 2.25
"""From 16 to 32 runs, a linear command gains twice of what it gains from 8 to 16; n² four times."""


def store_of(folder, seeds):
    """Write a study with these seeds of two points, half of the runs in archives of one run."""
    toy = ToyStudy(folder)
    random = np.random.default_rng(0)
    lines = ["variant,seed,loss"]
    for name, level in (("full", 3.0), ("gate", 3.2)):
        losses = level + 0.1 * random.normal(size=seeds)
        runs = toy.add_point(name, [*map(float, losses)])
        for run in runs[::2]:
            archive.archive_runs(toy.path, [run])
        lines += [f"{name},{seed},{loss}" for seed, loss in enumerate(losses)]
    folder.with_name(f"{folder.name}.csv").write_text("\n".join(lines) + "\n")
    return toy.path


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    return [store_of(folder / str(n), n) for n in SIZES]


@pytest.fixture
def calls(monkeypatch):
    """Count calls of the file system."""
    found = Counter()
    for place, name in FILES:
        real = getattr(place, name)

        def counted(*args, real=real, name=name, **options):
            found[name] += 1
            return real(*args, **options)

        monkeypatch.setattr(place, name, counted)
    return found


def lines_of(command):
    """Run a command; return what it returns, and the lines of lmzoo that were executed."""
    count = 0

    def trace(frame, event, value):
        nonlocal count
        if not frame.f_code.co_filename.startswith(HERE):
            return None
        count += event == "line"
        return trace

    # That of the coverage, if it is measured.
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return command(), count
    finally:
        sys.settrace(before)


def gains(stores, run, words, calls):
    """Return by how much calls and lines grow, from the first size to the second and the third."""
    totals = []
    for store in stores:
        # An archive that is open is not read again.
        archive._open.cache_clear()
        calls.clear()
        own = [word.replace("STORE", str(store)) for word in words]
        answer, lines = lines_of(lambda own=own: run(*own))
        code, _, err = answer
        assert code == 0, err
        totals.append((sum(calls.values()), lines))
    small, middle, large = np.array(totals)
    return middle - small, large - middle


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_linear_in_the_runs(
    command, stores, lmzoo, tmp_path, monkeypatch, no_charts, calls
):
    monkeypatch.chdir(tmp_path)
    # To draw and to check a chart takes seconds, whatever the runs.
    monkeypatch.setitem(WRITERS, ".svg", json.dumps)
    if command == "rank of a file":
        for store in stores:
            assert lmzoo("records", "save", store, f"{store}.parquet")[0] == 0
    lmzoo(*(word.replace("STORE", str(stores[0])) for word in COMMANDS[command]))  # imports
    first, second = gains(stores, lmzoo, COMMANDS[command], calls)
    assert (second <= MOST * first + 10).all(), (first, second)


def test_a_quadratic_loop_is_seen(stores, lmzoo, monkeypatch, no_charts, calls):
    row_of = load._run_row
    records_of = stored._records
    seen = []

    def compared(config):
        seen.append(config)
        return row_of(next(other for other in seen if other is config))

    def listed(own, run):
        archive.archives(own._path.parents[1])
        return records_of(own, run)

    monkeypatch.setattr(sys.modules[__name__], "HERE", str(Path(__file__).parents[3]))
    for place, name, fault, kind in (
        (load, "_run_row", compared, 1),
        (stored, "_records", listed, 0),
    ):
        with monkeypatch.context() as planted:
            planted.setattr(place, name, fault)
            first, second = gains(stores, lmzoo, COMMANDS["rank"], calls)
        assert second[kind] > MOST * first[kind] + 10, (name, first, second)
