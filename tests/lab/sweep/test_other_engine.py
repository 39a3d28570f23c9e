"""A sweep that is stopped and continued by the other engine decides as the undisturbed one."""

import signal

import pytest

import lmzoo

from .processes import epochs_on_disk, finish, kill, start, wait_until

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("ray"),
]

STUDY = """
import math
import random
import time

from lmzoo import FloatRange, Point, Study, main


def train(settings, seed, epochs):
    noise = random.Random(f"{seed}-{sorted(settings.items())}")
    rate = 0.1 * (math.log10(settings["lr"]) + 2) ** 2
    for epoch in range(1, epochs + 1):
        time.sleep(0.2)
        loss = 1 + 0.3 * settings["kind"] + rate + 1 / epoch + noise.gauss(0, 0.01)
        yield {"epoch": epoch, "valid": loss, "test": loss + 0.01}


STUDY = Study(
    name="fn",
    question="Which kind?",
    points=tuple(Point(f"kind {kind}", train, {"kind": kind}) for kind in range(3)),
    search={"lr": FloatRange(1e-3, 1e-1, log=True)},
    samples=4,
    seeds=2,
    epochs=4,
    unit="nats",
)
if __name__ == "__main__":
    main(STUDY)
"""
MOMENTS = {
    "start design": lambda store, log: epochs_on_disk(store) >= 5,
    "halving": lambda store, log: log.count('"pruned"') + log.count('"finished"') >= 2,
    "confirm": lambda store, log: '"confirm"' in log,
}
"""When a sweep is stopped, by its store and by what it has printed."""


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    path = tmp_path_factory.mktemp("engines") / "study.py"
    path.write_text(STUDY)
    return path


def options(folder, engine):
    return ("--out", str(folder), "--json", "--engine", engine)


def decisions(folder):
    """Return what each run and each point came to, without the time that it took."""
    runs = lmzoo.runs(folder / "fn").drop("seconds", "folder").sort("run").to_dicts()
    return runs, lmzoo.rank(folder / "fn").drop("seconds").to_dicts()


@pytest.fixture(scope="module")
def undisturbed(study, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    code, _, err = finish(start(study, *options(folder, "packs")))
    assert code == 0, err
    return decisions(folder)


@pytest.mark.parametrize("engines", [("packs", "tune"), ("tune", "packs")])
@pytest.mark.parametrize("numbers", [("SIGTERM", "SIGKILL"), ("SIGKILL", "SIGTERM")])
def test_engines_that_alternate_decide_as_an_undisturbed_sweep(
    study, tmp_path, undisturbed, engines, numbers
):
    stopped = []
    for turn, (moment, reached) in enumerate(MOMENTS.items()):
        log = tmp_path / f"{turn}.log"
        with log.open("w") as out:
            driver = start(study, *options(tmp_path, engines[turn % 2]), out=out)
        try:
            wait_until(
                lambda d=driver, r=reached, o=log: (
                    d.poll() is not None or r(tmp_path / "fn", o.read_text())
                )
            )
            if driver.poll() is None:
                stopped.append(moment)
            driver.send_signal(getattr(signal, numbers[turn % 2]))
            driver.communicate(timeout=120)
        finally:
            kill(driver)
    # Or it was too late, and an engine had nothing to continue.
    assert stopped == [*MOMENTS]
    code, out, err = finish(start(study, *options(tmp_path, engines[1])))
    # A user of the engine need not know Ray.
    said = out + err.replace("starting Ray", "")
    assert code == 0, said
    assert "ray" not in said.lower(), said
    assert "Trial" not in said, said
    assert decisions(tmp_path) == undisturbed
