"""A sweep of a row, a function and a command on two workers, killed three times.

`test_programs.py` sees faults of the programs without Ray, `test_interrupted_sweep.py` those of the
sweep.
"""

import os
import signal
from pathlib import Path

import pytest

from lmzoo.lab.analysis.ranking_table import study_ranking
from tests.lab.sweep.processes import (
    epochs_on_disk,
    finish,
    kill,
    kill_worker,
    start,
    wait_until,
)
from tests.toy_study import sentences as sentences

pytestmark = [
    *(pytest.mark.slow, pytest.mark.ray),
    *(pytest.mark.timeout(600), pytest.mark.xdist_group("ray")),
]

STUDY = """
import time
from pathlib import Path

from lmzoo import Point, main
from tests.trainables.test_programs import POINTS, SPACE, own_study
from tests.toy_study import toy_study


def slow(settings, seed, resume):
    for report in POINTS[0].row(settings, seed, resume):
        time.sleep(0.05)
        yield report


if __name__ == "__main__":
    toy = toy_study(Path({sentences!r}))
    points = (toy.points[0], Point("function", slow), *POINTS[3:])
    main(own_study(points, corpus=toy.corpus, fields=toy.fields, epochs=20, seeds=3,
                   search={{**toy.search, **SPACE}}))
"""


def test_three_kills_do_not_change_the_table(sentences, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    script = tmp_path / "own_sweep.py"
    script.write_text(STUDY.format(sentences=str(sentences)))
    options = ("--max-concurrent", "2", "--quiet", "--fuse", "off", "--storage")

    def store(name: str) -> Path:
        return next((tmp_path / name).glob("own-text-*"), tmp_path / name)

    def trained_since(before: int) -> bool:
        return epochs_on_disk(store("killed")) >= before + 8

    code, _, err = finish(start(script, *options, str(tmp_path / "whole")))
    assert code == 0, err

    driver = start(script, *options, str(tmp_path / "killed"))
    try:
        for _ in range(2):
            before = epochs_on_disk(store("killed"))
            wait_until(lambda before=before: trained_since(before))
            assert kill_worker(driver.pid)
        before = epochs_on_disk(store("killed"))
        wait_until(lambda: trained_since(before))
        os.kill(driver.pid, signal.SIGKILL)
        driver.communicate()
    finally:
        kill(driver)
    code, _, err = finish(start(script, *options, str(tmp_path / "killed")))
    assert code == 0, err

    whole, killed = (study_ranking(store(name)).frame for name in ("whole", "killed"))
    assert whole.drop("seconds").equals(killed.drop("seconds"))
