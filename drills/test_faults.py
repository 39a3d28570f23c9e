"""Faults during a sweep lose no epoch, repeat none and change no result."""

# ruff: noqa: F811  pytest needs the imported fixtures as parameter names
import dataclasses
import time
from collections import Counter

import pytest

from drills.cluster import study_folder
from drills.faults import KINDS, FaultySweep, lines
from tests.lab.store.small_disk import small_disk
from tests.lab.sweep.local_sweep import sweep
from tests.lab.sweep.processes import ROOT
from tests.toy_study import corpus, corpus_fields, sentences, study  # noqa: F401

EPOCHS = 240
"""So many that the sweep lasts longer than the faults: an epoch takes milliseconds."""
TIMES = ("seconds", "tokens_per_second", "time", "environment")


def longer(study, epochs, samples):
    """Return the changes that make the study long enough for all faults."""
    fields = {**study.fields, "recipe.batch": 2}
    return {"epochs": epochs, "samples": samples, "seeds": 3, "grace": 2, "fields": fields}


def run_with_faults(faults, seed, changes, script, disk, study, corpus, fields, undisturbed):
    """Inject faults into a sweep and compare its records with those of an undisturbed one."""
    started = time.monotonic()
    text = study.corpus.removeprefix("text:")
    faulty = FaultySweep(script, disk, study_folder("toy", text), seed)
    try:
        faulty.inject(faults)
        faulty.finish()
    finally:
        faulty.close()
    assert sweep(dataclasses.replace(study, **changes), corpus, fields, undisturbed)

    records, expected = count_records(faulty.store), count_records(undisturbed)
    lost, unexpected = expected - records, records - expected
    print(  # noqa: T201  the result of `make drill-faults`
        f"\n{dict(Counter(faulty.injected))}, {faulty.starts} starts, {faulty.stuck} stuck; "
        f"{len(faulty.epochs())} epochs of {len(faulty.statuses())} runs, "
        f"{sum(lost.values())} records lost, {sum(unexpected.values())} repeated or different; "
        f"{sum(line['event'] == 'note' for _, line in lines(faulty.store))} notes; "
        f"{time.monotonic() - started:.0f} s"
    )
    assert not lost
    assert not unexpected
    return faulty


def count_records(store):
    """Count equal records, ignoring times, notes and failed ends."""
    return Counter(
        (run, *sorted((k, repr(v)) for k, v in line.items() if k not in TIMES))
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
            "from lmzoo import main\n"
            "from tests.toy_study import toy_study\n"
            "if __name__ == '__main__':\n"
            f"    study = toy_study(Path({str(sentences)!r}))\n"
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
    changes = longer(study, epochs=EPOCHS, samples=faults // 5 + 3)
    undisturbed = tmp_path / "undisturbed"
    args = changes, script(changes), disk, study, corpus, corpus_fields, undisturbed
    injected = run_with_faults(faults, 1, *args).injected
    assert Counter(injected) == dict.fromkeys(KINDS, faults // len(KINDS))
