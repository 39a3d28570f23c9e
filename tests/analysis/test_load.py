"""A folder is read as it lies: whole, doubled, torn, empty or foreign."""

import json

import pytest

from lmzoo.analysis.load import load, read_events
from lmzoo.analysis.ranking import with_status
from lmzoo.errors import UserError
from lmzoo.store.records import RunFolder, write_json
from tests.analysis.synthetic import Made


@pytest.fixture
def made(tmp_path):
    made = Made(tmp_path / "toy")
    made.point("full", [3.0, 3.1])
    return made


def events(made):
    return load(made.path).events.sort("run", "event", "epoch").collect()


def test_frames_say_what_the_files_say(made):
    floor = {"token": 2.0, "sentence": 2.1}
    made.point("gate", [3.2], floor=floor, score="bound", leaks="time_std")
    folder = load(made.path)
    runs = folder.runs.collect()
    row = runs.filter(run="gate-confirm-1").row(0, named=True)
    assert row == {
        "run": "gate-confirm-1", "point": "gate", "stage": "confirm", "seed": 1, "score": "bound",
        "corpus": '{"name": "ptb", "lines": 100}', "fingerprint": "f00d", "vocab": 30,
        "length": 20, "parameters": 12345, "leaks": "time_std", "floor_token": 2.0,
        "floor_sentence": 2.1, "setting": '{"lr": 0.003}', "model": '{"name": "m"}',
    }  # fmt: skip
    assert len(runs) == 3
    for run in runs["run"]:
        written = RunFolder(made.path / run).records()
        read = folder.events.collect().filter(run=run).drop("run").to_dicts()
        pairs = zip(read, written, strict=True)
        assert all({name: row[name] for name in line} == line for row, line in pairs)


def test_the_last_of_doubled_lines_counts(made):
    before = events(made)
    path = made.records("full-confirm-1")
    line = json.loads(path.read_text().splitlines()[1])
    path.write_text(path.read_text() + json.dumps({**line, "valid_token": 9.5}) + "\n")
    after = events(made)
    assert len(after) == len(before)
    changed = after.filter(run="full-confirm-1", event="epoch", epoch=2)
    assert changed["valid_token"].to_list() == [9.5]


TORN = [
    b'{"event": "epoch", "epo',
    b'{"event": "epoch", "epoch": 9, "token": ',
    b"\xff\xfe",
    b"[1]",
    b"17",
]


@pytest.mark.parametrize("torn", TORN)
def test_a_torn_last_line_is_left_out_and_counted(made, torn):
    before = events(made)
    path = made.records("full-confirm-2")
    path.write_bytes(path.read_bytes() + torn)
    assert events(made).equals(before)
    assert load(made.path).damaged == 1


def test_a_torn_line_costs_the_line_that_was_written_onto_it_and_no_other(made):
    before = events(made)
    path = made.records("full-confirm-1")
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0][:20] + lines[1], *lines[2:]]))
    kept = (before["run"] != "full-confirm-1") | (before["epoch"] == 3)
    assert events(made).equals(before.filter(kept))
    assert load(made.path).damaged == 1


@pytest.mark.parametrize("blank", [b"", b"\n"], ids=["records only", "blank lines"])
def test_one_pass_and_line_by_line_agree(made, blank, monkeypatch):
    texts = [(p.parent.name, p.read_bytes()) for p in sorted(made.path.glob("*/records.ndjson"))]
    extra = b'{"event": "note", "epoch": 0, "reason": "{\\"new\\": 1}", "nested": {"a": [1]}}\n'
    texts = [(run, text + blank + extra + blank) for run, text in texts]
    texts[0] = texts[0][0], texts[0][1].rstrip(b"\n")
    texts.insert(1, ("not begun", b""))
    mended, one = read_events([*texts, ("late", b"{torn")])
    if not blank:
        monkeypatch.setattr("lmzoo.analysis.load._line_by_line", None)
    whole, none = read_events(texts)
    assert whole.equals(mended)
    assert (none, one) == (0, 1)


@pytest.mark.parametrize("foreign", [b"{}", b'{"epoch": 5}', b'{"event": "end"}'])
@pytest.mark.parametrize("torn", [b"", b"{torn"])
def test_a_line_without_event_or_epoch_is_no_record(made, foreign, torn):
    before = events(made)
    path = made.records("full-confirm-1")
    path.write_bytes(path.read_bytes() + foreign + b"\n" + torn)
    assert events(made).equals(before)


def test_a_last_line_without_its_newline_counts_if_it_is_whole(made):
    before = events(made)
    path = made.records("full-confirm-1")
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert events(made).equals(before)


def test_the_status_is_the_last_one_written(made):
    RunFolder(made.path / "full-confirm-1").append({"event": "end", "epoch": 1, "status": "failed"})
    folder = load(made.path)
    found = with_status(folder.runs, folder.events).select("run", "status").collect()
    assert dict(found.iter_rows()) == {"full-confirm-1": "failed", "full-confirm-2": "finished"}


def test_runs_come_by_name_whatever_order_the_disk_has(made):
    for name in "zyxwvuts":
        made.point(name, [3.0])
    runs = load(made.path).runs.collect()["run"].to_list()
    assert len(runs) == 10
    assert runs == sorted(runs)


def test_a_file_that_cannot_be_read_is_named(made):
    made.records("full-confirm-1").unlink()
    made.records("full-confirm-1").mkdir()
    with pytest.raises(UserError, match=r"full-confirm-1/records.ndjson: Is a directory"):
        load(made.path)


def test_folders_without_a_config_are_ignored_and_counted(made):
    (made.path / "stray").mkdir()
    (made.path / "half").mkdir()
    (made.path / "half" / "config.json").write_text('{"schema": 1, ')
    (made.path / ".hidden").mkdir()
    folder = load(made.path)
    assert folder.ignored == 2
    assert len(folder.runs.collect()) == 2


def test_a_run_that_has_not_begun_has_no_events(made):
    for path in made.path.glob("*/records.ndjson"):
        path.unlink()
    folder = load(made.path)
    assert len(folder.runs.collect()) == 2
    assert folder.events.collect().is_empty()


def test_errors_name_the_cause_and_the_remedy(made, tmp_path):
    with pytest.raises(UserError, match=r"no folder '.*nowhere'; give the folder of a study"):
        load(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"no study.json .*the studies inside it are: toy"):
        load(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="run a sweep first"):
        load(tmp_path / "empty")


@pytest.mark.parametrize("of", ["study", "run"])
def test_another_schema_is_refused(made, of):
    path = made.path / "study.json" if of == "study" else made.config("full-confirm-1")
    write_json(path, {**json.loads(path.read_text()), "schema": 2})
    with pytest.raises(UserError, match=rf"{path.name} has schema 2, this version reads 1"):
        load(made.path)


def test_a_config_that_is_no_runs_is_refused(made):
    path = made.config("full-confirm-1")
    config = json.loads(path.read_text())
    del config["point"]
    write_json(path, config)
    with pytest.raises(UserError, match=r"not the config of a study's run: KeyError\('point'\)"):
        load(made.path)
