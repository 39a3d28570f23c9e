"""SIGKILL of the driver at every stage of a sweep: the same command continues, with no other digit.

The stages are known from the driver's output and from the store.
"""

# ruff: noqa: F811  pytest needs the imported fixtures as parameter names
from collections.abc import Callable
from pathlib import Path

from drills.cluster import ENGINE, study_folder
from lmzoo.lab.store.records import CONFIG, RECORDS, STUDY, read_json
from tests.lab.sweep.conftest import script  # noqa: F401
from tests.lab.sweep.local_sweep import outcome
from tests.lab.sweep.processes import descendants, finish, start, wait_until
from tests.toy_study import corpus, corpus_fields, sentences, study, undisturbed  # noqa: F401


def ended(store: Path, stage: str) -> int:
    """Return the number of runs of a stage that have ended."""
    ends = [path.parent for path in store.glob(f"*/{RECORDS}") if '"end"' in path.read_text()]
    return sum(read_json(folder / CONFIG)["stage"] == stage for folder in ends)


def stages(log: Path, store: Path, driver: int) -> dict[str, Callable[[], bool]]:
    """Return the stages in their order, and whether each has begun."""
    text = log.read_text
    return {
        "the corpus is read": lambda: "loading torch" in text(),
        "Ray starts": lambda: "starting Ray" in text(),
        "the store is there": lambda: (store / STUDY).exists(),
        "a run has a config": lambda: any(store.glob(f"*/{CONFIG}")),
        "a run has records": lambda: any(store.glob(f"*/{RECORDS}")),
        "a tune run has ended": lambda: ended(store, "tune") > 0,
        "half of the tune runs have ended": lambda: ended(store, "tune") >= 6,
        "a confirm run has ended": lambda: ended(store, "confirm") > 0,
        "many confirm runs have ended": lambda: ended(store, "confirm") >= 6,
        "the ranking begins": lambda: any(
            "\0rank\0" in own for own in descendants(driver).values()
        ),
    }


def test_a_driver_killed_at_every_stage_changes_no_digit(script, sentences, undisturbed, tmp_path):
    store = tmp_path / "runs" / study_folder("toy", sentences)
    options = ("--out", str(tmp_path / "runs"), "--fuse", "off", *ENGINE)
    killed = []
    for number, stage in enumerate(stages(tmp_path, store, 0)):
        path = tmp_path / f"log-{number}"
        with path.open("w") as log:
            driver = start(script, *options, out=log)
        begun = stages(path, store, driver.pid)[stage]
        try:
            wait_until(lambda d=driver, b=begun: b() or d.poll() is not None)
            if driver.poll() is None:
                killed.append(stage)
            else:
                assert driver.returncode == 0, path.read_text()
        finally:
            driver.kill()
            driver.wait()
    assert len(killed) >= 8, killed
    code, _, err = finish(start(script, *options))
    assert code == 0, err
    assert outcome(store) == outcome(undisturbed)
