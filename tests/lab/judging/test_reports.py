"""Whole reports of `lmzoo judge` and `lmzoo plan`, as they are in `reports.txt`."""

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

EXPECTED = Path(__file__).with_name("reports.txt")
COMMANDS = re.findall(r"^\$ lmzoo (.*)$", EXPECTED.read_text(), re.M)


EFFECTS = {"base": 0.0, "wider": -0.03, "no_gate": 0.05, "init": 0.001, "slow": 0.02}


def runs() -> list[dict[str, Any]]:
    """Return the runs of a quiet table and of a loud one; some have no number."""
    rng = np.random.default_rng(0)
    # What the variants share at a seed.
    common = rng.normal(0, 0.02, 6)
    rows = []
    for table, scale in (("a", 0.004), ("b", 0.02)):
        for variant, effect in EFFECTS.items():
            losses = 2 + effect + common + scale * rng.normal(size=6)
            for seed, loss in enumerate(losses):
                rows.append(row(table, variant, seed, f"{loss:.6f}"))
    # Missing and diverged runs.
    rows[7]["loss"] = ""
    rows[8]["loss"] = "nan"
    rows[20]["loss"] = "inf"
    rows.append(row("b", "once", 0, "2.5"))
    rows.append(row("b", None, 1, "2.5"))
    return rows


def row(table: str, variant: str | None, seed: int, loss: str) -> dict[str, Any]:
    return {"table": table, "variant": variant, "seed": seed, "loss": loss}


@pytest.fixture
def folder_of_runs(tmp_path, monkeypatch):
    """The folder in which the commands run: both tables, and each alone."""
    rows = runs()
    monkeypatch.chdir(tmp_path)
    pl.DataFrame(rows).write_csv("runs.csv")
    pl.DataFrame(rows[:30]).write_csv("a.csv")
    pl.DataFrame(rows[30:]).write_csv("b.csv")


@pytest.mark.usefixtures("folder_of_runs")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_report_is_the_expected_one(command, lmzoo, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    code, out, err = lmzoo(*shlex.split(command))
    report = f"$ lmzoo {command}\n{out}"
    # A busy machine says after two seconds what it reads.
    said = [line for line in err.splitlines() if not line.startswith("reading ")]
    assert code == 0
    assert said == []
    assert report in EXPECTED.read_text(), report
