import hashlib
import itertools
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmzoo.base.errors import UserError
from lmzoo.lab.store import records as files
from tests.cases import cases
from tests.tiny import quick

RUN = {key: 1 for key in files.IDENTITY_FIELDS}

json_values = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False)


@pytest.fixture
def folder(tmp_path) -> files.RunFolder:
    folder = files.RunFolder(tmp_path / "study" / "run")
    folder.create(RUN)
    return folder


def test_identity_depends_on_exactly_the_identity_fields():
    identity = files.run_identity(RUN)
    others = {"label": "tuned", "epochs": 30}
    assert len(identity) == 12
    assert files.run_identity(RUN | others) == identity
    for key in files.IDENTITY_FIELDS:
        assert files.run_identity(RUN | {key: 2}) != identity


def test_identity_does_not_depend_on_the_path_of_a_corpus():
    def identity(**corpus: str) -> str:
        return files.run_identity({**RUN, "corpus": corpus})

    assert identity(path="a") == identity(path="/b") == identity()
    assert identity(path="a", unit="char") != identity(path="a")


def test_identity_depends_on_the_order_of_lists_but_not_of_keys():
    turned = dict(reversed(RUN.items()))
    assert files.run_identity(turned) == files.run_identity(RUN)
    first = files.run_identity(RUN | {"model": {"cuts": [0, 2]}})
    second = files.run_identity(RUN | {"model": {"cuts": [2, 0]}})
    assert second != first


def test_identity_is_the_hash_of_sorted_json():
    """The names of all folders of earlier stores depend on it."""
    fields = {key: {"b": [1, "é"], "a": 0.1} for key in files.IDENTITY_FIELDS}
    user = {files.USER_CODE: {"hash": "12ab", "files": []}}
    for run, hashed in (fields, fields), ({**fields, **user}, {**fields, files.USER_CODE: "12ab"}):
        for config in files.with_seeds({**run, "run": ""}, [3, 10**6]):
            text = json.dumps({**hashed, "seed": config["seed"]}, sort_keys=True)
            assert config["run"] == hashlib.sha256(text.encode()).hexdigest()[:12]
            assert config["run"] == files.run_identity(config)
            assert config == {**run, "seed": config["seed"], "run": config["run"]}


def test_identity_requires_every_field():
    run = RUN.copy()
    del run[files.IDENTITY_FIELDS[0]]
    with pytest.raises(KeyError):
        files.run_identity(run)


def test_identity_requires_numbers():
    with pytest.raises(ValueError, match="JSON"):
        files.run_identity(RUN | {"recipe": {"lr": math.nan}})


def test_folder_keeps_its_first_config(folder):
    folder.create({**RUN, "seed": 2})
    assert folder.config == RUN


@settings(quick, max_examples=8)
@given(st.lists(st.dictionaries(st.text(), json_values, max_size=3), max_size=4))
def test_appended_records_are_read_back(contents):
    with tempfile.TemporaryDirectory() as name:
        folder = files.RunFolder(Path(name))
        records = [{**content, "event": "e", "epoch": i} for i, content in enumerate(contents)]
        for record in records:
            folder.append(record)
        assert folder.records() == [files.replace_non_finite(record) for record in records]


def test_non_finite_numbers_become_null(folder):
    folder.append({"event": "epoch", "epoch": 1, "valid_token": math.nan, "x": [-math.inf]})
    line = (folder.path / files.RECORDS).read_bytes()
    known = {"event": "epoch", "epoch": 1, "valid_token": None, "x": [None]}
    assert files.parse_json(line) == {**known, "run": "run"}


def test_last_of_equal_events_counts_and_epochs_are_sorted(folder):
    for epoch, loss in ((2, 1), (1, 3), (1, 2)):
        folder.append({"event": "epoch", "epoch": epoch, "valid_token": loss})
    folder.append({"event": "test", "epoch": 1, "token": 9})
    records = folder.records()
    losses = [record["valid_token"] for record in files.epoch_records(records)]
    assert len(records) == 3
    assert losses == [2, 1]


def test_line_torn_anywhere_is_ignored_and_removed(folder):
    complete = {"event": "note", "epoch": 1, "reason": "ä"}
    folder.append(complete)
    path = folder.path / files.RECORDS
    line = path.read_bytes()
    for length in range(1, len(line)):
        torn = line.replace(b"1", b"2")[:length].rstrip(b"\n}")
        path.write_bytes(line + torn)
        assert folder.records() == [complete], length
        data = path.read_bytes()
        assert not files.has_damaged_line(data, files.parse_lines(data)), "a death leaves it"
        data = line + b"7\n" + torn
        assert files.has_damaged_line(data, files.parse_lines(data))
        folder.append({**complete, "epoch": 3})
        assert [record["epoch"] for record in folder.records()] == [1, 3]
        assert path.read_bytes().startswith(line + b'{"event"')


@pytest.fixture
def ended(folder):
    """The folder of a run that has ended."""
    folder.append({"event": "end", "epoch": 1, "status": "finished"})
    return folder


def test_an_end_has_its_time(ended):
    (end,) = ended.records()
    assert end["time"].endswith("+00:00")
    assert files.find_end([end], 1) == end


@pytest.mark.parametrize("line", [b'{"version": 9}', b'{"event": "end"}', b"[1]", b"\0\0", b"7"])
def test_a_line_that_is_no_event_is_ignored(ended, line):
    before = ended.records()
    path = ended.path / files.RECORDS
    path.write_bytes(line + b"\n" + path.read_bytes())
    assert ended.records() == before


RECORD = {"event": "epoch", "epoch": 1, "valid_token": 1.826, "valid_sentence": 1.5}
LINE = files.record_line(RECORD).encode()
CHANGED = LINE.replace(b"1.826", b"1.026")
CONFIG = files.json_bytes({"seed": 1, "setting": {"lr": 0.01}})


@pytest.mark.parametrize("text", [LINE, CONFIG], ids=["line", "config"])
def test_every_changed_bit_is_noticed(text):
    """It makes the text damaged, or leaves what the text says as it was."""
    whole = files.parse_json(text)
    for place, bit in itertools.product(range(len(text.rstrip())), range(8)):
        changed = bytearray(text)
        changed[place] ^= 1 << bit
        value = files.parse_json(bytes(changed))
        if value is not None:
            assert {name: value[name] for name in whole if name in value} == whole, changed


def test_a_changed_line_is_damaged_and_the_next_one_is_read():
    assert files.parse_lines(CHANGED + b"\n" + LINE) == [None, RECORD]


def test_a_changed_line_is_not_sealed():
    assert files.is_sealed(LINE)
    assert not files.is_sealed(CHANGED)


@pytest.mark.parametrize(
    "field",
    [{"tokens": "7"}, {"best_epoch": 1.5}, {"accuracy": []}, {"reason": {}}, {"words": 2**63}],
)
def test_an_event_with_a_field_of_another_type_is_damaged(field):
    assert files.is_record(RECORD)
    assert not files.is_record(RECORD | field)


def test_a_file_that_is_not_there_has_no_value(folder):
    assert files.read_json(folder.path / "value.json") is None


@pytest.mark.parametrize("damaged", [b"", b"{torn", b"[1]", b"\xff\xfe"])
def test_damaged_config_is_none_and_is_written_again(folder, damaged):
    (folder.path / "config.json").write_bytes(damaged)
    assert folder.config is None
    folder.create(RUN)
    assert folder.config == RUN


def end_at(status: str, epoch: int, budget: int) -> str:
    """Return the status of the end at the budget, with a finish at epoch 2 before it."""
    before = {"event": "end", "status": "finished", "epoch": 2}
    end = files.find_end([before, {"event": "end", "status": status, "epoch": epoch}], budget)
    return end["status"] if end else "pending"


@cases("lab/store/cases.toml", "ends", "status, epoch, budget, expected")
def test_short_and_failed_runs_are_pending_and_epochs_beyond_the_budget_do_not_count(
    status, epoch, budget, expected
):
    assert end_at(status, epoch, budget) == expected


def test_a_run_has_one_of_four_statuses():
    assert set(files.STATUSES) == {"finished", "pruned", "diverged", "failed"}


def _trained(epochs_done: int, *tested: int) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    for epoch in range(1, epochs_done + 1):
        records.append({"event": "epoch", "epoch": epoch})
    for epoch in tested:
        records.append({"event": "test", "epoch": epoch})
        records.append({"event": "end", "epoch": epoch, "status": "finished"})
    return records


@pytest.mark.parametrize(
    ("trained", "tested", "budget", "pending"),
    [
        (5, [], 5, True),
        (5, [5], 5, False),
        (9, [5, 9], 5, False),
        (8, [5], 5, False),
        (8, [5], 9, True),
    ],
)
def test_test_is_pending_at_the_budget_itself(trained, tested, budget, pending):
    assert files.records_pending(_trained(trained, *tested), budget, test=True) == pending


def test_a_run_without_a_test_is_not_pending_at_its_budget():
    assert not files.records_pending(_trained(9, 9), 5, test=False)


@pytest.mark.parametrize("status", ["finished", "diverged", None])
def test_missed_test_is_refused(status):
    records = _trained(9)
    if status:
        records.append({"event": "end", "epoch": 9, "status": status})
    said = r"trained for 9 epochs and not tested at 5, .* for 9 epochs"
    with pytest.raises(UserError, match=said):
        files.records_pending(records, 5, test=True)


def test_a_run_that_diverged_before_the_budget_has_no_test():
    diverged = {"event": "end", "epoch": 4, "status": "diverged"}
    assert not files.records_pending([*_trained(4), diverged], 5, test=True)


FAILED = {"event": "end", "status": "failed", "epoch": 2}
FINISHED = {"event": "end", "status": "finished", "epoch": 5}


@pytest.mark.parametrize("records", [[FAILED, FINISHED], [FINISHED, FAILED]])
def test_failure_before_a_finish_does_not_count(records):
    assert files.find_end(records, 5) == FINISHED
    assert files.find_end(records, 6) is None


def test_without_records_there_is_no_end():
    assert files.find_end([], 0) is None
