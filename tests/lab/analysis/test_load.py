"""Reading study folders: complete, with repeated or damaged lines, empty, or of another kind."""

import json

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.load import REMEDY, load_study, read_events
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.store.records import RunFolder, is_config, json_bytes, record_line
from tests.cases import cases, rows
from tests.lab.analysis.toy_study import ToyStudy, read_lines, write_lines

CASES = "lab/analysis/cases.toml"


@pytest.fixture
def toy(tmp_path):
    toy = ToyStudy(tmp_path / "toy")
    toy.add_points("full: 3.0 3.1")
    return toy


def events(toy):
    return load_study(toy.path).events.sort("run", "event", "epoch").collect()


@pytest.fixture
def with_gate(toy):
    floor = {"token": 2.0, "sentence": 2.1}
    toy.add_points("gate: 3.2", floor=floor, score="bound", leaks="time_std", flops=99)
    return load_study(toy.path)


def test_a_row_of_runs_has_the_content_of_its_config(with_gate):
    runs = with_gate.runs.collect()
    assert len(runs) == 3
    found = runs.filter(run="gate-confirm-1").row(0, named=True)
    del found["time"]
    known = {}
    for name, value in found.items():
        if value is not None:
            known[name] = value
    assert known == rows(CASES, "run_of_gate")


@pytest.mark.parametrize("run", ["full-confirm-1", "full-confirm-2", "gate-confirm-1"])
def test_a_row_of_events_has_the_content_of_its_line(toy, with_gate, run):
    found = with_gate.events.filter(run=run).collect()
    records = RunFolder(toy.path / run).records()
    for event, line in zip(found.to_dicts(), records, strict=True):
        assert line.items() <= event.items()


def test_the_last_of_repeated_lines_counts(toy):
    before = events(toy)
    path = toy.records_path("full-confirm-1")
    lines = read_lines(path)
    write_lines(path, lines + [lines[1] | {"valid_token": 9.5}])
    after = events(toy)
    assert len(after) == len(before)
    changed = after.filter(run="full-confirm-1", event="epoch", epoch=2)
    assert changed["valid_token"].to_list() == [9.5]


def begin_with_files(toy, run, content):
    """Write that a run has read a file that all read, and one that only it reads."""
    path = toy.records_path(run)
    files = {"data.csv": content, run: content}
    read = {"event": "files", "epoch": 1, "files": files}
    write_lines(path, [read] + read_lines(path))


@pytest.fixture
def read_of(toy):
    """What each run has read: a run of the search of `full` read another file than the others."""
    toy.add_points("gate: 4.0")
    read = {"full-confirm-1": "a", "full-confirm-2": "a", "gate-confirm-1": "b"}
    read[toy.add_run("full", 1, 3.0)] = "a"
    read[toy.add_run("full", 2, 3.0)] = "b"
    read[toy.add_run("gate", 3, 3.0)] = "b"
    for run, content in read.items():
        begin_with_files(toy, run, content)
    return read


def left_out(toy, known):
    counted = load_study(toy.path).runs.collect()["run"]
    return set(known).difference(counted)


def test_runs_that_have_read_other_files_than_the_confirm_runs_do_not_count(toy, read_of):
    assert left_out(toy, read_of) == {"full-tune-2"}


def test_runs_of_a_file_that_is_changed_back_count_again(toy, read_of):
    toy.study_json["chosen"]["full"]["runs"] = ["full-tune-2"]
    toy.write()
    assert left_out(toy, read_of) == {"full-confirm-1", "full-confirm-2", "full-tune-1"}


def test_before_a_setting_is_chosen_the_last_run_has_the_files_of_now(toy):
    runs = []
    for seed, content, day in ((1, "new", 20), (2, "old", 10), (3, "new", 20)):
        run = toy.add_run("untuned", seed, 3.0)
        path = toy.records_path(run)
        read = {"event": "files", "epoch": 1, "files": {"data.csv": content}}
        time = f"2026-11-{day}T00:00:00+00:00"
        end = {"event": "end", "epoch": toy.epochs, "status": "finished", "time": time}
        write_lines(path, read_lines(path) + [read, end])
        runs.append(run)
    assert left_out(toy, runs) == {"untuned-tune-2"}


@pytest.mark.parametrize("damaged", [b'{"event": "epoch", "epo', b'{"event": 1', b"\xff", b"17"])
def test_a_damaged_last_line_is_left_out_and_counted(toy, damaged):
    before = events(toy)
    path = toy.records_path("full-confirm-2")
    path.write_bytes(path.read_bytes() + damaged)
    assert events(toy).equals(before)
    assert load_study(toy.path).damaged == ("full-confirm-2/records.ndjson has 1 damaged lines",)


def test_a_damaged_line_loses_only_the_line_written_after_it(toy):
    before = events(toy)
    path = toy.records_path("full-confirm-1")
    text = path.read_bytes()
    second = text.index(b"\n") + 1
    # The writer was killed within the first line; the next one follows it.
    path.write_bytes(text[:20] + text[second:])
    remaining = (before["run"] != "full-confirm-1") | (before["epoch"] == 3)
    assert events(toy).equals(before.filter(remaining))
    assert load_study(toy.path).damaged == ("full-confirm-1/records.ndjson has 1 damaged lines",)


@pytest.mark.parametrize("blank", [b"", b"\n"], ids=["records only", "blank lines"])
def test_parsing_together_and_line_by_line_agree(toy, blank, monkeypatch):
    first = blank + text_of(toy, "full-confirm-1") + blank
    second = blank + text_of(toy, "full-confirm-2") + blank
    texts = [
        ("full-confirm-1", first.rstrip(b"\n")),
        ("not begun", b""),
        ("full-confirm-2", second),
    ]
    by_line, damaged = read_events(texts + [("late", b"{torn")])
    if not blank:
        monkeypatch.setattr("lmzoo.lab.analysis.load._parse_lines", None)
    together, none_damaged = read_events(texts)
    assert together.equals(by_line)
    assert damaged == {"late": 1}
    assert none_damaged == {}


def text_of(toy, run):
    """Return the lines of a run, and one of a later version."""
    records = RunFolder(toy.path / run).records()
    extra = {"event": "note", "epoch": 0, "reason": '{"new": 1}', "nested": {"a": [1]}}
    lines = []
    for record in list(records) + [extra]:
        lines.append(f"{record_line(record)}\n")
    return "".join(lines).encode()


def test_an_unreadable_file_is_named_in_the_error(toy):
    toy.records_path("full-confirm-1").unlink()
    toy.records_path("full-confirm-1").mkdir()
    with pytest.raises(UserError, match=r"full-confirm-1/records.ndjson: Is a directory"):
        load_study(toy.path)


def test_folders_without_a_config_are_left_out_and_named(toy):
    for path in toy.path.glob("*/records.ndjson"):
        path.unlink()  # a run without records has no events
    (toy.path / "stray").mkdir()
    (toy.path / ".hidden").mkdir()
    folder = load_study(toy.path)
    assert folder.damaged == (f"stray has no readable config.json; if it was a run, {REMEDY}",)
    assert len(folder.runs.collect()) == 2
    assert folder.events.collect().is_empty()


@pytest.mark.parametrize(
    "content",
    [b"", b'{"schema": 1, ', b'{"schema": 2}', b"[1]", b"null", b"\0" * 300, b"[" * 99999],
)
def test_a_run_with_a_damaged_config_is_left_out_and_named(toy, content):
    path = toy.records_path("full-confirm-1").with_name("config.json")
    path.write_bytes(content)
    folder = load_study(toy.path)
    assert "full-confirm-1" not in folder.runs.select("run").collect()["run"]
    said = f"full-confirm-1 has no readable config.json; if it was a run, {REMEDY}"
    assert folder.damaged == (said,)
    assert f"WARNING: {said}" in study_ranking(folder).warnings


@cases(CASES, "damaged_configs", "name, value")
def test_a_config_with_a_value_of_another_type_is_damaged(toy, name, value):
    path = toy.config_path("full-confirm-1")
    config = json.loads(path.read_bytes())
    assert is_config(config)
    assert not is_config(config | {name: json.loads(value)})


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"no folder '.*nowhere'; give the folder of a study"):
        load_study(tmp_path / "nowhere")


def test_the_folder_of_studies_names_them(toy, tmp_path):
    with pytest.raises(UserError, match=r"no readable study.json; the studies inside it are: toy"):
        load_study(tmp_path)


def test_an_empty_folder_needs_a_sweep_first(tmp_path):
    with pytest.raises(UserError, match="run a sweep first"):
        load_study(tmp_path)


def change_file(path, **values):
    """Set these values in a file of JSON."""
    content = json.loads(path.read_text())
    path.write_bytes(json_bytes(content | values))


@pytest.mark.parametrize("place", ["study.json", "full-confirm-1/config.json"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("schema", r"json has schema 99, but this version reads 2 and 4 and 5;"),
        ("numerics", r"numerics version .* not comparable; delete these runs"),
    ],
)
def test_another_schema_or_numerics_is_refused(toy, place, name, message):
    change_file(toy.path / place, **{name: 99})
    with pytest.raises(UserError, match=message):
        load_study(toy.path)


@cases(CASES, "damaged_studies", "name, value")
def test_a_study_with_values_of_other_types_is_damaged(toy, name, value):
    change_file(toy.path / "study.json", **{name: json.loads(value)})
    with pytest.raises(UserError, match=r"study.json is damaged; run the sweep again"):
        load_study(toy.path)


def test_a_line_with_a_number_of_more_than_64_bits_is_damaged(toy):
    path = toy.records_path("full-confirm-1")
    # Twenty digits do not fit into 64 bits.
    large = b'"epoch": ' + b"9" * 20
    path.write_bytes(path.read_bytes().replace(b'"epoch": 3', large, 1))
    assert "1 damaged lines" in load_study(toy.path).damaged[0]


def test_a_config_with_a_number_of_more_than_64_bits_is_damaged(toy):
    for config in toy.path.glob("*/config.json"):
        change_file(config, seed=10**20)
    with pytest.raises(UserError, match=r"no run of .* is readable: run the sweep again"):
        load_study(toy.path)


def test_a_study_of_one_other_numerics_is_read(toy):
    for path in toy.path.rglob("*.json"):
        change_file(path, numerics=99)
    folder = load_study(toy.path)
    assert len(folder.runs.collect()) == 2
    assert folder.study["data"]["warnings"][0].startswith("trained by numerics 99; this version")
