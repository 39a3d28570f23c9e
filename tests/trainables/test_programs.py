"""Functions and commands as points of a study: their records, states, metrics and errors."""

import builtins
import gc
import itertools
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
from tests.user_errors import raises_user_error

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
    # It may die between the state and the report.
    Point("ahead", Command(SCRIPT + " ahead")),
)


def own_study(points=POINTS, **changes) -> Study:
    given = {"search": SPACE, "epochs": 4, "samples": 3, "seeds": 2, "grace": 1}
    return Study(name="own", question="Which one?", points=points, **(given | changes))


def first_point(study: Study):
    """Return the first point of a study that needs no corpus."""
    first, *_ = resolve(study, None, None)
    return first


def run_of(program, tmp_path: Path, settings=None, **changes):
    """Return an open run of a program, without a study."""
    if settings is None:
        settings = {"lr": 0.1}
    point = Point("one", program, settings)
    study = own_study((point,), search={}, **changes)
    config = first_point(study).run_config({}, 0)
    config |= {"point": {"id": "p", "label": "one"}, "stage": "confirm", "setting": {}}
    kind = FunctionRun
    if isinstance(program, Command):
        kind = CommandRun
    folder = RunFolder(tmp_path / config["run"])
    return kind(folder, config, lock=False)


def trained(run, budget: int) -> list[float]:
    """Train a run to its budget; return its losses."""
    while run.epoch < budget and not run.training.diverged:
        run.train_epoch(budget)
        run.save_epoch()
    run.close()
    records = epoch_records(run.folder.records())
    return [record["valid_token"] for record in records]


def script_of(tmp_path: Path, text: str) -> str:
    script = tmp_path / "own.py"
    script.write_text(text)
    return f"{sys.executable} {script} {{seed}}"


def table(path: Path):
    return study_ranking(path).frame.drop("seconds")


def rows_by_label(path: Path) -> dict:
    return {row["label"]: row for row in table(path).to_dicts()}


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # a worker that dies closes nothing
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_deaths_on_two_workers_do_not_change_the_table(sentences, corpus, corpus_fields, tmp_path):
    """A row of the zoo, functions and commands in one study, with a shared table.

    The runs of the row are in other packs, in which sums have another order.
    """
    toy = toy_study(sentences)
    points = (toy.points[0], POINTS[0], POINTS[4])
    of_rows = {"corpus": toy.corpus, "fields": toy.fields, "search": toy.search | SPACE}
    study = own_study(points, samples=2, **of_rows)
    with other_order():
        fleet_sweep(study, corpus, corpus_fields, tmp_path / "whole", seed=1)
        fleet_sweep(study, corpus, corpus_fields, tmp_path / "dead", seed=2, deaths={7, 16, 25})
    gc.collect()  # ends the programs of the workers that died
    whole = table(tmp_path / "whole")
    dead = table(tmp_path / "dead")
    assert_frame_equal(whole, dead, rel_tol=ROUNDING, abs_tol=ROUNDING)
    assert whole["score"].unique().to_list() == ["exact"]
    rows = rows_by_label(tmp_path / "whole")
    marked = {label for label in rows if "reported" in rows[label]["marks"]}
    # Their losses are reported by themselves, not measured by lmzoo.
    assert marked == {"function", "ahead"}
    assert rows["function"]["verdict"], "it is compared with the row"
    # As they are in JSON, which has no tuples.
    facts = json.loads(json.dumps(corpus.facts.as_json()))
    assert read_study(tmp_path / "whole")["data"] == facts


def test_a_study_of_programs_needs_no_corpus(tmp_path):
    study = own_study(reference="function")
    fleet_sweep(study, None, None, tmp_path)
    rows = rows_by_label(tmp_path)
    function = rows["function"]
    shifted = rows["shifted"]
    # The noise of a test is at most 0.04.
    assert function["verdict"] is None
    assert shifted["verdict"] == "worse"
    assert shifted["difference"] == pytest.approx(0.5, abs=0.05)
    assert rows["command"]["loss"] == pytest.approx(function["loss"], abs=0.05)


FUNCTION, _, STATELESS, _, AHEAD = [point.row for point in POINTS]


@pytest.mark.parametrize("program", [FUNCTION, STATELESS, AHEAD])
def test_an_interrupted_run_has_the_records_of_a_whole_one(program, tmp_path):
    whole = trained(run_of(program, tmp_path / "whole"), 6)
    trained(run_of(program, tmp_path / "cut"), 2)
    resumed = trained(run_of(program, tmp_path / "cut"), 6)
    assert resumed == whole
    assert len(whole) == 6


# A state of two epochs too late, and one after which nothing is reported.
@pytest.mark.parametrize("state", ["[0.5, 3]", "[0.5, 999]"])
def test_a_state_that_is_ahead_of_the_records_begins_again(state, tmp_path):
    whole = trained(run_of(AHEAD, tmp_path / "whole"), 4)
    run = run_of(AHEAD, tmp_path / "cut")
    trained(run, 1)
    (run.folder.path / "state" / "state.json").write_text(state)
    resumed = trained(run_of(AHEAD, tmp_path / "cut"), 4)
    assert resumed == whole


def test_a_worker_that_dies_takes_its_program_along(tmp_path):
    """The program, and what it started, end when the pipe of the worker closes."""
    text = 'import os, time\nprint(\'{"epoch": 1, "valid": 1}\', flush=True)\ntime.sleep(600)\n'
    command = Command(script_of(tmp_path, text))
    run = run_of(command, tmp_path, {})
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
    # More than the run asks for.
    for epoch in range(first, 9):
        yield {"epoch": epoch, "valid": 1.0}, STATES


def refuse(settings, seed):
    yield {"epoch": 1, "valid": 1.0}, {"a": object()}


def test_states_are_tensors_arrays_and_plain_values(tmp_path):
    trained(run_of(keep, tmp_path), 1)
    losses = trained(run_of(keep, tmp_path), 3)
    assert len(losses) == 3
    assert RESUMED == [False, True]


def test_a_state_of_another_kind_is_refused(tmp_path):
    run = run_of(refuse, tmp_path)
    run.train_epoch(2)
    with pytest.raises(RuntimeError, match="the state has a object; give tensors"):
        run.save_epoch()


def test_a_metric_to_maximize_in_its_own_unit(tmp_path):
    points = tuple(Point(str(lr), own_programs.accuracy, {"lr": lr}) for lr in (0.0, 3.0))
    metric = {"metric": "accuracy", "direction": "maximize", "unit": "%"}
    study = own_study(points, search={}, seeds=4, **metric)
    fleet_sweep(study, None, None, tmp_path)
    report = study_ranking(tmp_path)
    first, second = report.frame.to_dicts()
    assert first["label"] == "3.0"
    assert first["verdict"] == "better"
    # The noise of a seed is the same at both points.
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


FROM_ZERO = REPORT.replace("e,", "e - 1,")
PATTERN = r"epoch (?P<epoch>\d+).* val (?P<valid>\S+)"
READINGS = [
    (REPORT, {}),
    (FROM_ZERO, {"first_epoch": 0}),
    (PRINT, {"pattern": PATTERN}),
    (WRITE, {"csv": "{folder}/m.csv"}),
    (STEPS, {"every": 50}),
]


@pytest.mark.parametrize(("line", "reading"), READINGS)
def test_where_a_command_reports_its_epochs(line, reading, tmp_path):
    script = script_of(tmp_path, EPOCHS.format(line))
    run = run_of(Command(script + " {folder}", **reading), tmp_path, {})
    assert trained(run, 3) == [3.0, 1.5, 1.0]


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
    script = script_of(tmp_path, EVENTS)
    command = Command(script + " {folder}/tb", tensorboard="{folder}/tb")
    run = run_of(command, tmp_path, {}, metric="val/loss")
    assert trained(run, 2) == [4.0, 2.0]


@cases("trainables/cases.toml", "reports")
def test_the_last_report_of_a_command_counts_or_it_says_why(case, tmp_path):
    """Also if its line has no end."""
    text = "exit('no such file x.bin')"
    if case["lines"]:
        # The last line has no end.
        text = f"print(*{case['lines']}, sep='\\n', end='')"
    pattern = case.get("pattern", "")
    command = Command(script_of(tmp_path, text), pattern=pattern)
    run = run_of(command, tmp_path, {})
    loss = case.get("loss")
    # A text is the error.
    if not isinstance(loss, str):
        assert trained(run, 4) == [loss]
        return
    with pytest.raises(RuntimeError, match=loss):
        run.train_epoch(4)
    run.close()


def read_aloud(settings, seed):
    """Report what a setting says; null is not reported."""
    reports = json.loads(settings["reports"])
    for epoch, (valid, test) in enumerate(reports, start=1):
        metrics = {"epoch": epoch, "valid": valid}
        if test is not None:
            metrics["test"] = test
        yield metrics


def is_finite(report) -> bool:
    """Return whether all metrics that are there are numbers."""
    valid, test = report
    return math.isfinite(valid) and (test is None or math.isfinite(test))


@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(st.lists(st.tuples(NUMBERS, st.none() | NUMBERS), min_size=1, max_size=4))
def test_no_number_stands_in_for_a_metric_that_is_not_there(reports):
    text = {"reports": json.dumps(reports)}
    with tempfile.TemporaryDirectory() as folder:
        losses = trained(run_of(read_aloud, Path(folder), text), len(reports))
        finite = list(itertools.takewhile(is_finite, reports))
        expected = [valid for valid, _ in finite]
        if len(finite) < len(reports):
            # A run ends with the first number that is none.
            assert losses == expected + [None]
            return
        assert losses == expected
        run = run_of(read_aloud, Path(folder), text)
        assert_test_is_that_of_the_best_epoch(run, reports)
        run.close()


def assert_test_is_that_of_the_best_epoch(run, reports):
    best_valid, test_of_best = min(reports, key=lambda report: report[0])
    is_tested = any(test is not None for _, test in reports)
    if is_tested and test_of_best is None:
        with pytest.raises(RuntimeError, match="did not report 'test' with 'valid'"):
            run.test()
        return
    record = run.test()
    if is_tested:
        assert record["metric"] == "test"
        assert record["token"] == test_of_best
    else:
        assert record["metric"] == "valid"
        assert record["token"] == best_valid


def test_a_point_without_the_test_metric_is_not_compared_by_another(tmp_path):
    tested = Point("a", own_programs.train)
    untested = Point("b", own_programs.train_untested)
    study = own_study((tested, untested))
    fleet_sweep(study, None, None, tmp_path)
    rows = rows_by_label(tmp_path)
    assert rows["a"]["loss"] is not None
    assert rows["b"]["loss"] is None
    assert not rows["b"]["verdict"]


def test_a_program_that_stops_early_has_its_last_metric_at_the_budget(tmp_path):
    script = script_of(tmp_path, EPOCHS.format(REPORT))
    run = run_of(Command(script), tmp_path, {})
    assert trained(run, 9) == [3.0, 1.5, 1.0, 1.0]
    again = run_of(Command(script), tmp_path, {})
    assert again.test()["token"] == 1.0
    again.close()


STARTED: list[int | None] = []


def three_epochs(settings, seed, resume):
    STARTED.append(resume)
    first = 1
    if resume is not None:
        first = resume + 1
    for epoch in range(first, 4):
        yield {"epoch": epoch, "valid": 1 / epoch}, epoch


def test_a_program_that_goes_on_and_stops_early_does_not_begin_again(tmp_path):
    trained(run_of(three_epochs, tmp_path), 1)
    losses = trained(run_of(three_epochs, tmp_path), 9)
    assert losses == [1, 1 / 2, 1 / 3, 1 / 3]
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
    reported, _ = REPORTS[settings["report"]]
    return reported


async def later(settings, seed):
    return 0.5


def needs(settings, seed, path):
    return 0.5


@pytest.mark.parametrize("name", REPORTS)
def test_what_a_function_reports_is_a_number_or_its_error_says_why(name, tmp_path):
    run = run_of(report, tmp_path, {"report": name})
    _, expected = REPORTS[name]
    if not isinstance(expected, str):
        first, *_ = trained(run, 2)
        assert first == expected
        return
    with pytest.raises(RuntimeError, match=expected):
        trained(run, 2)
    run.close()


def leave(settings, seed):
    error = getattr(builtins, settings["error"])
    try:
        yield {"epoch": 1, "valid": 1.0}
    finally:
        raise error("no disk")


LEAVING = ["SystemExit", "KeyboardInterrupt", "GeneratorExit"]


@pytest.mark.parametrize("error", LEAVING)
def test_what_a_function_raises_after_its_last_epoch_is_kept(error, tmp_path):
    run = run_of(leave, tmp_path, {"error": error})
    assert trained(run, 1) == [1.0]
    # GeneratorExit is how Python itself closes a generator.
    is_kept = (run.folder.path / "output.txt").exists()
    assert is_kept == (error != "GeneratorExit")


@pytest.mark.parametrize("error", LEAVING)
def test_a_function_that_leaves_python_ends_its_run_with_its_words(error, tmp_path):
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
    kept = (run.folder.path / output.OUTPUT).read_bytes()
    first, *_, last_line, from_stderr = kept.decode().splitlines()
    assert last_line == f"line {lines - 1} of epoch 2"
    assert from_stderr == "ünd"
    # Of many lines, the first ones are left out.
    assert (first == "line 0 of epoch 1") == (lines == 2)
    assert len(kept) <= 1000
    assert capsys.readouterr() == ("", "")


def fork(settings, seed):
    child = os.fork()
    if child == 0:
        return 9.0
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def test_a_child_that_a_function_forks_does_not_go_on_as_the_worker(tmp_path):
    own = os.getpid()
    try:
        reports = trained(run_of(fork, tmp_path, {}), 1)
    finally:
        # Or a child would run the remaining tests.
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
    # What it was before.
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()
    assert (Path.cwd(), np.geterr(), dict(os.environ)) == before


def assert_refused(message, program, settings=(), **changes):
    """Assert that a study of this program is refused with the message."""
    point = Point("a", program, dict(settings))
    study = own_study((point,), **changes)
    with raises_user_error(message):
        resolve(study, None, None)


NO_PROGRAMS = {
    "not defined at the top of a module": lambda settings, seed: 1.0,
    "print has no parameter 'settings'": print,
    "function max has no parameter 'settings'": max,
    "function later is asynchronous": later,
    "needs path; it is given settings, seed, resume, epochs by": needs,
    "3 is not the name of a row, a function or a Command": 3,
}


@pytest.mark.parametrize("message", NO_PROGRAMS)
def test_what_cannot_be_called_as_a_program_is_refused(message):
    assert_refused(message, NO_PROGRAMS[message])


@cases("trainables/cases.toml", "commands", "text, pattern, message")
def test_a_command_that_does_not_fit_its_settings_is_refused(text, pattern, message):
    command = Command(text, pattern=pattern)
    assert_refused(message, command)


def test_a_setting_that_is_no_plain_value_is_refused():
    with_nan = Choice((1.0, math.nan))
    message = "a setting is no plain value"
    assert_refused(message, own_programs.train, {"x": object()})
    assert_refused(message, own_programs.train, search={"lr": with_nan})


def test_a_setting_without_a_known_range_is_refused():
    assert_refused("no search range is known", own_programs.train, search={"lr": None})


def test_a_direction_that_a_metric_cannot_have_is_refused():
    assert_refused("direction 'up' is not minimize or", own_programs.train, direction="up")
    assert_refused("rows of the zoo have a loss", "DLM46", direction="maximize")


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
    path = own_folder / file
    before = path.read_text()
    path.write_text(before + "\n")
    with pytest.raises(ProgramError, match=f"{file} has changed since the sweep began"):
        run.train_epoch(2)
    run.close()
    assert not run.folder.records()
    path.write_text(before)
    again = run_of(command, own_folder / "store", {})
    assert trained(again, 2) == [1.0, 1.0]


def test_a_run_whose_variable_changes_has_no_result(own_folder, monkeypatch):
    monkeypatch.setenv("LEVEL", "1")
    command = Command("python own.py $LEVEL {seed}")
    run = run_of(command, own_folder / "store", {})
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
        store = own_folder / "store"
        fleet_sweep(study, None, None, store, workers=1)
        (row,) = table(store).to_dicts()
        runs = load_study(store).runs.collect()
        # The mean of seeds 1 and 2.
        assert row["loss"] == pytest.approx(value + 1.5 / 8)
        assert runs.height == study.seeds
        assert caplog.messages == lines


def test_a_file_that_is_gone_is_said(own_folder, caplog):
    point = Point("a", reads_by_a_child)
    study = own_study((point,), search={}, epochs=1, samples=1, seeds=1)
    fleet_sweep(study, None, None, own_folder / "store", workers=1)
    assert caplog.messages == []
    Path("data.csv").unlink()
    SEEN.clear()
    fleet_sweep(study, None, None, own_folder / "store", workers=1)
    (line,) = caplog.messages
    assert line == "a: runs have read data.csv, which cannot be read now: they count"


def reads_by_a_child(settings, seed):
    subprocess.run([sys.executable, "-c", "open('data.csv')"], check=True)
    yield {"epoch": 1, "valid": seed / 1000}


def files_of(text, files=()):
    facts = Command(text, files=files).facts()
    return set(facts["files"])


def test_files_of_a_command_are_declared(own_folder):
    assert files_of("own {seed}", ("*.csv",)) == {"data.csv"}
    with raises_user_error("names no file"):
        files_of("own {seed}", ("*.R",))


@pytest.mark.parametrize("place", [{"csv": "m.csv"}, {"tensorboard": "runs/{seed}"}], ids=str)
def test_a_place_that_runs_would_share_is_refused(place):
    command = Command("own {seed}", **place)
    with raises_user_error("runs would share ", "; write {folder}/"):
        command.check({})


def test_a_command_may_read_its_seed_from_the_environment():
    Command("own $LMZOO_SEED").check({})


def test_what_an_earlier_process_wrote_does_not_count(tmp_path):
    text = "import sys\nopen(sys.argv[2], 'a').write('1,3\\n')"
    command = Command(script_of(tmp_path, text) + " {folder}/m.csv", csv="{folder}/m.csv")
    run = run_of(command, tmp_path / "store", {})
    folder = run.folder.path / "state"
    folder.mkdir(parents=True)
    (folder / "m.csv").write_text("epoch,valid\n1,9\n")
    assert trained(run, 1) == [3.0]


def unseeded(settings, seed):
    a = random.random()
    b = np.random.rand()
    c = torch.rand(())
    yield {"epoch": 1, "valid": 1.0, "a": a, "b": b, "c": c}


def test_functions_draw_from_the_seed_of_their_run(tmp_path):
    def draws(name, seed):
        run = run_of(unseeded, tmp_path / name, {})
        run.config = run.config | {"seed": seed}
        trained(run, 1)
        metrics = run.training.record["metrics"]
        return {metrics["a"], metrics["b"], metrics["c"]}

    first = draws("first", 1)
    assert draws("again", 1) == first
    assert draws("other", 2).isdisjoint(first)


def test_the_identity_has_the_command_and_its_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def identity(text: str) -> str:
        point = Point("a", Command(text))
        study = own_study((point,), search={})
        return first_point(study).run_config({}, 0)["run"]

    (tmp_path / "t.py").write_text("1\n")
    one = identity("python t.py {seed}")
    again = identity("python t.py {seed}")
    (tmp_path / "t.py").write_text("2\n")
    changed = identity("python t.py {seed}")
    spaced = identity("python  t.py {seed}")
    assert again == one
    assert len({one, changed, spaced}) == 3


def test_a_command_reads_the_files_that_it_names_but_for_those_that_it_writes(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.py").write_text("1\n")
    long = "python t.py {seed} " + 300 * "x"  # too long for the name of a file
    assert files_of(long) == {"t.py"}
    assert files_of("python a.py {seed} > t.py") == set()


def config_of_a_function(**changes):
    study = own_study(POINTS[:1], **changes)
    return first_point(study).run_config({"lr": 0.1}, 0)


def test_the_identity_has_the_modules_of_a_function():
    config = config_of_a_function()
    assert config["user_code"]["modules"].keys() == {"tests.trainables.own_programs"}


def test_the_identity_has_the_metric():
    config = config_of_a_function()
    changed = config_of_a_function(metric="loss")
    assert changed["run"] != config["run"]
