"""A sweep under Ray whose processes are killed ends with the records of an undisturbed sweep."""

import dataclasses
import json
import os
import signal

import pytest

from lmzoo.base.search_space import parse_range
from lmzoo.lab.store.records import STUDY, read_json
from lmzoo.trainables.store_name import store_name

from .local_sweep import assert_close, outcome, sweep
from .processes import (
    actors,
    descendants,
    epochs_on_disk,
    finish,
    kill_worker,
    listening,
    start,
    wait_until,
)

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600), pytest.mark.xdist_group("ray")]

RATES = "0.0003:0.003:log"
"""At higher rates, differences by the order of summation grow during so many epochs."""
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def ended_runs(store):
    return sum('"event": "end"' in path.read_text() for path in store.glob("*/records.ndjson"))


@pytest.mark.parametrize(
    ("fuse", "samples", "seeds", "epochs"),
    [("off", 1, 2, 40), pytest.param("auto", 4, 24, 60, marks=pytest.mark.slow)],
)
def test_killed_processes_and_sigterm_do_not_change_the_results(
    script, tmp_path, study, corpus, corpus_fields, fuse, samples, seeds, epochs
):
    """Without packs the records are equal; with packs they differ by the order of summation.

    There are so many epochs that the sweep still runs when its processes are killed.
    """
    store = tmp_path / "runs" / store_name(study.name, corpus_fields)
    search = {**study.search, "recipe.lr": parse_range(RATES)}
    study = dataclasses.replace(study, epochs=epochs, samples=samples, seeds=seeds, search=search)
    storage = ("--storage", str(tmp_path / "runs"))
    options = (*storage, "--json", "--fuse", fuse, "--epochs", str(epochs))
    options += ("--samples", str(samples), "--seeds", str(seeds))
    options += ("--search-space", f"recipe.lr={RATES}")

    driver = start(script, *options)
    wait_until(lambda: epochs_on_disk(store) >= 5)
    below = set(descendants(driver.pid))
    addresses = set(listening(below | {driver.pid}))
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    assert addresses, "Ray listens on no address, so nothing was tested"
    assert addresses <= LOOPBACK

    before = epochs_on_disk(store)
    driver = start(script, *options)
    wait_until(lambda: epochs_on_disk(store) >= before + 5)
    wait_until(lambda: kill_worker(driver.pid))
    (mailbox,) = actors(driver.pid, "Mailbox")
    os.kill(mailbox, signal.SIGKILL)
    killed_at = epochs_on_disk(store)
    wait_until(lambda: epochs_on_disk(store) > killed_at)
    driver.send_signal(signal.SIGTERM)
    code, _, err = finish(driver)
    assert code == 130, f"{code}: {err}"
    assert "run the same command again to continue" in err

    ended = ended_runs(store)  # all, if they ended while the sweep did
    code, out, err = finish(start(script, *options))
    assert code == 0, err
    assert {json.loads(line)["status"] for line in out.splitlines()} <= {"finished", "pruned"}
    assert bool(out) == (ended_runs(store) > ended)

    undisturbed = tmp_path / "undisturbed"
    assert sweep(study, corpus, corpus_fields, undisturbed)
    if fuse == "off":
        assert outcome(store) == outcome(undisturbed)
    assert_close(outcome(store), outcome(undisturbed), tolerance=1e-3)
    # The study of the killed sweep was in a script.
    studies = [read_json(path / STUDY) for path in (store, undisturbed)]
    assert [study.pop("script") for study in studies] == [["python", str(script)], []]
    assert [study.pop("given") for study in studies] == [list(options), []]
    assert studies[0] == studies[1]

    code, out, err = finish(start(script, *options))
    assert (code, out) == (0, "")
    assert "nothing left to do" in err
