"""Whole reports of `lmzoo judge` and `lmzoo plan`, as they are in `reports.txt`."""

import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest

EXPECTED = Path(__file__).with_name("reports.txt")
COMMANDS = re.findall(r"^\$ lmzoo (.*)$", EXPECTED.read_text(), re.M)


def write_runs(path: Path) -> None:
    rng, rows = np.random.default_rng(0), []
    common = rng.normal(0, 0.02, 6)
    for table, scale in (("a", 0.004), ("b", 0.02)):
        effects = {"base": 0.0, "wider": -0.03, "no_gate": 0.05, "init": 0.001, "slow": 0.02}
        for variant, effect in effects.items():
            losses = 2 + effect + common + scale * rng.normal(size=6)
            rows += [
                {"table": table, "variant": variant, "seed": seed, "loss": f"{loss:.6f}"}
                for seed, loss in enumerate(losses)
            ]
    rows[7]["loss"], rows[8]["loss"], rows[20]["loss"] = "", "nan", "inf"
    rows.append({"table": "b", "variant": "once", "seed": 0, "loss": "2.5"})
    rows.append({"table": "b", "variant": None, "seed": 1, "loss": "2.5"})
    pl.DataFrame(rows).write_csv(path)
    pl.DataFrame(rows[:30]).write_csv(path.with_name("a.csv"))
    pl.DataFrame(rows[30:]).write_csv(path.with_name("b.csv"))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_report_is_the_expected_one(command, lmzoo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    write_runs(Path("runs.csv"))
    code, out, err = lmzoo(*shlex.split(command))
    report = f"$ lmzoo {command}\n{out}"
    said = [line for line in err.splitlines() if not line.startswith("reading ")]  # after 2 s
    assert (code, said) == (0, [])
    assert report in EXPECTED.read_text(), report
