"""A sweep under Ray, killed in every way, ends as one that nobody disturbed."""

import dataclasses
import json
import signal

import pytest

from lmzoo.store.records import STUDY

from .byhand import agree, outcome, sweep
from .processes import (
    descendants,
    epochs_on_disk,
    finish,
    kill_a_trial,
    listening,
    start,
    wait_until,
)

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600), pytest.mark.xdist_group("ray")]

LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


@pytest.mark.parametrize(
    ("fuse", "epochs"), [("off", 4), pytest.param("auto", 12, marks=pytest.mark.slow)]
)
def test_sigkill_of_driver_and_worker_sigterm_and_then_the_same_table(
    script, tmp_path, study, corpus, corpus_fields, fuse, epochs
):
    """To the bit where nothing is fused; else as near as another order of summing leaves."""
    store = tmp_path / "runs" / "toy-text"
    study = dataclasses.replace(study, epochs=epochs)  # fused, four are over before they are struck
    where = ("--storage", str(tmp_path / "runs"))
    options = (*where, "--json", "--fuse", fuse, "--epochs", str(epochs))

    driver = start(script, *options)
    wait_until(lambda: epochs_on_disk(store) >= 5)
    below = set(descendants(driver.pid))
    open_to = set(listening(below | {driver.pid}))
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    assert open_to, "Ray listens nowhere: the check sees nothing"
    assert open_to <= LOOPBACK

    before = epochs_on_disk(store)
    driver = start(script, *options)
    wait_until(lambda: epochs_on_disk(store) >= before + 5)
    wait_until(lambda: kill_a_trial(driver.pid))
    wait_until(lambda: epochs_on_disk(store) >= before + 12)
    driver.send_signal(signal.SIGTERM)
    code, _, err = finish(driver)
    assert code == 130, err
    assert "the same command goes on from here" in err

    code, out, err = finish(start(script, *options))
    assert code == 0, err
    assert {json.loads(line)["status"] for line in out.splitlines()} <= {"finished", "pruned"}
    assert out, "no run said on stdout that it has ended"

    undisturbed = tmp_path / "byhand"
    assert sweep(study, corpus, corpus_fields, undisturbed)
    if fuse == "off":
        assert outcome(store) == outcome(undisturbed)
    agree(outcome(store), outcome(undisturbed))
    assert (store / STUDY).read_text() == (undisturbed / STUDY).read_text()

    code, out, err = finish(start(script, *options))
    assert (code, out) == (0, "")
    assert "nothing left to do" in err
