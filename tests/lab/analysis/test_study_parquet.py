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
from tests.user_errors import raises_user_error

HOST = "a-machine.of.mine"


@pytest.fixture
def toy(tmp_path) -> ToyStudy:
    """Points with finished, pruned, diverged and failed runs, one that has not ended."""
    toy = ToyStudy(tmp_path / "toy")
    toy.add_points(
        """
        full: 1.0  0.3333333333333333  1.2
        0:    1.4  1.1                 -
        1:    2    2                   2
        """
    )
    for point in ("full", "0", "1"):
        toy.add_run(point, 0, 1.0)
        for seed, status in ((10, "pruned"), (11, "failed"), (12, None)):
            run = toy.add_run(point, seed, 1.5)
            cut_after_an_epoch(toy.records_path(run), status)
    change_lines(toy.records_path("1-confirm-1"), "epoch", host=HOST)
    setting = {"point": "0", "index": 1, "setting": {}}
    Store(toy.path).append("settings.ndjson", json.dumps(setting))
    toy.write()
    return toy


def tables(study: Path) -> list[str]:
    texts = []
    for unit in ("token", "sentence"):
        report = study_ranking(study, unit=unit)
        report = replace(report, next_command="")  # it names the folder
        texts += [render(report, format) for format in (*FORMATS, "table")]
    return texts


@pytest.fixture
def file(toy, tmp_path) -> Path:
    """The file of the study."""
    file = tmp_path / "toy.parquet"
    save_study(toy.path, file)
    return file


def test_tables_of_the_file_are_the_same_byte_for_byte(toy, file):
    assert tables(file) == tables(toy.path)


def test_tables_of_the_restored_folder_are_the_same_byte_for_byte(toy, file, tmp_path):
    restore_study(file, tmp_path / "restored")
    assert tables(tmp_path / "restored") == tables(toy.path)


def test_a_file_that_is_replaced_is_read_again_though_its_time_is_equal(toy, tmp_path):
    file = tmp_path / "toy.parquet"
    for question in ("First?", "Second?"):
        toy.study_json["question"] = question
        save_study(toy.write(), file)
        # A cache by the time of the file would not notice.
        os.utime(file, (1e9, 1e9))
        assert load_study(file).study["question"] == question


def test_saving_twice_gives_equal_bytes(toy, file, tmp_path):
    again = tmp_path / "again.parquet"
    save_study(toy.path, again)
    assert again.read_bytes() == file.read_bytes()


def test_saving_a_restored_study_gives_equal_bytes(file, tmp_path):
    restore_study(file, tmp_path / "restored")
    again = tmp_path / "again.parquet"
    save_study(tmp_path / "restored", again)
    assert again.read_bytes() == file.read_bytes()


def test_the_name_of_the_machine_is_not_saved(toy, file):
    assert HOST in toy.records_path("1-confirm-1").read_text()
    for *_, data in read_rows(file):
        assert HOST.encode() not in data


def test_a_damaged_line_stays_damaged_without_its_machine_or_with_it(toy, tmp_path):
    path = next(toy.path.glob(f"*/{RECORDS}"))
    whole = record_line({"event": "note", "epoch": 1, "reason": 'a "host": "x"', "host": HOST})
    torn = whole.replace("note", "nota")
    path.write_text(f"{whole}\n{torn}\n")
    save_study(toy.path, tmp_path / "a.parquet")
    rows = {(run, name): data for run, name, data in read_rows(tmp_path / "a.parquet")}
    first, second = rows[path.parent.name, RECORDS].splitlines()
    assert parse_json(first) == {"event": "note", "epoch": 1, "reason": 'a "host": "x"'}
    assert parse_json(second) is None
    assert second == torn.encode()


@pytest.mark.parametrize(
    ("script", "saved"),
    [("/home/me/clone/sweeps/toy.py", "sweeps/toy.py"), ("sweeps/toy.py", "sweeps/toy.py")],
)
def test_the_folders_of_a_user_are_not_saved(toy, tmp_path, script, saved):
    given = ["--out", "/home/me/runs"]
    toy.study_json |= {"script": ["python", script, "toy"], "given": given}
    save_study(toy.write(), tmp_path / "a.parquet")
    files = {name: data for _, name, data in read_rows(tmp_path / "a.parquet")}
    del toy.study_json["given"]
    expected = toy.study_json | {"script": ["python", saved, "toy"]}
    assert parse_json(files[STUDY]) == expected


def test_a_study_is_restored_into_an_empty_folder_only(toy, file):
    with raises_user_error("is not empty"):
        restore_study(file, toy.path)


def test_the_file_of_a_study_is_named_parquet(toy, tmp_path):
    with raises_user_error("does not end in"):
        save_study(toy.path, tmp_path / "toy.json")


def test_a_folder_without_a_study_is_not_saved(tmp_path):
    with raises_user_error("has no study.json"):
        save_study(tmp_path, tmp_path / "toy.parquet")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with raises_user_error("no file"):
        load_study(tmp_path / "none.parquet")


def test_a_text_is_no_file_of_records(file):
    file.write_text("text")
    with raises_user_error("is not a file of records"):
        load_study(file)


def test_a_table_of_other_columns_is_no_file_of_records(tmp_path):
    pl.DataFrame({"x": [1]}).write_parquet(tmp_path / "other.parquet")
    with raises_user_error("has no columns"):
        load_study(tmp_path / "other.parquet")


def test_a_file_that_leads_out_of_its_folder_is_refused(file, tmp_path):
    outside = pl.read_parquet(file).with_columns(folder=pl.lit("../x"))
    outside.write_parquet(tmp_path / "outside.parquet")
    with raises_user_error("is refused"):
        load_study(tmp_path / "outside.parquet")


@pytest.fixture
def restored_in_part(file, tmp_path, monkeypatch):
    """The folder of a study whose restoration ended because the disk was full."""
    write = Store.write
    written = []

    def failing(self: Store, name: str, data: bytes, backup: str = "") -> None:
        written.append(name)
        # After some files, and before the last one.
        if len(written) == 9:
            raise OSError("disk full")
        write(self, name, data, backup)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", failing)
        with pytest.raises(OSError, match="disk full"):
            restore_study(file, tmp_path / "restored")
    return tmp_path / "restored"


def test_a_store_restored_in_part_is_no_study(restored_in_part):
    assert not (restored_in_part / STUDY).exists()


def test_a_store_restored_in_part_is_not_empty(file, restored_in_part):
    with raises_user_error("not empty"):
        restore_study(file, restored_in_part)


@pytest.mark.parametrize("version", ["schema", "numerics"])
def test_a_sweep_refuses_a_restored_study_of_another_version(toy, tmp_path, version):
    (toy.path / STUDY).write_bytes(json_bytes(toy.study_json | {version: 0}))
    save_study(toy.path, tmp_path / "toy.parquet")
    restore_study(tmp_path / "toy.parquet", tmp_path / "restored")
    with pytest.raises(UserError, match=rf"restored has {version} version 0.*another --out"):
        ReadOnlyStudyStore(tmp_path / "restored")
