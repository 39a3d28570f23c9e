"""Thirty faults over one sweep: no epoch lost, none doubled, every run ends as if undisturbed."""

# ruff: noqa: F811  fixtures are imported, and then asked for by their names
import dataclasses
import time
from collections import Counter

import pytest

from drills.faults import KINDS, Faulty, lines, small_disk
from tests.sweep.byhand import sweep
from tests.sweep.conftest import corpus, corpus_fields, sentences, study  # noqa: F401
from tests.sweep.processes import ROOT

TIMED = ("seconds", "tokens_per_second")


def long(study, epochs, samples):
    """What makes the study long enough to be struck so often."""
    fields = {**study.fields, "recipe.batch": 2}
    return {"epochs": epochs, "samples": samples, "seeds": 3, "grace": 2, "fields": fields}


def strike(faults, seed, changes, script, disk, study, corpus, fields, undisturbed):
    """Strike the sweep of the changed study, and compare it with the undisturbed one."""
    began = time.monotonic()
    faulty = Faulty(script, disk, "toy-text", seed)
    try:
        faulty.suffer(faults)
        faulty.finish()
    finally:
        faulty.close()
    assert sweep(dataclasses.replace(study, **changes), corpus, fields, undisturbed)

    found, expected = counted(faulty.store), counted(undisturbed)
    lost, doubled = expected - found, found - expected
    print(  # noqa: T201  what `make drill-faults` is for
        f"\n{dict(Counter(faulty.done))}, {faulty.starts} starts, {faulty.stuck} stuck; "
        f"{len(faulty.epochs())} epochs of {len(faulty.statuses())} runs, "
        f"{sum(lost.values())} records lost, {sum(doubled.values())} doubled or other; "
        f"{sum(line['event'] == 'note' for _, line in lines(faulty.store))} notes; "
        f"{time.monotonic() - began:.0f} s"
    )
    assert not lost
    assert not doubled
    return faulty


def counted(store):
    """How often each record is there, apart from the clock, notes and ends that did not last."""
    return Counter(
        (run, *sorted((k, repr(v)) for k, v in line.items() if k not in TIMED))
        for run, line in lines(store)
        if line["event"] != "note" and line.get("status") != "failed"
    )


@pytest.fixture
def script(tmp_path, sentences, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def write(changes):
        path = tmp_path / "toy.py"
        path.write_text(
            "import dataclasses\n"
            "from pathlib import Path\n"
            "from lmzoo.sweep import main\n"
            "from tests.sweep.conftest import _study\n"
            "if __name__ == '__main__':\n"
            f"    study = _study(Path({str(sentences)!r}))\n"
            f"    main(dataclasses.replace(study, **{changes!r}))\n"
        )
        return path

    return write


@pytest.fixture
def disk(tmp_path):
    try:
        with small_disk(tmp_path / "disk", 24) as path:
            yield path
    except PermissionError as error:
        pytest.skip(f"{error}; the drill needs root")


@pytest.mark.timeout(14400)
@pytest.mark.parametrize("faults", [len(KINDS), 30])
def test_faults_change_no_digit(faults, script, disk, study, corpus, corpus_fields, tmp_path):
    changes = long(study, epochs=2 * faults, samples=faults // 5 + 3)
    undisturbed = tmp_path / "undisturbed"
    args = changes, script(changes), disk, study, corpus, corpus_fields, undisturbed
    assert Counter(strike(faults, 1, *args).done) == dict.fromkeys(KINDS, faults // len(KINDS))
