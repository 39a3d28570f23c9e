"""A sweep under Ray whose processes are killed ends with the records of an undisturbed sweep."""

import dataclasses
import json
import os
import signal

import pytest

from lmzoo.base.search_space import parse_range
from lmzoo.lab.store.records import STUDY, read_json
from lmzoo.lab.sweep.driver.execution import DEATH
from lmzoo.trainables.resolve import store_name

from .local_sweep import assert_close, outcome, sweep
from .processes import epochs_on_disk, find_below, finish, kill_worker, start, wait_until

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600), pytest.mark.xdist_group("ray")]

RATES = "0.0003:0.003:log"
"""At higher rates, differences by the order of summation grow during so many epochs."""


@pytest.mark.parametrize(
    ("fuse", "samples", "seeds", "epochs"),
    [("off", 1, 2, 40), pytest.param("auto", 4, 24, 60, marks=pytest.mark.slow)],
)
def test_killed_processes_do_not_change_the_results(
    script, tmp_path, study, corpus, corpus_fields, fuse, samples, seeds, epochs
):
    """Without packs the records are equal; with packs they differ by the order of summation.

    There are so many epochs that the sweep still runs when its processes are killed.
    """
    store = tmp_path / "runs" / store_name(study.name, corpus_fields, corpus.fingerprint)
    search = study.search | {"recipe.lr": parse_range(RATES)}
    study = dataclasses.replace(study, epochs=epochs, samples=samples, seeds=seeds, search=search)
    options = ["--out", str(tmp_path / "runs"), "--json", "--fuse", fuse]
    options += f"--epochs {epochs} --samples {samples} --seeds {seeds}".split()
    options += ["--search-space", f"recipe.lr={RATES}"]

    driver = start(script, *options)
    # Then the sweep has something to lose.
    wait_until(lambda: epochs_on_disk(store) >= 5)
    if fuse == "off":  # as `ray stop` does; Ray's core then ends the driver
        raylets = find_below(driver.pid, "/raylet/raylet")
        os.kill(raylets[0], signal.SIGTERM)
    else:
        driver.send_signal(signal.SIGKILL)
    code, out, err = finish(driver)
    assert code != 0
    assert err.splitlines()[-1] == DEATH

    before = epochs_on_disk(store)
    driver = start(script, *options)
    wait_until(lambda: epochs_on_disk(store) >= before + 5)
    wait_until(lambda: kill_worker(driver.pid))
    code, out, err = finish(driver)
    assert code == 0, err
    assert {json.loads(line)["status"] for line in out.splitlines()} <= {"finished", "pruned"}

    undisturbed = tmp_path / "undisturbed"
    assert sweep(study, corpus, corpus_fields, undisturbed)
    if fuse == "off":
        assert outcome(store) == outcome(undisturbed)
    assert_close(outcome(store), outcome(undisturbed), tolerance=1e-3)
    killed = read_json(store / STUDY)
    whole = read_json(undisturbed / STUDY)
    # The study of the killed sweep was in a script.
    assert killed["script"] == ["python", str(script)]
    assert killed["given"] == options
    assert killed == whole | {"script": killed["script"], "given": options}

    # All runs have ended.
    code, out, err = finish(start(script, *options))
    assert code == 0
    assert out == ""
    assert "nothing left to do" in err
