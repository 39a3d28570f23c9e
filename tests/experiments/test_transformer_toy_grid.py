"""The grid of the toy regression: published losses, runs and the table."""

import csv
import fcntl
import runpy
import sys
from pathlib import Path

import pytest

from lmzoo.experiments import transformer_toy_grid
from lmzoo.experiments.transformer_toy_grid import (
    SETTINGS,
    format_table,
    main,
    toy_run_config,
    train_run,
)
from lmzoo.store.records import RunFolder

SMALL = {"steps": 10, "tests": 2}
SCRIPTS = Path(__file__).parents[2] / "sweeps"
PUBLISHED_TABLES = Path(__file__).parents[3] / "shared" / "seed_tables"


@pytest.fixture
def two_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the settings by two of a small model."""
    tiny = {"layers": 1, "width": 8, "hidden": 8}
    settings = [
        transformer_toy_grid.Setting("warm", "0.10", tiny, {"lr": 0.1}),
        transformer_toy_grid.Setting("cold", "3.37", tiny, {"warmup": 0, "lr": 1.0}),
    ]
    monkeypatch.setattr(transformer_toy_grid, "SETTINGS", settings)


def run_main(store: Path, capsys: pytest.CaptureFixture, **options: object) -> tuple[str, str]:
    main(**{"seeds": 1, "storage": store, "only": "", "table_only": False, **SMALL, **options})
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_published_losses_equal_the_tables_of_s2() -> None:
    if not PUBLISHED_TABLES.is_dir():
        pytest.skip(f"no published tables in {PUBLISHED_TABLES}")
    names = ("lr", "lr_2layer", "init", "init_2layer", "batch")
    rows = [
        row
        for name in names
        for row in csv.DictReader(
            PUBLISHED_TABLES.joinpath(f"transformer_toy_{name}.csv").read_text().splitlines()
        )
    ]
    published = [setting for setting in SETTINGS if setting.published]
    assert [setting.published for setting in published] == [row["mse"] for row in rows]
    for setting, row in zip(published, rows, strict=True):
        config = toy_run_config(setting, 0, batch_first=True)
        model, recipe = config["model"], config["recipe"]
        assert model["layers"] == int(row["n_layers"] or 6)
        assert recipe["lr"] == float(row["lr"] or 1e-3)
        assert recipe["warmup"] == {"0": 0, "1": 10, "": 10}[row["warmup_percent"]]
        assert recipe["batch"] == int(row["batch_size"] or 16)
        init = row["init"].replace(" +-", "_").replace(" ", "_") or "default"
        assert model["init"] == init


def test_a_run_is_trained_once_and_again_after_an_interruption(
    two_settings: None, tmp_path: Path
) -> None:
    config = toy_run_config(transformer_toy_grid.SETTINGS[0], 0, batch_first=True, **SMALL)
    folder = RunFolder(tmp_path / config["run"])
    first = train_run(folder, config)
    written = (folder.path / "records.ndjson").read_text()
    assert [r["event"] for r in folder.records()] == [*["epoch"] * 10, "test", "end"]
    assert train_run(folder, config) == first
    assert (folder.path / "records.ndjson").read_text() == written
    lines = written.splitlines(keepends=True)
    (folder.path / "records.ndjson").write_text("".join(lines[:4]) + lines[4][:9])
    assert train_run(folder, config) == first
    assert len(folder.records()) == 12


def test_a_run_locked_by_another_process_is_skipped(two_settings: None, tmp_path: Path) -> None:
    config = toy_run_config(transformer_toy_grid.SETTINGS[0], 0, batch_first=True, **SMALL)
    folder = RunFolder(tmp_path / config["run"])
    folder.create(config)
    with (folder.path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert train_run(folder, config) is None
    assert folder.records() == []


def test_the_table_shows_results_and_published_losses(
    two_settings: None, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out, err = run_main(tmp_path, capsys, only="warm")
    assert err.count("warm, attention between") == 2
    head, _, warm, cold = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in out.splitlines()
    )
    assert head[:3] == ["setting", "published", "samples, dropout on"]
    assert cold == ["cold", "3.37", *["not run"] * 4]
    assert warm[:2] == ["warm", "0.10"]
    assert all(2 < float(cell) < 12 for cell in warm[2:])
    assert len(set(warm[2:])) == 4
    second, err = run_main(tmp_path, capsys, table_only=True)
    assert second == out
    assert not err


def test_seeds_are_averaged_and_a_non_finite_loss_is_shown_as_diverged(
    two_settings: None, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    run_main(tmp_path, capsys, seeds=2)
    row = next(
        line
        for line in format_table(tmp_path / "transformer_toy-squares", 2, **SMALL)
        if "warm" in line
    )
    assert row.count("–") == 4
    config = toy_run_config(transformer_toy_grid.SETTINGS[0], 1, batch_first=True, **SMALL)
    folder = RunFolder(tmp_path / "transformer_toy-squares" / config["run"])
    folder.append({"event": "test", "epoch": 10, "dropout_on": float("nan"), "dropout_off": 1.0})
    row = next(
        line
        for line in format_table(tmp_path / "transformer_toy-squares", 2, **SMALL)
        if "warm" in line
    )
    assert row.count("diverged") == 1


@pytest.mark.parametrize(
    ("script", "options", "message"),
    [
        ("transformer_toy", ["--steps", "15"], "steps: Input should be a multiple of 10, got 15"),
        ("code_noise", ["--width", "1"], "Invalid value for '--width'"),
    ],
)
def test_scripts_report_invalid_options_in_one_line(
    script: str, options: list[str], message: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(sys, "argv", [f"{script}.py", *options, "--storage", str(tmp_path)])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(SCRIPTS / f"{script}.py"), run_name="__main__")
    err = capsys.readouterr().err
    assert (stop.value.code, err.count("\n")) == (2, 1)
    assert err.startswith(f"error: {message}")
