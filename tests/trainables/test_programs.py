"""Functions and commands as points of a study: their records, states, metrics and errors."""

import builtins
import gc
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from lmzoo import Point, Study
from lmzoo.base.errors import ProgramError, UserError
from lmzoo.base.search_space import Choice, FloatRange
from lmzoo.lab.analysis.load import load_study, read_study
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.store.opened import SEEN
from lmzoo.lab.store.records import RunFolder, epoch_records
from lmzoo.lab.study import output
from lmzoo.lab.study.commands import Command, CommandRun
from lmzoo.trainables.functions import FunctionRun
from lmzoo.trainables.resolve import resolve
from tests.cases import cases
from tests.lab.sweep.local_fleet import fleet_sweep
from tests.other_order import other_order
from tests.toy_study import corpus as corpus
from tests.toy_study import corpus_fields as corpus_fields
from tests.toy_study import sentences as sentences
from tests.toy_study import toy_study
from tests.trainables import own_programs

SCRIPT = f"{sys.executable} {Path(own_programs.__file__)} {{lr}} {{seed}}"
SPACE = {"lr": FloatRange(0.01, 0.9, log=True)}
ROUNDING = 1e-5
"""What an interval may differ by, if losses differ by 1e-6."""
NUMBERS = st.sampled_from([1.0, 1.5, 2.0, math.nan, math.inf, -math.inf])
POINTS = (
    Point("function", own_programs.train),
    Point("shifted", own_programs.train, {"shift": 0.5}),
    Point("no state", own_programs.train_without_state),
    Point("command", Command(SCRIPT)),
    Point("ahead", Command(SCRIPT + " ahead")),
)


def own_study(points=POINTS, **changes) -> Study:
    given = {"search": SPACE, "epochs": 4, "samples": 3, "seeds": 2, "grace": 1, **changes}
    return Study(name="own", question="Which one?", points=points, **given)


def run_of(program, tmp_path: Path, settings=None, **changes):
    """Return an open run of a program, without a study."""
    if settings is None:
        settings = {"lr": 0.1}
    study = own_study((Point("one", program, settings),), search={}, **changes)
    config = resolve(study, None, None)[0].run_config({}, 0)
    config = {**config, "point": {"id": "p", "label": "one"}, "stage": "confirm", "setting": {}}
    kind = FunctionRun
    if isinstance(program, Command):
        kind = CommandRun
    return kind(RunFolder(tmp_path / config["run"]), config, lock=False)


def trained(run, budget: int) -> list[float]:
    """Train a run to its budget; return its losses."""
    while run.epoch < budget and not run.training.diverged:
        run.train_epoch(budget)
        run.save_epoch()
    run.close()
    return [r["valid_token"] for r in epoch_records(run.folder.records())]


def script_of(tmp_path: Path, text: str) -> str:
    (tmp_path / "own.py").write_text(text)
    return f"{sys.executable} {tmp_path / 'own.py'} {{seed}}"


def table(path: Path):
    return study_ranking(path).frame.drop("seconds")


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # a worker that dies closes nothing
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_deaths_on_two_workers_do_not_change_the_table(sentences, corpus, corpus_fields, tmp_path):
    """A row of the zoo, functions and commands in one study, with a shared table.

    The runs of the row are in other packs, in which sums have another order.
    """
    toy = toy_study(sentences)
    study = own_study(
        (toy.points[0], POINTS[0], POINTS[4]),
        corpus=toy.corpus,
        fields=toy.fields,
        search={**toy.search, **SPACE},
        samples=2,
    )
    with other_order():
        fleet_sweep(study, corpus, corpus_fields, tmp_path / "whole", seed=1)
        fleet_sweep(study, corpus, corpus_fields, tmp_path / "dead", seed=2, deaths={7, 16, 25})
    gc.collect()  # ends the programs of the workers that died
    whole = table(tmp_path / "whole")
    dead = table(tmp_path / "dead")
    assert_frame_equal(whole, dead, rel_tol=ROUNDING, abs_tol=ROUNDING)
    assert whole["score"].unique().to_list() == ["exact"]
    marked = {row["label"] for row in whole.to_dicts() if "reported" in row["marks"]}
    assert marked == {"function", "ahead"}
    verdicts = dict(whole.select("label", "verdict").iter_rows())
    assert verdicts["function"], "it is compared with the row"
    assert read_study(tmp_path / "whole")["data"] == json.loads(json.dumps(corpus.facts.as_json()))


def test_a_study_of_programs_needs_no_corpus(tmp_path):
    study = own_study(reference="function")
    fleet_sweep(study, None, None, tmp_path)
    rows = {row["label"]: row for row in table(tmp_path).to_dicts()}
    assert rows["function"]["verdict"] is None
    assert rows["shifted"]["verdict"] == "worse"
    assert rows["shifted"]["difference"] == pytest.approx(0.5, abs=0.05)
    assert rows["command"]["loss"] == pytest.approx(rows["function"]["loss"], abs=0.05)


@pytest.mark.parametrize("program", [POINTS[0].row, POINTS[2].row, POINTS[4].row])
def test_an_interrupted_run_has_the_records_of_a_whole_one(program, tmp_path):
    whole = trained(run_of(program, tmp_path / "whole"), 6)
    first = run_of(program, tmp_path / "cut")
    trained(first, 2)
    assert trained(run_of(program, tmp_path / "cut"), 6) == whole
    assert len(whole) == 6


def test_a_state_that_is_ahead_of_the_records_begins_again(tmp_path):
    program = Command(SCRIPT + " ahead")
    whole = trained(run_of(program, tmp_path / "whole"), 4)
    run = run_of(program, tmp_path / "cut")
    trained(run, 1)
    (run.folder.path / "state" / "state.json").write_text("[0.5, 3]")
    assert trained(run_of(program, tmp_path / "cut"), 4) == whole


def test_a_program_with_nothing_left_to_report_begins_again(tmp_path):
    program = Command(SCRIPT + " ahead")
    whole = trained(run_of(program, tmp_path / "whole"), 4)
    run = run_of(program, tmp_path / "ended")
    trained(run, 1)
    (run.folder.path / "state" / "state.json").write_text("[0.5, 999]")
    assert trained(run_of(program, tmp_path / "ended"), 4) == whole


def test_a_worker_that_dies_takes_its_program_along(tmp_path):
    """The program, and what it started, end when the pipe of the worker closes."""
    text = 'import os, time\nprint(\'{"epoch": 1, "valid": 1}\', flush=True)\ntime.sleep(600)\n'
    run = run_of(Command(script_of(tmp_path, text)), tmp_path, {})
    run.train_epoch(2)
    process = run._process
    process.stdin.close()  # as the death of this process does
    assert process.wait(timeout=20) < 0
    run.close()


STATES = {
    "tensor": torch.arange(3.0),
    "array": np.arange(4),
    "scalar": np.float64(0.5),
    "nested": [{"a": (1, None, "x")}, b"bytes"],
    "random": np.random.default_rng(0).bit_generator.state,
}
RESUMED: list[bool] = []  # whether `keep` got a state; a run without one only takes longer


def keep(settings, seed, resume):
    """Yield a state with everything that a state may have, and check what comes back."""
    RESUMED.append(resume is not None)
    first = 1
    if resume is not None:
        first = 2
        assert resume["array"].tolist() == [0, 1, 2, 3]
        assert torch.equal(resume["tensor"], STATES["tensor"])
        assert resume["nested"] == STATES["nested"]
        assert resume["random"] == STATES["random"]
    for epoch in range(first, 9):
        yield {"epoch": epoch, "valid": 1.0}, STATES


def refuse(settings, seed):
    yield {"epoch": 1, "valid": 1.0}, {"a": object()}


def test_states_are_tensors_arrays_and_plain_values(tmp_path):
    trained(run_of(keep, tmp_path), 1)
    assert len(trained(run_of(keep, tmp_path), 3)) == 3
    assert RESUMED == [False, True]


def test_a_state_of_another_kind_is_refused(tmp_path):
    run = run_of(refuse, tmp_path)
    run.train_epoch(2)
    with pytest.raises(RuntimeError, match="the state has a object; give tensors"):
        run.save_epoch()


def test_a_metric_to_maximize_in_its_own_unit(tmp_path):
    points = (
        Point("0.0", own_programs.accuracy, {"lr": 0.0}),
        Point("3.0", own_programs.accuracy, {"lr": 3.0}),
    )
    study = own_study(points, search={}, metric="accuracy", direction="maximize", unit="%", seeds=4)
    fleet_sweep(study, None, None, tmp_path)
    report = study_ranking(tmp_path)
    first, second = report.frame.to_dicts()
    assert first["label"] == "3.0"
    assert first["verdict"] == "better"
    assert first["difference"] == pytest.approx(3.0)
    assert first["low"] < first["loss"] < first["high"]
    assert 90 < second["loss"] < 92
    assert "better than '0.0' by more than 0.02 %: 3.0 (gains 2.999 to 3.001 %)" in report.heading
    with pytest.raises(UserError, match="ranks a metric of its own"):
        study_ranking(tmp_path, unit="bpc")


REPORT = "print(json.dumps({'epoch': e, 'valid': 3 / e}))"
PRINT = "print(f'epoch {e}: lr 0.1, val {3 / e}')"
WRITE = """open(sys.argv[2] + '/m.csv', 'a', encoding='latin-1').write(
        'epoch,step,valid,é\\n' * (e == 1) + f'{e},7,{3 / e}\\n{e},8,\\n')"""
STEPS = """for s in (50 * e - 50, 50 * e - 25, 50 * e):
        print(json.dumps({'step': s, 'epoch': e / 9, 'valid': 150 / (s or 1)}))"""
EPOCHS = "import json, sys\nfor e in range(1, 4):\n    {}\n"


@pytest.mark.parametrize(
    ("line", "reading"),
    [
        (REPORT, {}),
        (REPORT.replace("e,", "e - 1,"), {"first_epoch": 0}),
        (PRINT, {"pattern": r"epoch (?P<epoch>\d+).* val (?P<valid>\S+)"}),
        (WRITE, {"csv": "{folder}/m.csv"}),
        (STEPS, {"every": 50}),
    ],
)
def test_where_a_command_reports_its_epochs(line, reading, tmp_path):
    command = Command(script_of(tmp_path, EPOCHS.format(line)) + " {folder}", **reading)
    assert trained(run_of(command, tmp_path, {}), 3) == [3.0, 1.5, 1.0]


EVENTS = """import sys
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter(sys.argv[2])
for e in (1, 2):
    value = Summary.Value(tag="val/loss", simple_value=4 / e)
    writer.add_event(Event(step=e, summary=Summary(value=[value])))
writer.close()
"""
"""What torch's `SummaryWriter` does, which takes seconds to import."""


def test_a_command_that_writes_for_tensorboard(tmp_path):
    command = Command(script_of(tmp_path, EVENTS) + " {folder}/tb", tensorboard="{folder}/tb")
    assert trained(run_of(command, tmp_path, {}, metric="val/loss"), 2) == [4.0, 2.0]


@cases("trainables/cases.toml", "reports")
def test_the_last_report_of_a_command_counts_or_it_says_why(case, tmp_path):
    """Also if its line has no end."""
    text = "exit('no such file x.bin')"
    if case["lines"]:
        text = f"print(*{case['lines']}, sep='\\n', end='')"
    command = Command(script_of(tmp_path, text), pattern=case.get("pattern", ""))
    run = run_of(command, tmp_path, {})
    loss = case.get("loss")
    if not isinstance(loss, str):
        assert trained(run, 4) == [loss]
        return
    with pytest.raises(RuntimeError, match=loss):
        run.train_epoch(4)
    run.close()


def read_aloud(settings, seed):
    """Report what a setting says; null is not reported."""
    for epoch, report in enumerate(json.loads(settings["reports"])):
        metrics = {"epoch": epoch + 1}
        for name, value in zip(("valid", "test"), report, strict=True):
            if value is not None:
                metrics[name] = value
        yield metrics


@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(st.lists(st.tuples(NUMBERS, st.none() | NUMBERS), min_size=1, max_size=4))
def test_no_number_stands_in_for_a_metric_that_is_not_there(reports):
    text = {"reports": json.dumps(reports)}
    with tempfile.TemporaryDirectory() as folder:
        losses = trained(run_of(read_aloud, Path(folder), text), len(reports))
        expected = []
        for valid, test in reports:
            if not math.isfinite(valid) or (test is not None and not math.isfinite(test)):
                expected.append(None)
                break
            expected.append(valid)
        assert losses == expected
        if None in expected:
            return
        run = run_of(read_aloud, Path(folder), text)
        valid, test = min(reports, key=lambda report: report[0])
        if all(t is None for _, t in reports):
            record = run.test()
            assert record["token"] == valid
            assert record["metric"] == "valid"
        elif test is not None:
            record = run.test()
            assert record["token"] == test
            assert record["metric"] == "test"
        else:
            with pytest.raises(RuntimeError, match="did not report 'test' with 'valid'"):
                run.test()
        run.close()


def test_a_point_without_the_test_metric_is_not_compared_by_another(tmp_path):
    study = own_study((Point("a", own_programs.train), Point("b", own_programs.train_untested)))
    fleet_sweep(study, None, None, tmp_path)
    rows = {row["label"]: row for row in table(tmp_path).to_dicts()}
    assert rows["a"]["loss"] is not None
    assert rows["b"]["loss"] is None
    assert not rows["b"]["verdict"]


def test_a_program_that_stops_early_has_its_last_metric_at_the_budget(tmp_path):
    command = Command(script_of(tmp_path, EPOCHS.format(REPORT)))
    run = run_of(command, tmp_path, {})
    assert trained(run, 9) == [3.0, 1.5, 1.0, 1.0]
    run = run_of(command, tmp_path, {})
    assert run.test()["token"] == 1.0
    run.close()


STARTED: list[int | None] = []


def three_epochs(settings, seed, resume):
    STARTED.append(resume)
    for epoch in range((resume or 0) + 1, 4):
        yield {"epoch": epoch, "valid": 1 / epoch}, epoch


def test_a_program_that_goes_on_and_stops_early_does_not_begin_again(tmp_path):
    trained(run_of(three_epochs, tmp_path), 1)
    assert trained(run_of(three_epochs, tmp_path), 9) == [1, 1 / 2, 1 / 3, 1 / 3]
    assert STARTED == [None, 1]


REPORTS = {
    "text": ("0.5", 0.5),
    "numpy": (np.float32(0.5), 0.5),
    "tensor": (torch.tensor(0.5), 0.5),
    "epoch": ({"epoch": "1", "valid": 0.5}, 0.5),
    "state": (({"valid": 0.5}, None), 0.5),
    "names": ({"valid": 0.5, None: 2.0, 0: 3.0, ("a", 1): 4.0}, 0.5),
    "huge": ({"valid": 1e308}, None),
    "none": (None, "valid is 'None', not a number"),
    "truth": (True, "valid is 'True', not a number"),
    "ever": (iter(float, 1), "have no epoch"),
    "test": ({"valid": 0.5, "test": "low"}, "test is 'low', not a number"),
    "triple": ([({"valid": 0.5}, 1, 2)], "report metrics, or also a state"),
    "zero": ({"epoch": 0, "valid": 0.5}, r"it counts epochs from 0: report epoch \+ 1$"),
    "rare": ({"epoch": 3, "valid": 0.5}, "epoch 3 after epoch 0; report each validation as an"),
    "nan": ({"epoch": math.nan, "valid": 0.5}, "epoch is nan, not a number"),
    "large": ({"valid": 10**400}, "valid is '1000.*, not a number"),
    "two": ((1, 2), "it returned"),
    "array": ([({"epoch": 1, "valid": 0.5}, np.array(["a"]))], "the state has a ndarray"),
}
"""What is reported, and the loss of the run or its error."""


def report(settings, seed):
    return REPORTS[settings["report"]][0]


async def later(settings, seed):
    return 0.5


def needs(settings, seed, path):
    return 0.5


@pytest.mark.parametrize("name", REPORTS)
def test_what_a_function_reports_is_a_number_or_its_error_says_why(name, tmp_path):
    run = run_of(report, tmp_path, {"report": name})
    _, expected = REPORTS[name]
    if not isinstance(expected, str):
        assert trained(run, 2)[0] == expected
        return
    with pytest.raises(RuntimeError, match=expected):
        trained(run, 2)
    run.close()


def leave(settings, seed):
    try:
        yield {"epoch": 1, "valid": 1.0}
    finally:
        raise getattr(builtins, settings["error"])("no disk")


@pytest.mark.parametrize("error", ["SystemExit", "KeyboardInterrupt", "GeneratorExit"])
def test_a_function_that_leaves_python_ends_its_run_with_its_words(error, tmp_path):
    assert trained(run_of(leave, tmp_path / "ended", {"error": error}), 1) == [1.0]
    assert len(list(tmp_path.glob("*/*/output.txt"))) == (error != "GeneratorExit")
    run = run_of(leave, tmp_path, {"error": error})
    run.train_epoch(4)
    words = error.replace("SystemExit", "sys.exit")
    with pytest.raises(RuntimeError, match=rf"it ended with {words}\('no disk'\)"):
        run.train_epoch(4)
    run.close()


def talk(settings, seed):
    for epoch in (1, 2):
        for line in range(settings["lines"]):
            sys.stdout.write(f"line {line} of epoch {epoch}\n")
        sys.stderr.buffer.write("ünd\n".encode())
        subprocess.run(["true"], stdout=sys.stdout, check=True)
        yield {"epoch": epoch, "valid": 1.0}


@pytest.mark.parametrize("lines", [2, 200])
def test_what_a_function_prints_is_kept_up_to_a_limit(lines, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(output, "MOST", 1000)
    run = run_of(talk, tmp_path, {"lines": lines})
    trained(run, 2)
    run.close()
    found = (run.folder.path / output.OUTPUT).read_text().splitlines()
    assert found[-3:] == [f"line {lines - 2} of epoch 2", f"line {lines - 1} of epoch 2", "ünd"]
    assert (found[0] == "line 0 of epoch 1") == (lines == 2)
    assert (run.folder.path / output.OUTPUT).stat().st_size <= 1000
    assert capsys.readouterr() == ("", "")


def fork(settings, seed):
    child = os.fork()
    if child == 0:
        return 9.0
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_that_a_function_forks_does_not_go_on_as_the_worker(tmp_path):
    own = os.getpid()
    try:
        reports = trained(run_of(fork, tmp_path, {}), 1)
    finally:
        if os.getpid() != own:
            os._exit(3)
    assert reports == [1.0]


def set_for_all(settings, seed):
    os.chdir("/")
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    np.seterr(all="raise")
    os.environ |= {"LEVEL": "9", "HOME": "/"}
    for epoch in (1, 2, 3):
        yield {"epoch": epoch, "valid": torch.zeros(1).element_size()}


def test_what_a_function_sets_for_the_process_ends_with_its_run(tmp_path):
    before = Path.cwd(), np.geterr(), dict(os.environ)
    run = run_of(set_for_all, tmp_path, {})
    assert trained(run, 2) == [8.0, 8.0]
    assert run.environment()["variables"]["LEVEL"] is None, "what it was given"
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()
    assert (Path.cwd(), np.geterr(), dict(os.environ)) == before


@pytest.mark.parametrize(
    ("point", "changes", "message"),
    [
        (Point("a", lambda settings, seed: 1.0), {}, "not defined at the top of a module"),
        (Point("a", print), {}, "print has no parameter 'settings'"),
        (Point("a", max), {}, "function max has no parameter 'settings'"),
        (Point("a", later), {}, "function later is asynchronous"),
        (Point("a", needs), {}, "needs path; it is given settings, seed, resume, epochs by"),
        (Point("a", 3), {}, "3 is not the name of a row, a function or a Command"),
        (Point("a", Command("train --lr {lr}")), {}, "has no {seed}"),
        (Point("a", Command("train {seed} --lr {rl}")), {}, "no setting 'rl'; known: lr"),
        (Point("a", Command("train {seed}")), {}, "has no {lr}, a setting of the point"),
        (Point("a", Command("t {seed} {lr}", pattern="(")), {}, "pattern '\\('"),
        (Point("a", own_programs.train), {"search": {"lr": None}}, "no search range is known"),
        (Point("a", own_programs.train, {"x": object()}), {}, "a setting is no plain value"),
        (POINTS[0], {"search": {"lr": Choice((1.0, math.nan))}}, "a setting is no plain value"),
        (Point("a", own_programs.train), {"direction": "up"}, "direction 'up' is not minimize or"),
        (Point("a", "DLM46"), {"direction": "maximize"}, "rows of the zoo have a loss"),
    ],
)  # fmt: skip
def test_what_a_study_of_programs_refuses(point, changes, message):
    with pytest.raises(UserError, match=message.replace("{", r"\{")):
        resolve(own_study((point,), **changes), None, None)


DATA = """import json, os
x = float(open("data.csv").read()) + int(os.environ["LMZOO_SEED"]) / 8
for e in (1, 2):
    print(json.dumps({"epoch": e, "valid": x, "test": x}))
"""


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(DATA)
    (tmp_path / "data.csv").write_text("1")
    SEEN.clear()
    return tmp_path


@pytest.mark.parametrize("file", ["own.py", "data.csv"])
def test_a_run_whose_files_change_has_no_result(file, own_folder):
    command = Command(f"{sys.executable} own.py {{seed}}")
    run = run_of(command, own_folder / "store", {})
    run.train_epoch(2)
    run.save_epoch()
    before = Path(file).read_text()
    Path(file).write_text(before + "\n")
    with pytest.raises(ProgramError, match=f"{file} has changed since the sweep began"):
        run.train_epoch(2)
    run.close()
    assert not run.folder.records()
    Path(file).write_text(before)
    assert trained(run_of(command, own_folder / "store", {}), 2) == [1.0, 1.0]


def test_a_run_whose_variable_changes_has_no_result(own_folder, monkeypatch):
    monkeypatch.setenv("LEVEL", "1")
    run = run_of(Command("python own.py $LEVEL {seed}"), own_folder / "store", {})
    run.train_epoch(2)
    run.save_epoch()
    monkeypatch.setenv("LEVEL", "2")
    with pytest.raises(ProgramError, match=r"^LEVEL was \w+ when the sweep began, and is \w+;"):
        run.train_epoch(2)
    run.close()
    assert not run.folder.records()


def test_a_file_that_was_read_is_a_part_of_the_identity(own_folder, caplog):
    point = Point("a", Command(f"{sys.executable} own.py {{seed}}"))
    study = own_study((point,), search={}, epochs=2, samples=1)
    said = "a: runs are trained again, because data.csv has changed"
    for value, lines in ((1, []), (3, [said]), (1, [])):
        Path("data.csv").write_text(str(value))
        SEEN.clear()
        caplog.clear()
        fleet_sweep(study, None, None, own_folder / "store", workers=1)
        (row,) = table(own_folder / "store").to_dicts()
        assert row["loss"] == pytest.approx(value + 1.5 / 8)
        assert load_study(own_folder / "store").runs.collect().height == study.seeds
        assert caplog.messages == lines


def test_a_file_that_is_gone_is_said(own_folder, caplog):
    study = own_study((Point("a", reads_by_a_child),), search={}, epochs=1, samples=1, seeds=1)
    for line in ([], ["a: runs have read data.csv, which cannot be read now: they count"]):
        SEEN.clear()
        fleet_sweep(study, None, None, own_folder / "store", workers=1)
        assert caplog.messages == line
        Path("data.csv").unlink(missing_ok=True)


def reads_by_a_child(settings, seed):
    subprocess.run([sys.executable, "-c", "open('data.csv')"], check=True)
    yield {"epoch": 1, "valid": seed / 1000}


def test_files_and_places_of_a_command_are_declared(own_folder):
    assert Command("own {seed}", files=("*.csv",)).facts()["files"].keys() == {"data.csv"}
    with pytest.raises(UserError, match="names no file"):
        Command("own {seed}", files=("*.R",)).facts()
    for place in ({"csv": "m.csv"}, {"tensorboard": "runs/{seed}"}):
        with pytest.raises(UserError, match=r"runs would share .*; write \{folder\}/"):
            Command("own {seed}", **place).check({})
    Command("own $LMZOO_SEED").check({})


def test_what_an_earlier_process_wrote_does_not_count(tmp_path):
    text = "import sys\nopen(sys.argv[2], 'a').write('1,3\\n')"
    command = Command(script_of(tmp_path, text) + " {folder}/m.csv", csv="{folder}/m.csv")
    run = run_of(command, tmp_path / "store", {})
    (run.folder.path / "state").mkdir(parents=True)
    (run.folder.path / "state/m.csv").write_text("epoch,valid\n1,9\n")
    assert trained(run, 1) == [3.0]


def unseeded(settings, seed):
    yield {
        "epoch": 1,
        "valid": 1.0,
        "a": random.random(),
        "b": float(np.random.rand()),
        "c": float(torch.rand(())),
    }


def test_functions_draw_from_the_seed_of_their_run(tmp_path):
    found = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run = run_of(unseeded, tmp_path / name, {})
        run.config = {**run.config, "seed": seed}
        trained(run, 1)
        found.append([run.training.record["metrics"][key] for key in "abc"])
    assert found[0] == found[1]
    assert not set(found[0]) & set(found[2])


def test_the_identity_has_the_command_and_its_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def identity(command: Command) -> str:
        study = own_study((Point("a", command),), search={})
        return resolve(study, None, None)[0].run_config({}, 0)["run"]

    (tmp_path / "t.py").write_text("1\n")
    one = identity(Command("python t.py {seed}"))
    assert one == identity(Command("python t.py {seed}"))
    (tmp_path / "t.py").write_text("2\n")
    two = identity(Command("python t.py {seed}"))
    assert len({one, two, identity(Command("python  t.py {seed}"))}) == 3


def test_a_command_reads_the_files_that_it_names_but_for_those_that_it_writes(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.py").write_text("1\n")
    long = "python t.py {seed} " + 300 * "x"  # too long for the name of a file
    assert Command(long).facts()["files"].keys() == {"t.py"}
    assert not Command("python a.py {seed} > t.py").facts()["files"]


def test_the_identity_has_the_modules_of_a_function_and_the_metric():
    config = resolve(own_study(POINTS[:1]), None, None)[0].run_config({"lr": 0.1}, 0)
    assert config["user_code"]["modules"].keys() == {"tests.trainables.own_programs"}
    changed = own_study(POINTS[:1], metric="loss")
    assert resolve(changed, None, None)[0].run_config({"lr": 0.1}, 0)["run"] != config["run"]
