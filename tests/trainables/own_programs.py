"""A function and a script as users write them: gradient descent on a parabola, with a state."""

import json
import os
import random
import sys
from pathlib import Path

LOSSES = {"valid": 0.05, "test": 0.04}  # metric -> size of its noise


def descend(w: float, lr: float) -> float:
    return w - 2 * lr * w


def report_of(w: float, seed: int, epoch: int, shift: float = 0.0) -> dict:
    report = {"epoch": epoch}
    noise = random.Random(1000 * seed + epoch)
    for name, size in LOSSES.items():
        report[name] = 2 + shift + w * w + size * noise.random()
    return report


def train(settings, seed, resume):
    """Descend; the state is the weight and the epoch."""
    w = 1.0
    done = 0
    if resume:
        w, done = resume
    shift = settings.get("shift", 0.0)
    for epoch in range(done + 1, 1000):
        w = descend(w, settings["lr"])
        yield report_of(w, seed, epoch, shift), (w, epoch)


def train_without_state(settings, seed):
    """Descend from the beginning."""
    w = 1.0
    for epoch in range(1, 1000):
        w = descend(w, settings["lr"])
        yield report_of(w, seed, epoch)


def train_untested(settings, seed):
    for epoch in range(1, 1000):
        yield {"epoch": epoch, "valid": 0.1 / epoch + seed / 1000}


def accuracy(settings, seed, epochs):
    """Return one number: the higher the better."""
    return 90 + settings["lr"] + random.Random(seed).random() + epochs / 100


def run_script(lr: float, seed: int, *, ahead: bool = False):
    """Descend, and keep the state in a file; `ahead`: save before the report."""
    file = Path(os.environ["LMZOO_FOLDER"], "state.json")
    w = 1.0
    done = 0
    if file.exists():
        w, done = json.loads(file.read_text())
    for epoch in range(done + 1, 1000):
        w = descend(w, lr)
        report = json.dumps(report_of(w, seed, epoch))
        if not ahead:
            sys.stdout.write(report + "\n")
        # A script that dies while it writes still has the state before.
        new = file.with_suffix(".new")
        new.write_text(json.dumps([w, epoch]))
        new.replace(file)
        if ahead:
            sys.stdout.write(report + "\n")


if __name__ == "__main__":
    run_script(float(sys.argv[1]), int(sys.argv[2]), ahead="ahead" in sys.argv)
