"""The toy's script: S2's tables digit for digit, runs made once, gaps shown as gaps."""

import csv
import fcntl
import runpy
import sys
from pathlib import Path

import pytest

from lmzoo.experiments import transformer_toy_grid as transformer_toy
from lmzoo.experiments.transformer_toy_grid import SETTINGS, describe, main, table, train
from lmzoo.store.records import RunFolder

SMALL = {"steps": 10, "tests": 2}
SEEDS = Path(__file__).parents[3] / "shared" / "seed_tables"


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two settings of a small model."""
    tiny = {"layers": 1, "width": 8, "hidden": 8}
    settings = [
        transformer_toy.Setting("warm", "0.10", tiny, {"lr": 0.1}),
        transformer_toy.Setting("cold", "3.37", tiny, {"warmup": 0, "lr": 1.0}),
    ]
    monkeypatch.setattr(transformer_toy, "SETTINGS", settings)


def run_main(store: Path, capsys: pytest.CaptureFixture, **options: object) -> tuple[str, str]:
    main(**{"seeds": 1, "storage": store, "only": "", "table_only": False, **SMALL, **options})
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_the_published_numbers_are_those_of_the_seed_tables() -> None:
    if not SEEDS.is_dir():
        pytest.skip("the seed tables are not beside this checkout")
    names = ("lr", "lr_2layer", "init", "init_2layer", "batch")
    rows = [
        row
        for name in names
        for row in csv.DictReader(
            SEEDS.joinpath(f"transformer_toy_{name}.csv").read_text().splitlines()
        )
    ]
    published = [setting for setting in SETTINGS if setting.published]
    assert [setting.published for setting in published] == [row["mse"] for row in rows]
    for setting, row in zip(published, rows, strict=True):
        config = describe(setting, 0, batch_first=True)
        model, recipe = config["model"], config["recipe"]
        assert model["layers"] == int(row["n_layers"] or 6)
        assert recipe["lr"] == float(row["lr"] or 1e-3)
        assert recipe["warmup"] == {"0": 0, "1": 10, "": 10}[row["warmup_percent"]]
        assert recipe["batch"] == int(row["batch_size"] or 16)
        named = row["init"].replace(" +-", "_").replace(" ", "_") or "default"
        assert model["init"] == named


def test_a_run_is_made_once_and_again_if_it_was_cut(two: None, tmp_path: Path) -> None:
    config = describe(transformer_toy.SETTINGS[0], 0, batch_first=True, **SMALL)
    folder = RunFolder(tmp_path / config["run"])
    first = train(folder, config)
    written = (folder.path / "records.ndjson").read_text()
    assert [r["event"] for r in folder.records()] == [*["epoch"] * 10, "test", "end"]
    assert train(folder, config) == first
    assert (folder.path / "records.ndjson").read_text() == written
    lines = written.splitlines(keepends=True)
    (folder.path / "records.ndjson").write_text("".join(lines[:4]) + lines[4][:9])
    assert train(folder, config) == first
    assert len(folder.records()) == 12


def test_a_run_that_another_process_holds_is_left_to_it(two: None, tmp_path: Path) -> None:
    config = describe(transformer_toy.SETTINGS[0], 0, batch_first=True, **SMALL)
    folder = RunFolder(tmp_path / config["run"])
    folder.create(config)
    with (folder.path / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert train(folder, config) is None
    assert folder.records() == []


def test_the_table_stands_beside_the_published_numbers(
    two: None, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out, err = run_main(tmp_path, capsys, only="warm")
    assert err.count("warm, attending to") == 2
    head, _, warm, cold = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in out.splitlines()
    )
    assert head[:3] == ["setting", "published", "samples, dropout on"]
    assert cold == ["cold", "3.37", *["not run"] * 4]
    assert warm[:2] == ["warm", "0.10"]
    assert all(2 < float(cell) < 12 for cell in warm[2:])
    assert len(set(warm[2:])) == 4
    again, err = run_main(tmp_path, capsys, table_only=True)
    assert again == out
    assert not err


def test_seeds_are_averaged_and_a_lost_run_is_called_diverged(
    two: None, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    run_main(tmp_path, capsys, seeds=2)
    row = next(
        line for line in table(tmp_path / "transformer_toy-squares", 2, **SMALL) if "warm" in line
    )
    assert row.count("–") == 4
    config = describe(transformer_toy.SETTINGS[0], 1, batch_first=True, **SMALL)
    folder = RunFolder(tmp_path / "transformer_toy-squares" / config["run"])
    folder.append({"event": "test", "epoch": 10, "dropout_on": float("nan"), "dropout_off": 1.0})
    row = next(
        line for line in table(tmp_path / "transformer_toy-squares", 2, **SMALL) if "warm" in line
    )
    assert row.count("diverged") == 1


def test_bad_options_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    options = ["--steps", "15", "--storage", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["transformer_toy.py", *options])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(transformer_toy.__file__, run_name="__main__")
    err = capsys.readouterr().err
    assert stop.value.code == 2
    assert err == "error: steps: Input should be a multiple of 10, got 15\n"
