"""Reading study folders: complete, with repeated or damaged lines, empty, or of another kind."""

import json

import pytest

from lmzoo.base.errors import UserError
from lmzoo.lab.analysis.load import REMEDY, load_study, read_events
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.store.records import RunFolder, is_config, json_bytes, record_line
from tests.lab.analysis.toy_study import ToyStudy


@pytest.fixture
def toy(tmp_path):
    toy = ToyStudy(tmp_path / "toy")
    toy.add_point("full", [3.0, 3.1])
    return toy


def events(toy):
    return load_study(toy.path).events.sort("run", "event", "epoch").collect()


def test_frames_have_the_content_of_the_files(toy):
    floor = {"token": 2.0, "sentence": 2.1}
    toy.add_point("gate", [3.2], floor=floor, score="bound", leaks="time_std", flops=99)
    folder = load_study(toy.path)
    runs = folder.runs.collect()
    row = runs.filter(run="gate-confirm-1").row(0, named=True)
    assert row == {
        "run": "gate-confirm-1", "point": "gate", "stage": "confirm", "seed": 1, "score": "bound",
        "corpus": '{"name": "ptb", "lines": 100}', "fingerprint": "f00d", "vocab": 30,
        "length": 20, "parameters": 12345, "state_size": None, "flops": 99, "leaks": "time_std",
        "floor_token": 2.0, "floor_sentence": 2.1, "ceiling": None, "setting": '{"lr": 0.003}',
        "recipe": '{"lr": 0.003}', "model": '{"name": "m"}', "program": None,
        "status": "finished", "ended": 3,
        "environment": '[{"torch": "2"}, {}]', "time": row["time"],
    }  # fmt: skip
    assert len(runs) == 3
    for run in runs["run"]:
        records = RunFolder(toy.path / run).records()
        read = folder.events.collect().filter(run=run).drop("run").to_dicts()
        pairs = zip(read, records, strict=True)
        assert all({name: row[name] for name in line} == line for row, line in pairs)


def test_the_last_of_repeated_lines_counts(toy):
    before = events(toy)
    path = toy.records_path("full-confirm-1")
    line = json.loads(path.read_text().splitlines()[1])
    path.write_text(path.read_text() + json.dumps({**line, "valid_token": 9.5}) + "\n")
    after = events(toy)
    assert len(after) == len(before)
    changed = after.filter(run="full-confirm-1", event="epoch", epoch=2)
    assert changed["valid_token"].to_list() == [9.5]


def test_runs_that_have_read_other_files_than_the_confirm_runs_do_not_count(toy):
    toy.add_point("gate", [4.0])
    read = {"full-confirm-1": "a", "full-confirm-2": "a", "gate-confirm-1": "b"}
    for point, seed, content in (("full", 1, "a"), ("full", 2, "b"), ("gate", 3, "b")):
        read[toy.add_run(point, seed, 3.0)] = content
    for run, content in read.items():
        own = {"data.csv": content, run: content}
        line = json.dumps({"event": "files", "epoch": 1, "files": own}) + "\n"
        toy.records_path(run).write_text(line + toy.records_path(run).read_text())
    counted = load_study(toy.path).runs.collect()["run"]
    assert {*read} - {*counted} == {"full-tune-2"}
    toy.study_json["chosen"]["full"]["runs"] = ["full-tune-2"]  # the file is changed back
    counted = load_study(toy.write()).runs.collect()["run"]
    assert {*read} - {*counted} == {"full-confirm-1", "full-confirm-2", "full-tune-1"}


def test_before_a_setting_is_chosen_the_last_run_has_the_files_of_now(toy):
    for seed, content in ((1, "new"), (2, "old"), (3, "new")):
        run = toy.add_run("untuned", seed, 3.0)
        time = f"2026-11-{10 if content == 'old' else 20}T00:00:00+00:00"
        read = {"event": "files", "epoch": 1, "files": {"data.csv": content}}
        end = {"event": "end", "epoch": toy.epochs, "status": "finished", "time": time}
        with toy.records_path(run).open("a") as file:
            file.write(f"{json.dumps(read)}\n{json.dumps(end)}\n")
    counted = {*load_study(toy.path).runs.collect()["run"]}
    assert {f"untuned-tune-{n}" for n in (1, 2, 3)} - counted == {"untuned-tune-2"}


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
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0][:20] + lines[1], *lines[2:]]))
    remaining = (before["run"] != "full-confirm-1") | (before["epoch"] == 3)
    assert events(toy).equals(before.filter(remaining))
    assert load_study(toy.path).damaged == ("full-confirm-1/records.ndjson has 1 damaged lines",)


@pytest.mark.parametrize("blank", [b"", b"\n"], ids=["records only", "blank lines"])
def test_parsing_together_and_line_by_line_agree(toy, blank, monkeypatch):
    extra = {"event": "note", "epoch": 0, "reason": '{"new": 1}', "nested": {"a": [1]}}
    texts = []
    for path in sorted(toy.path.glob("*/records.ndjson")):
        records = [*RunFolder(path.parent).records(), extra]
        lines = "".join(record_line(record) + "\n" for record in records).encode()
        texts.append((path.parent.name, blank + lines + blank))
    texts[0] = texts[0][0], texts[0][1].rstrip(b"\n")
    texts.insert(1, ("not begun", b""))
    by_line, damaged = read_events([*texts, ("late", b"{torn")])
    if not blank:
        monkeypatch.setattr("lmzoo.lab.analysis.load._parse_lines", None)
    together, none_damaged = read_events(texts)
    assert together.equals(by_line)
    assert (none_damaged, damaged) == ({}, {"late": 1})


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


@pytest.mark.parametrize(
    ("name", "value"),
    [("floor", [1]), ("floor", {"token": "1"}), ("ceiling", "x"), ("vocab", 2.0),
     ("seed", True), ("point", {"id": 1}), ("point", []), ("leaks", None), ("model", "gru")],
)  # fmt: skip
def test_a_config_with_a_value_of_another_type_is_damaged(toy, name, value):
    path = toy.records_path("full-confirm-1").with_name("config.json")
    config = json.loads(path.read_bytes())
    assert is_config(config)
    assert not is_config({**config, name: value})


def test_errors_name_the_folder_and_the_next_step(toy, tmp_path):
    with pytest.raises(UserError, match=r"no folder '.*nowhere'; give the folder of a study"):
        load_study(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"no readable study.json; the studies inside it are: toy"):
        load_study(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="run a sweep first"):
        load_study(tmp_path / "empty")


@pytest.mark.parametrize("place", ["study.json", "full-confirm-1/config.json"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("schema", r"json has schema 99, but this version reads 2 and 4 and 5;"),
        ("numerics", r"numerics version .* not comparable; delete these runs"),
    ],
)
def test_another_schema_or_numerics_is_refused(toy, place, name, message):
    path = toy.path / place
    path.write_bytes(json_bytes({**json.loads(path.read_text()), name: 99}))
    with pytest.raises(UserError, match=message):
        load_study(toy.path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("budget", None), ("budget", {}), ("budget", {"epochs": "1"}), ("name", None),
        ("question", 3), ("search", []), ("points", []), ("points", {"a": 1}), ("points", [{}]),
        ("margin", "a"), ("reference", 3), ("looks", 1), ("looks", [["a", 1, 2]]), ("asked", None),
        ("chosen", []), ("chosen", {"a": 3}), ("chosen", {"a": {"runs": 3}}),
        ("chosen", {"a": {"runs": [], "tuning_sd": "x"}}),
    ],
)  # fmt: skip
def test_a_study_with_values_of_other_types_is_damaged(toy, name, value):
    path = toy.path / "study.json"
    path.write_bytes(json_bytes({**json.loads(path.read_text()), name: value}))
    with pytest.raises(UserError, match=r"study.json is damaged; run the sweep again"):
        load_study(toy.path)


def test_numbers_of_more_than_64_bits_are_damage(toy):
    path = toy.records_path("full-confirm-1")
    path.write_bytes(path.read_bytes().replace(b'"epoch": 3', b'"epoch": ' + b"9" * 20, 1))
    assert "1 damaged lines" in load_study(toy.path).damaged[0]
    for config in toy.path.glob("*/config.json"):
        config.write_bytes(json_bytes({**json.loads(config.read_text()), "seed": 10**20}))
    with pytest.raises(UserError, match=r"no run of .* is readable: run the sweep again"):
        load_study(toy.path)


def test_a_study_of_one_other_numerics_is_read(toy):
    for path in (toy.path / "study.json", *toy.path.glob("*/config.json")):
        path.write_bytes(json_bytes({**json.loads(path.read_text()), "numerics": 99}))
    folder = load_study(toy.path)
    assert len(folder.runs.collect()) == 2
    assert folder.study["data"]["warnings"][0].startswith("trained by numerics 99; this version")
