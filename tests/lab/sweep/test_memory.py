"""A run that takes too much memory fails alone: Ray kills its workers, and the others go on."""

import pytest
from ray._common.utils import get_system_memory
from ray._private.utils import get_used_memory

import lmzoo

from .processes import finish, kill, start

FREE = 4 * 2**30
"""Bytes that the sweep may take before Ray kills a worker; other programs take some, too."""
STUDY = """
import time

from lmzoo import Point, Study, main


def train(settings, seed, epochs):
    for epoch in range(1, epochs + 1):
        taken = b"1" * settings["bytes"]
        time.sleep(0.3)
        yield {"epoch": epoch, "valid": seed + 1 / epoch, "test": 1.0 * len(taken)}


POINTS = Point("modest", train, {"bytes": 1}), Point("greedy", train, {"bytes": GREEDY})
STUDY = Study(name="memory", question="Which fits?", points=POINTS, seeds=2, epochs=3)
if __name__ == "__main__":
    main(STUDY)
"""


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("ray")
@pytest.mark.parametrize("engine", ["packs", "tune"])
def test_a_run_that_takes_too_much_memory_fails_alone(tmp_path, monkeypatch, engine):
    limit = (get_used_memory() + FREE) / get_system_memory()
    monkeypatch.setenv("RAY_memory_usage_threshold", f"{limit:.4f}")
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "100")
    script = tmp_path / "study.py"
    script.write_text(f"GREEDY = {2 * FREE}\n{STUDY}")
    driver = start(script, "--out", str(tmp_path), "--engine", engine)
    try:
        code, out, err = finish(driver, 500)
    finally:
        kill(driver)
    assert code == 1, err
    assert "failed: greedy" in err
    assert "Ray killed the worker because the memory of its node" in err
    # A traceback of Ray would name its modules.
    assert "ray." not in out + err
    runs = lmzoo.runs(tmp_path / "memory")
    assert {*runs.filter(label="modest")["status"]} == {"finished"}
    assert {*runs.filter(label="greedy")["status"]} == {"failed"}
