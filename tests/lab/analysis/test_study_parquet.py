"""A study survives its Parquet file: the same tables, and a sweep that trains nothing again."""

import json
import os
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.render import FORMATS, render
from lmzoo.lab.analysis.study_parquet import read_rows, restore_study, save_study
from lmzoo.lab.store.local import Store
from lmzoo.lab.store.records import RECORDS, STUDY, json_bytes, parse_json, record_line
from lmzoo.lab.study.study_store import ReadOnlyStudyStore
from tests.lab.analysis.toy_study import ToyStudy, change_lines, cut_after_an_epoch

HOST = "a-machine.of.mine"


@pytest.fixture
def toy(tmp_path) -> ToyStudy:
    """Points with finished, pruned, diverged and failed runs, one that has not ended."""
    toy = ToyStudy(tmp_path / "toy")
    for point, losses in {"full": [1.0, 1 / 3, 1.2], "0": [1.4, 1.1, None], "1": [2, 2, 2]}.items():
        runs = toy.add_point(point, losses)
        toy.add_run(point, 0, 1.0)
        for seed, status in ((10, "pruned"), (11, "failed"), (12, None)):
            cut_after_an_epoch(toy.records_path(toy.add_run(point, seed, 1.5)), status)
    change_lines(toy.records_path(runs[0]), "epoch", host=HOST)
    Store(toy.path).append("settings.ndjson", json.dumps({"point": "0", "index": 1, "setting": {}}))
    toy.write()
    return toy


def tables(study: Path) -> list[str]:
    reports = [study_ranking(study), study_ranking(study, unit="sentence")]
    reports = [replace(report, next_command="") for report in reports]  # it names the folder
    return [render(report, format) for report in reports for format in (*FORMATS, "table")]


@pytest.mark.parametrize("how", ["restored", "read"])
def test_tables_are_the_same_byte_for_byte(toy, tmp_path, how):
    file = tmp_path / "toy.parquet"
    save_study(toy.path, file)
    if how == "restored":
        restore_study(file, tmp_path / "restored")
    copy = tmp_path / "restored" if how == "restored" else file
    assert tables(copy) == tables(toy.path)


def test_a_file_that_is_replaced_is_read_again_though_its_time_is_equal(toy, tmp_path):
    file = tmp_path / "toy.parquet"
    for question in ("First?", "Second?"):
        toy.study_json["question"] = question
        save_study(toy.write(), file)
        os.utime(file, (1e9, 1e9))
        assert load_study(file).study["question"] == question


def test_saving_twice_gives_equal_bytes_and_no_machine(toy, tmp_path):
    for name in ("a", "b"):
        save_study(toy.path, tmp_path / f"{name}.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    restore_study(tmp_path / "a.parquet", tmp_path / "restored")
    save_study(tmp_path / "restored", tmp_path / "c.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "c.parquet").read_bytes()
    assert any(HOST in path.read_text() for path in toy.path.glob(f"*/{RECORDS}"))
    assert not any(HOST.encode() in data for *_, data in read_rows(tmp_path / "a.parquet"))


def test_a_damaged_line_stays_damaged_without_its_machine_or_with_it(toy, tmp_path):
    path = next(toy.path.glob(f"*/{RECORDS}"))
    whole = record_line({"event": "note", "epoch": 1, "reason": 'a "host": "x"', "host": HOST})
    torn = whole.replace("note", "nota")
    path.write_text(f"{whole}\n{torn}\n")
    save_study(toy.path, tmp_path / "a.parquet")
    rows = {(run, name): data for run, name, data in read_rows(tmp_path / "a.parquet")}
    first, second = rows[path.parent.name, RECORDS].splitlines()
    assert parse_json(first) == {"event": "note", "epoch": 1, "reason": 'a "host": "x"'}
    assert (parse_json(second), second) == (None, torn.encode())


def test_the_folder_of_the_script_is_not_saved(toy, tmp_path):
    for script, saved in (
        (["python", "/home/me/clone/sweeps/toy.py"], ["python", "sweeps/toy.py"]),
        (["python", "sweeps/toy.py", "toy"], ["python", "sweeps/toy.py", "toy"]),
    ):
        toy.study_json |= {"script": script, "given": ["--out", "/home/me/runs"]}
        toy.write()
        save_study(toy.path, tmp_path / "a.parquet")
        rows = read_rows(tmp_path / "a.parquet")
        (study,) = (parse_json(content) for _, file, content in rows if file == STUDY)
        assert toy.study_json.pop("given")
        assert study == toy.study_json | {"script": saved}


def test_invalid_files_and_stores_are_refused_in_one_line(toy, tmp_path):
    file = tmp_path / "toy.parquet"
    save_study(toy.path, file)
    cases = {
        "is not empty": lambda: restore_study(file, toy.path),
        "no file": lambda: load_study(tmp_path / "none.parquet"),
        "does not end in": lambda: save_study(toy.path, tmp_path / "toy.json"),
        "has no study.json": lambda: save_study(tmp_path, file),
        "is not a file of records": lambda: load_study(toy.path.with_suffix(".parquet")),
        "has no columns": lambda: load_study(tmp_path / "other.parquet"),
        "is refused": lambda: load_study(tmp_path / "outside.parquet"),
    }
    pl.DataFrame({"x": [1]}).write_parquet(tmp_path / "other.parquet")
    frame = pl.read_parquet(file)
    frame.with_columns(folder=pl.lit("../x")).write_parquet(tmp_path / "outside.parquet")
    for message, action in cases.items():
        if message == "is not a file of records":
            file.write_text("text")
        with pytest.raises(UserError, match=message) as error:
            action()
        assert "\n" not in str(error.value)


def test_a_store_restored_in_part_is_no_study(toy, tmp_path, monkeypatch):
    save_study(toy.path, tmp_path / "toy.parquet")
    write, written = Store.write, []

    def failing(self: Store, name: str, data: bytes, backup: str = "") -> None:
        written.append(name)
        if len(written) == 9:
            raise OSError("disk full")
        write(self, name, data, backup)

    monkeypatch.setattr(Store, "write", failing)
    with pytest.raises(OSError, match="disk full"):
        restore_study(tmp_path / "toy.parquet", tmp_path / "restored")
    monkeypatch.undo()
    assert not (tmp_path / "restored" / STUDY).exists()
    with pytest.raises(UserError, match="not empty"):
        restore_study(tmp_path / "toy.parquet", tmp_path / "restored")


@pytest.mark.parametrize("version", ["schema", "numerics"])
def test_a_sweep_refuses_a_restored_study_of_another_version(toy, tmp_path, version):
    (toy.path / STUDY).write_bytes(json_bytes({**toy.study_json, version: 0}))
    save_study(toy.path, tmp_path / "toy.parquet")
    restore_study(tmp_path / "toy.parquet", tmp_path / "restored")
    with pytest.raises(UserError, match=rf"restored has {version} version 0.*another --out"):
        ReadOnlyStudyStore(tmp_path / "restored")
