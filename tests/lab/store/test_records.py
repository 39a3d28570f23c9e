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
    assert len(identity) == 12
    for key in files.IDENTITY_FIELDS:
        assert files.run_identity({**RUN, key: 2}) != identity
    assert files.run_identity({**RUN, "label": "tuned", "epochs": 30}) == identity


def test_identity_does_not_depend_on_the_path_of_a_corpus():
    def identity(**corpus: str) -> str:
        return files.run_identity({**RUN, "corpus": corpus})

    assert identity(path="a") == identity(path="/b") == identity()
    assert identity(path="a", unit="char") != identity(path="a")


def test_identity_depends_on_the_order_of_lists_but_not_of_keys():
    assert files.run_identity(dict(reversed(RUN.items()))) == files.run_identity(RUN)
    first = files.run_identity({**RUN, "model": {"cuts": [0, 2]}})
    assert files.run_identity({**RUN, "model": {"cuts": [2, 0]}}) != first


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


def test_identity_requires_every_field_and_no_nan():
    with pytest.raises(KeyError):
        files.run_identity({key: 1 for key in files.IDENTITY_FIELDS[1:]})
    with pytest.raises(ValueError, match="JSON"):
        files.run_identity({**RUN, "recipe": {"lr": math.nan}})


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
    assert len(folder.records()) == 3
    assert [r["valid_token"] for r in files.epoch_records(folder.records())] == [2, 1]


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


def test_a_line_that_is_no_event_is_ignored(folder):
    complete = {"event": "end", "epoch": 1, "status": "finished"}
    folder.append(complete)
    (complete,) = folder.records()  # with its time
    assert complete["time"].endswith("+00:00")
    path = folder.path / files.RECORDS
    for line in (b'{"version": 9}', b'{"event": "end"}', b"[1]", b"\0\0", b"7"):
        path.write_bytes(line + b"\n" + path.read_bytes())
        assert folder.records() == [complete], line
    assert files.find_end(folder.records(), 1) == complete


def test_every_changed_byte_of_a_line_or_a_config_is_noticed(folder):
    record = {"event": "epoch", "epoch": 1, "valid_token": 1.826, "valid_sentence": 1.5}
    line = files.record_line(record).encode()
    config = files.json_bytes({"seed": 1, "setting": {"lr": 0.01}})
    for text in (line, config):
        whole = files.parse_json(text)
        for at, bit in itertools.product(range(len(text.rstrip())), range(8)):
            changed = text[:at] + bytes([text[at] ^ 1 << bit]) + text[at + 1 :]
            value = files.parse_json(changed)
            same = isinstance(value, dict) and {k: value[k] for k in whole if k in value} == whole
            assert value is None or same, changed
    assert files.parse_lines(line.replace(b"1.826", b"1.026") + b"\n" + line) == [None, record]
    assert files.is_sealed(line)
    assert not files.is_sealed(line.replace(b"1.826", b"1.026"))


@pytest.mark.parametrize(
    "field",
    [{"tokens": "7"}, {"best_epoch": 1.5}, {"accuracy": []}, {"reason": {}}, {"words": 2**63}],
)
def test_an_event_with_a_field_of_another_type_is_damaged(field):
    event = {"event": "epoch", "epoch": 1, "valid_token": 2.0}
    assert files.is_record(event)
    assert not files.is_record({**event, **field})


def test_damaged_config_is_none_and_is_written_again(folder):
    assert files.read_json(folder.path / "value.json") is None
    for damaged in (b"", b"{torn", b"[1]", b"\xff\xfe"):
        (folder.path / "config.json").write_bytes(damaged)
        assert folder.config is None, damaged
        folder.create(RUN)
        assert folder.config == RUN


def end_at(status: str, epoch: int, budget: int) -> str:
    """Return the status of the end at the budget, with a finish at epoch 2 before it."""
    before = {"event": "end", "status": "finished", "epoch": 2}
    end = files.find_end([before, {"event": "end", "status": status, "epoch": epoch}], budget)
    return end["status"] if end else "pending"


def test_short_and_failed_runs_are_pending_and_epochs_beyond_the_budget_do_not_count():
    assert set(files.STATUSES) == {"finished", "pruned", "diverged", "failed"}
    for budget in (3, 5, 6, 7, 20):
        found = {status: end_at(status, 6, budget) for status in files.STATUSES}
        beyond = "finished" if budget < 6 else "diverged"
        assert found == {
            "finished": "finished" if budget <= 6 else "pending",
            "pruned": "finished" if budget <= 6 else "pruned",  # a budget has no rung at its end
            "diverged": beyond,
            "failed": "pending",
        }, budget
    assert end_at("failed", 6, 2) == "finished"


def _trained(epochs_done: int, *tested: int) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = [
        {"event": "epoch", "epoch": e} for e in range(1, epochs_done + 1)
    ]
    for epoch in tested:
        records.append({"event": "test", "epoch": epoch})
        records.append({"event": "end", "epoch": epoch, "status": "finished"})
    return records


def test_test_is_pending_at_the_budget_itself():
    assert files.records_pending(_trained(5), 5, test=True)
    assert not files.records_pending(_trained(5, 5), 5, test=True)
    assert not files.records_pending(_trained(9, 5, 9), 5, test=True)
    assert not files.records_pending(_trained(8, 5), 5, test=True)
    assert files.records_pending(_trained(8, 5), 9, test=True)
    assert not files.records_pending(_trained(9, 9), 5, test=False)


@pytest.mark.parametrize("status", ["finished", "diverged", None])
def test_missed_test_is_refused(status):
    records = _trained(9)
    if status:
        records.append({"event": "end", "epoch": 9, "status": status})
    with pytest.raises(
        UserError, match=r"trained for 9 epochs and not tested at 5, .* for 9 epochs"
    ):
        files.records_pending(records, 5, test=True)
    diverged_before = {"event": "end", "epoch": 4, "status": "diverged"}
    assert not files.records_pending([*_trained(4), diverged_before], 5, test=True)


def test_failure_before_a_finish_does_not_count():
    ends = [
        {"event": "end", "status": status, "epoch": epoch}
        for status, epoch in [("failed", 2), ("finished", 5)]
    ]
    for records in (ends, ends[::-1]):
        assert files.find_end(records, 5) == ends[1]
        assert files.find_end(records, 6) is None
    assert files.find_end([], 0) is None
